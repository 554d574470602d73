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
    """By id before name, so that nobody can take a volume's place by naming another one like it."""
    volumes: list[Volume] = []
    for name in wanted:
        by_id = [volume for volume in there if volume.id == name]
        found = by_id or [volume for volume in there if volume.name == name]
        if not found:
            known = ", ".join(sorted(volume.name for volume in there)) or "none"
            raise ProviderRejected(f"there is no network volume {name!r} in this Runpod account, but: {known}")
        if len(found) > 1:
            ids = ", ".join(volume.id for volume in found)
            raise ProviderRejected(f"several network volumes are called {name!r}; name one by its id: {ids}")
        volumes += found
    return tuple(volumes)


def create_body(
    options: RunpodOptions, candidate: Candidate, *, name: str, environment: Mapping[str, str]
) -> dict[str, object]:
    """`disk` and `gpu.count` are always in it: without them Runpod claims to be out of machines."""
    volume, mounts, places = candidate.volume, dict[str, object](), list(options.data_centers)
    if volume is not None:
        mounts = {"network": [{"volumeId": volume.id, "path": options.mount_path}]}
        # A pod must stand where its volume is; anything else would be refused.
        places = [volume.data_center] if volume.data_center else []
    elif options.local_volume_gb is not None:
        mounts = {"persistent": {"size": options.local_volume_gb, "path": options.mount_path}}
    gpu: dict[str, object] = {
        "id": candidate.gpu_type,
        "count": options.gpu_count,
        "minCudaVersion": options.min_cuda,
        "minRamPerGpu": candidate.memory_gb,
        "minVcpuCountPerGpu": options.min_vcpus,
    }
    body: dict[str, object] = {
        "name": name,
        "image": options.image,
        "templateId": options.template_id,
        "cloud": options.cloud,
        "gpu": {field: value for field, value in gpu.items() if value is not None},
        "disk": options.container_disk_gb,
        "dataCenterIds": places,
        "mounts": mounts,
        "ports": list(options.ports),
        "env": dict(environment),
        **startup_fields(options),
    }
    return {field: value for field, value in body.items() if value not in (None, [], {})}
