"""The outcome of a replay: cost and waits."""

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from herdsman.whatif.machines import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How long jobs waited that have begun."""

    jobs: int = 0
    mean_s: float = 0.0
    p50_s: float = 0.0
    p95_s: float = 0.0
    p99_s: float = 0.0
    max_s: float = 0.0
    within_target: float = 0.0


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
    by_class: tuple[tuple[str, Waits], ...] = ()
    """The class with the most jobs first; empty where there is only one."""

    def document(self) -> dict[str, object]:
        classes = [{"class": name, **asdict(waits)} for name, waits in self.by_class]
        return {**asdict(self), "by_class": classes}


def outcome_of(
    world: World, name: str, *, price: float, target_s: float, cap_hits: int = 0, cycles: int = 0
) -> Outcome:
    waits = waits_of(memoryview(world.waits)[: world.served], target_s)
    paid = world.paid_s()
    worked = math.fsum(memoryview(world.trace.service_s)[: world.served])
    return Outcome(
        name=name,
        jobs=len(world.trace),
        unfinished=len(world.trace) - world.finished,
        hours=world.now / 3600,
        gpu_hours=paid / 3600,
        cost_usd=paid / 3600 * price,
        wait_mean_s=waits.mean_s,
        wait_p50_s=waits.p50_s,
        wait_p95_s=waits.p95_s,
        wait_p99_s=waits.p99_s,
        wait_max_s=waits.max_s,
        within_target=waits.within_target,
        utilisation=min(1.0, worked / paid) if paid else 0.0,
        spawns=world.spawned,
        failed_spawns=world.hopeless,
        peak_workers=world.peak,
        cap_hits=cap_hits,
        cycles=cycles,
        by_class=_by_class(world, target_s),
    )


def waits_of(unordered: Sequence[float], target_s: float) -> Waits:
    if not unordered:
        return Waits()
    waits = sorted(unordered)
    return Waits(
        jobs=len(waits),
        mean_s=math.fsum(waits) / len(waits),
        p50_s=rank(waits, 0.5),
        p95_s=rank(waits, 0.95),
        p99_s=rank(waits, 0.99),
        max_s=waits[-1],
        within_target=bisect_right(waits, target_s) / len(waits),
    )


def _by_class(world: World, target_s: float) -> tuple[tuple[str, Waits], ...]:
    classes = world.trace.classes
    if classes is None or len(classes.names) < 2:
        return ()
    apart = [array("d") for _ in classes.names]
    for place, wait in zip(classes.of, memoryview(world.waits)[: world.served], strict=False):
        apart[place].append(wait)
    found = [(name, waits_of(waits, target_s)) for name, waits in zip(classes.names, apart, strict=True)]
    return tuple(sorted(found, key=lambda one: (-one[1].jobs, one[0])))


def rank(ordered: Sequence[float], share: float) -> float:
    """The smallest value that this share of them does not pass."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
