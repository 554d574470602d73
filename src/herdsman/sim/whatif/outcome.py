"""What a replay came to: money and waits."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from herdsman.sim.whatif.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    name: str
    jobs: int
    unfinished: int
    """Jobs that had not ended when the replay was given up."""
    hours: float
    """From the first arrival to the last end."""
    gpu_hours: float
    cost_usd: float
    wait_mean_s: float
    wait_p50_s: float
    wait_p95_s: float
    wait_p99_s: float
    wait_max_s: float
    within_target: float
    """The share of jobs that waited no longer than the target."""
    utilisation: float
    """The share of the time paid for in which a job ran."""
    spawns: int
    failed_spawns: int
    peak_workers: int
    cap_hits: int
    """Looks at the fleet at which a limit was in the way of another worker."""
    cycles: int

    def document(self) -> dict[str, object]:
        return asdict(self)


def outcome_of(
    world: World, name: str, *, price: float, target_s: float, cap_hits: int = 0, cycles: int = 0
) -> Outcome:
    waits = sorted(memoryview(world.waits)[: world.served])
    paid = world.paid_s()
    worked = math.fsum(memoryview(world.trace.service_s)[: world.served])
    return Outcome(
        name=name,
        jobs=len(world.trace),
        unfinished=len(world.trace) - world.finished,
        hours=world.now / 3600,
        gpu_hours=paid / 3600,
        cost_usd=paid / 3600 * price,
        wait_mean_s=math.fsum(waits) / len(waits) if waits else 0.0,
        wait_p50_s=rank(waits, 0.5),
        wait_p95_s=rank(waits, 0.95),
        wait_p99_s=rank(waits, 0.99),
        wait_max_s=waits[-1] if waits else 0.0,
        within_target=sum(1 for each in waits if each <= target_s) / len(waits) if waits else 0.0,
        utilisation=min(1.0, worked / paid) if paid else 0.0,
        spawns=world.spawned,
        failed_spawns=world.hopeless,
        peak_workers=world.peak,
        cap_hits=cap_hits,
        cycles=cycles,
    )


def rank(ordered: Sequence[float], share: float) -> float:
    """The smallest value that this share of them does not pass."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
