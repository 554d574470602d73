"""What to ask for, one after the other, and what was out of stock a moment ago."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from herdsman.ports import Clock
from herdsman.providers.runpod.options import RunpodOptions
from herdsman.providers.runpod.resources import Volume

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
