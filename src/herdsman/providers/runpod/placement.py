"""What to ask for, one after the other, on which volume, and what was out of stock a moment ago."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from herdsman.errors import ProviderRejected
from herdsman.ports import Clock
from herdsman.providers.runpod.answers import Volume
from herdsman.providers.runpod.options import RunpodOptions, startup_fields

# Stock comes and goes within seconds; this only keeps the next few spawns from asking in vain first.
MEMORY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Candidate:
    gpu_type: str
    volume: Volume | None
    memory_gb: int | None

    def __str__(self) -> str:
        memory = [f"{self.memory_gb} GB"] if self.memory_gb is not None else []
        volume = [f"on {self.volume.name}"] if self.volume is not None else []
        return " ".join([self.gpu_type, *memory, *volume])


def candidates(options: RunpodOptions, volumes: Sequence[Volume]) -> list[Candidate]:
    """The wanted GPU before another one, its first volume before the next, more memory before less."""
    return [
        Candidate(gpu_type, volume, memory)
        for gpu_type in dict.fromkeys(options.gpu_types)
        for volume in (volumes or (None,))
        for memory in (options.memory_tiers_gb or (None,))
    ]


class Stock:
    """Remembers what was out of stock. It never holds more than there are candidates."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._missing_until: dict[Candidate, float] = {}

    def ran_out(self, candidate: Candidate) -> None:
        self._missing_until[candidate] = self._clock.monotonic() + MEMORY.total_seconds()

    def in_order(self, ladder: Iterable[Candidate]) -> list[Candidate]:
        """What may be in stock first; for the rest, the order stays as it is."""
        now = self._clock.monotonic()
        return sorted(ladder, key=lambda candidate: self._missing_until.get(candidate, now) > now)


def chosen(wanted: Sequence[str], there: Sequence[Volume]) -> tuple[Volume, ...]:
    return tuple(_one(each, there) for each in wanted)


def _one(wanted: str, there: Sequence[Volume]) -> Volume:
    """By id before name, so that nobody can take a volume's place by naming another one like it."""
    by_id = [volume for volume in there if volume.id == wanted]
    found = by_id or [volume for volume in there if volume.name == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(volume.id for volume in found)
        raise ProviderRejected(f"several network volumes are called {wanted!r}; name one by its id: {ids}")
    known = ", ".join(sorted(volume.name for volume in there)) or "none"
    raise ProviderRejected(f"there is no network volume {wanted!r} in this Runpod account, but: {known}")


def create_body(
    options: RunpodOptions, candidate: Candidate, *, name: str, environment: Mapping[str, str]
) -> dict[str, object]:
    """`disk` and `gpu.count` are always in it: without them Runpod claims to be out of machines."""
    body: dict[str, object] = {
        "name": name,
        "image": options.image,
        "templateId": options.template_id,
        "cloud": options.cloud,
        "gpu": _gpu(options, candidate),
        "disk": options.container_disk_gb,
        "dataCenterIds": _places(options, candidate),
        "mounts": _mounts(options, candidate),
        "ports": list(options.ports),
        "env": dict(environment),
        **startup_fields(options),
    }
    return {field: value for field, value in body.items() if value not in (None, [], {})}


def _gpu(options: RunpodOptions, candidate: Candidate) -> dict[str, object]:
    fields: dict[str, object] = {
        "id": candidate.gpu_type,
        "count": options.gpu_count,
        "minCudaVersion": options.min_cuda,
        "minRamPerGpu": candidate.memory_gb,
        "minVcpuCountPerGpu": options.min_vcpus,
    }
    return {field: value for field, value in fields.items() if value is not None}


def _places(options: RunpodOptions, candidate: Candidate) -> list[str]:
    """A pod must stand where its volume is; anything else would be refused."""
    if candidate.volume is not None:
        return [candidate.volume.data_center] if candidate.volume.data_center else []
    return list(options.data_centers)


def _mounts(options: RunpodOptions, candidate: Candidate) -> dict[str, object]:
    if candidate.volume is not None:
        return {"network": [{"volumeId": candidate.volume.id, "path": options.mount_path}]}
    if options.local_volume_gb is not None:
        return {"persistent": {"size": options.local_volume_gb, "path": options.mount_path}}
    return {}
