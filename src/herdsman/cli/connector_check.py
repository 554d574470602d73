"""What a person wants to know of a service before jobs are sent to it."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from herdsman.connectors.registry import Around, find
from herdsman.core.errors import Forbidden, ServiceUnavailable
from herdsman.core.service import Fitness, StoredFile
from herdsman.ports import SystemClock
from herdsman.settings.kinds import hide_password

T = TypeVar("T")

COMFYUI = "comfyui"


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    vram_total_mb: int
    vram_free_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """All that was asked, and how long each answer took."""

    connector: str
    url: str | None
    fault: str | None
    version: str | None
    queued: int | None
    devices: tuple[Device, ...] = ()
    has_jobs_route: bool | None = None
    """None where it was not asked; so with `hears`."""
    hears: bool | None = None
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])

    def document(self) -> dict[str, object]:
        return {"fit": self.fault is None, **asdict(self)}

    def rows(self) -> Iterator[tuple[str, str]]:
        yield "service", f"{self.connector} at {self.url}" if self.url else self.connector
        yield "fit", "yes" if self.fault is None else "no"
        if self.version is not None:
            yield "version", f"{self.version}{', new enough' if self.has_jobs_route is not None else ''}"
        for each in self.devices:
            yield "device", f"{each.name}: {each.vram_free_mb} of {each.vram_total_mb} MB free"
        if self.queued is not None:
            yield "queue", f"{self.queued} waiting or running"
        if self.has_jobs_route is not None:
            missing = "not there: /queue and /history are asked instead"
            yield "/api/jobs", "there" if self.has_jobs_route else missing
        if self.hears is not None:
            yield "socket", "opened, heard, closed" if self.hears else "not heard"
        yield "answered", ", ".join(f"{what} in {took * 1000:.0f} ms" for what, took in self.seconds.items())


def checked(connector: str, options: Mapping[str, Any]) -> Checked:
    """Never raises for a service that is away or odd: that is its fault. Wrong options do."""
    opened = find(connector)(options, Around(clock=SystemClock(), results=_Nowhere()))
    with closing(opened):
        fitness, took = _timed(opened.fitness)
    found = _of(connector, options, fitness, took)
    if connector != COMFYUI or fitness.fault is not None:
        return found
    try:
        return _with_more(found, options)
    except ServiceUnavailable as error:
        return replace(found, fault=str(error))


def _of(connector: str, options: Mapping[str, Any], fitness: Fitness, took: float) -> Checked:
    url = options.get("url")
    return Checked(
        connector=connector,
        url=hide_password(url) if isinstance(url, str) else None,
        fault=fitness.fault,
        version=fitness.version,
        queued=fitness.queued,
        devices=_device(fitness),
        seconds={"version": took},
    )


def _device(fitness: Fitness) -> tuple[Device, ...]:
    if fitness.device is None:
        return ()
    return (Device(fitness.device, fitness.vram_total_mb or 0, fitness.vram_free_mb or 0),)


def _with_more(found: Checked, options: Mapping[str, Any]) -> Checked:
    from herdsman.cli.comfyui_probes import Probes  # noqa: PLC0415  (needs what only a worker has)
    from herdsman.connectors.comfyui.options import read_options  # noqa: PLC0415

    with closing(Probes(read_options(options))) as probes:
        devices = tuple(Device(*each) for each in probes.devices())
        there, jobs_took = _timed(probes.has_jobs_route)
        deaf, socket_took = _timed(lambda: _fault(probes.hear))
    return replace(
        found,
        devices=devices,
        has_jobs_route=there,
        hears=deaf is None,
        fault=deaf,
        seconds={**found.seconds, "jobs": jobs_took, "socket": socket_took},
    )


def _fault(call: Callable[[], None]) -> str | None:
    try:
        call()
    except ServiceUnavailable as error:
        return str(error)
    return None


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    began = time.monotonic()
    return call(), time.monotonic() - began


class _Nowhere:
    """A check stores nothing, and reads nothing."""

    def for_agent(self, agent: str) -> "_Nowhere":
        del agent
        return self

    def put(self, job_id: str, name: str, content: Iterable[bytes]) -> StoredFile:
        del content
        raise Forbidden(f"a check keeps no files, not {name} of {job_id} either")

    def read(self, uri: str) -> Iterator[bytes]:
        raise Forbidden(f"a check reads no files, not {uri} either")

    def find(self, job_id: str, name: str) -> str | None:
        del job_id, name
        return None

    def drop(self, job_id: str) -> None:
        del job_id
