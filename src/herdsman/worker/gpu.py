"""What a worker's GPUs are and how full: asked of the driver in a thread of its own, since a broken one hangs."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Event, Lock, Thread
from typing import Any

from herdsman.core.gpu import GpuReport
from herdsman.ports import Clock

FAKE_MEMORY_MB = 24_576
_MB = 1024 * 1024

Look = Callable[[], GpuReport]


def fake_gpus(count: int) -> Look:
    """For a machine without GPUs: they are there, empty and well."""
    return lambda: GpuReport(ready=True, seen=count > 0, vram_total_mb=count * FAKE_MEMORY_MB, vram_used_mb=0)


def unseen_gpus() -> GpuReport:
    """Nobody may look: ready for jobs, and silent about GPUs."""
    return GpuReport(ready=True, seen=None)


@dataclass(frozen=True, slots=True)
class Nvml:
    """NVIDIA's own library; only the GPUs that CUDA would show this process, by index or by UUID."""

    visible: Sequence[str] | None = None

    def __call__(self) -> GpuReport:
        try:
            nvml: Any = importlib.import_module("pynvml")
        except ImportError:
            return GpuReport(ready=False, seen=False)
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:  # no driver: no GPU
            return GpuReport(ready=False, seen=False)
        try:
            return self._measure(nvml)
        except nvml.NVMLError as error:
            return GpuReport(ready=False, seen=True, fault=f"NVML: {error}")
        finally:
            nvml.nvmlShutdown()

    def _measure(self, nvml: Any) -> GpuReport:
        memory = [nvml.nvmlDeviceGetMemoryInfo(handle) for handle in self._handles(nvml)]
        if not memory:
            return GpuReport(ready=False, seen=False)
        total, used = sum(each.total for each in memory), sum(each.used for each in memory)
        return GpuReport(ready=True, seen=True, vram_total_mb=total // _MB, vram_used_mb=used // _MB)

    def _handles(self, nvml: Any) -> list[Any]:
        if self.visible is None:
            return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return [
            nvml.nvmlDeviceGetHandleByIndex(int(each))
            if each.isdecimal()
            else nvml.nvmlDeviceGetHandleByUUID(each)
            for each in self.visible
        ]


class Sampler:
    """Looks again and again in the background; a look that never returns only makes the last one old."""

    def __init__(self, look: Look, clock: Clock, interval: timedelta) -> None:
        self._look = look
        self._clock = clock
        self._interval = interval
        self._lock = Lock()
        self._last: tuple[GpuReport, float] | None = None

    def start(self) -> None:
        Thread(target=self._run, name="gpu", daemon=True).start()

    def latest(self) -> GpuReport | None:
        with self._lock:
            if self._last is None:
                return None
            report, at = self._last
        return replace(report, vram_age=timedelta(seconds=max(0.0, self._clock.monotonic() - at)))

    def sample(self) -> None:
        at = self._clock.monotonic()
        report = self._look()
        with self._lock:
            self._last = (report, at)

    def _run(self) -> None:
        never = Event()
        while True:
            self.sample()
            never.wait(self._interval.total_seconds())
