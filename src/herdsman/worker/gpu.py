"""What a worker's GPUs are and how full: asked of the driver in a thread of its own, since a broken one hangs."""

import importlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Event, Thread
from typing import Any, TypeVar

from herdsman.fleet.model import GpuDevice, GpuReport
from herdsman.ports import Clock

FAKE_MEMORY_MB = 24_576
MOST_PROCESSES = 100
_MB = 1024 * 1024
_LONGEST_OWNER = 40

T = TypeVar("T")

GpuReader = Callable[[], GpuReport]


def fake_gpus(count: int, *, owner: str = "GPU", given: Sequence[str] | None = None) -> GpuReader:
    """For a machine without GPUs: they are there, empty and well. Each owner has its own, at the places it was given."""
    numbers = [int(each) for each in given or () if each.isascii() and each.isdecimal()]
    devices = tuple(
        GpuDevice(
            index=index,
            uuid=f"FAKE-{owner[-_LONGEST_OWNER:]}-{index}",
            name="Fake GPU",
            total_mb=FAKE_MEMORY_MB,
            used_mb=0,
            utilisation=0,
        )
        for index in (numbers if len(numbers) == count else range(count))
    )
    total = count * FAKE_MEMORY_MB
    report = GpuReport(ready=True, seen=count > 0, vram_total_mb=total, vram_used_mb=0, devices=devices)
    return lambda: report


def on_node(node: str, look: GpuReader) -> GpuReader:
    """The same, with the name of the machine that they are in."""
    return lambda: replace(look(), node=node)


def unseen_gpus() -> GpuReport:
    """For a worker that may not ask the driver: ready for jobs, without a report of GPUs."""
    return GpuReport(ready=True, seen=None)


@dataclass(frozen=True, slots=True)
class Nvml:
    """NVIDIA's own library; only the GPUs that CUDA would show this process, by index or by UUID."""

    visible: Sequence[str] | None = None
    own: Callable[[], Collection[int] | None] = lambda: None
    """The worker's own processes, as the driver numbers them; None where nobody knows."""

    def __call__(self) -> GpuReport:
        try:
            nvml: Any = importlib.import_module("pynvml")
        except ImportError:
            return GpuReport(ready=True, seen=False)
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:  # no driver: no GPU
            return GpuReport(ready=True, seen=False)
        try:
            own = self.own()
            chosen = range(nvml.nvmlDeviceGetCount()) if self.visible is None else self.visible
            handles = [
                nvml.nvmlDeviceGetHandleByUUID(each)
                if isinstance(each, str) and not each.isdecimal()
                else nvml.nvmlDeviceGetHandleByIndex(int(each))
                for each in chosen
            ]
            devices = tuple(_device(nvml, handle, own) for handle in handles)
            return GpuReport(
                ready=True,
                seen=bool(devices),
                vram_total_mb=sum(each.total_mb for each in devices) if devices else None,
                vram_used_mb=sum(each.used_mb for each in devices) if devices else None,
                devices=devices,
            )
        except nvml.NVMLError as error:
            return GpuReport(ready=False, seen=True, fault=f"NVML: {error}")
        finally:
            nvml.nvmlShutdown()


def _device(nvml: Any, handle: Any, own: Collection[int] | None) -> GpuDevice:
    # As nvidia-smi counts it: what the driver keeps for itself is not used by anybody. Old drivers cannot
    # tell.
    found = _or_none(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    memory = nvml.nvmlDeviceGetMemoryInfo(handle) if found is None else found
    # Inside a container the driver may hide others, or their memory.
    running = _or_none(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    processes: tuple[tuple[int, int | None], ...] | None = None
    if running is not None:
        processes = tuple((each.pid, each.usedGpuMemory and each.usedGpuMemory // _MB) for each in running)
    ours = [taken for pid, taken in processes or () if pid in (own or ())]
    return GpuDevice(
        index=nvml.nvmlDeviceGetIndex(handle),
        uuid=_words(nvml.nvmlDeviceGetUUID(handle)),
        name=_words(nvml.nvmlDeviceGetName(handle)),
        total_mb=memory.total // _MB,
        used_mb=memory.used // _MB,
        utilisation=_or_none(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        processes=(processes or ())[:MOST_PROCESSES],
        # None also where the driver names one of ours and not its memory.
        own_mb=None
        if processes is None or own is None or None in ours
        else sum(each for each in ours if each is not None),
    )


def _or_none(nvml: Any, look: Callable[[], T]) -> T | None:
    """Some cards, and some drivers, do not say everything."""
    try:
        return look()
    except nvml.NVMLError:
        return None


def _words(text: str | bytes) -> str:
    """Older bindings give bytes."""
    return text.decode(errors="replace") if isinstance(text, bytes) else text


@dataclass(slots=True)
class Sampler:
    """Looks again and again in the background; a look that never returns only makes the last one old."""

    look: GpuReader
    clock: Clock
    interval: timedelta
    _last: tuple[GpuReport, float] | None = None
    """Replaced as a whole."""

    def start(self) -> None:
        repeat("gpu", self.sample, self.interval)

    def latest(self) -> GpuReport | None:
        if (last := self._last) is None:
            return None
        report, at = last
        return replace(report, vram_age=timedelta(seconds=max(0.0, self.clock.monotonic() - at)))

    def sample(self) -> None:
        at = self.clock.monotonic()
        self._last = self.look(), at


def repeat(name: str, work: Callable[[], object], interval: timedelta) -> None:
    """Calls it again and again, in a thread of its own that ends with the process."""

    def run() -> None:
        never = Event()
        while True:
            work()
            never.wait(interval.total_seconds())

    Thread(target=run, name=name, daemon=True).start()
