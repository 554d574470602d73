"""The outcome of a replay, cost and waits; and several compared: which settings are worth their cost, which to choose."""

import math
import re
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product

from herdsman.errors import InvalidRequest
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


MOST_REPLAYS = 200
_RANGE = re.compile(r"(-?[0-9]{1,12})\.\.(-?[0-9]{1,12})(?::([0-9]{1,12}))?")


@dataclass(frozen=True, slots=True)
class Advice:
    best: Outcome | None
    said: str


def assignments(given: Sequence[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` for each."""
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise InvalidRequest(f"{option} {each!r} is not NAME=VALUE, such as MAX_ACTIVE_GPUS=20")
        found[name.strip()] = value.strip()
    return found


def combinations(sweeps: Sequence[str]) -> list[dict[str, str]]:
    """Every choice of one value from each sweep, `NAME=A..B`, `NAME=A..B:STEP` or `NAME=A,B,C`."""
    ranges = {name: values(name, text) for name, text in assignments(sweeps, "--sweep").items()}
    size = 1
    for each in ranges.values():
        size *= len(each)
    if size > MOST_REPLAYS:
        raise InvalidRequest(f"the sweeps make {size} replays, more than {MOST_REPLAYS}: use larger steps")
    return [dict(zip(ranges, chosen, strict=True)) for chosen in product(*ranges.values())]


def values(name: str, text: str) -> list[str]:
    matched = _RANGE.fullmatch(text)
    if matched is None:
        if ".." in text or not all(each.strip() for each in text.split(",")):
            raise InvalidRequest(f"--sweep {name}={text} is neither a range such as 0..4 nor a list such as 1,2,4")
        return [each.strip() for each in text.split(",")]
    first, last, step = int(matched[1]), int(matched[2]), int(matched[3] or 1)
    if last < first or step < 1:
        raise InvalidRequest(
            f"--sweep {name}={text} holds nothing: begin with the smaller number, in steps of 1 or more"
        )
    if (last - first) // step >= MOST_REPLAYS:
        raise InvalidRequest(f"--sweep {name}={text} holds more than {MOST_REPLAYS} values: use larger steps")
    return [str(each) for each in range(first, last + 1, step)]


def worthwhile(found: Sequence[Outcome]) -> list[Outcome]:
    """Those of which no other is both cheaper and quicker; the cheapest first."""
    kept: list[Outcome] = []
    for each in sorted(found, key=lambda one: (one.gpu_hours, one.wait_p95_s)):
        if not each.unfinished and (not kept or each.wait_p95_s < kept[-1].wait_p95_s):
            kept.append(each)
    return kept


def advice(found: Sequence[Outcome], target_s: float) -> Advice:
    """The cheapest that keeps the target; where none does, the quickest of those that are worth their money."""
    front = worthwhile(found)
    if not front:
        return Advice(None, "no replay ended all its jobs: allow more workers, or look at the failing starts")
    within = [each for each in front if each.wait_p95_s <= target_s]
    best = within[0] if within else front[-1]
    evidence = f"95 of 100 jobs wait at most {best.wait_p95_s:.0f}s for {best.gpu_hours:.1f} GPU-hours"
    if not within:
        return Advice(best, f"none keeps the target of {target_s:.0f}s; {best.name} comes nearest: {evidence}")
    first, beside = found[0], ""
    if first is not best and first.gpu_hours:
        share = best.gpu_hours / first.gpu_hours - 1
        beside = (
            f", which is {abs(share):.0%} {'less' if share < 0 else 'more'} than {first.name}"
            f" ({first.wait_p95_s:.0f}s, {first.gpu_hours:.1f} GPU-hours)"
        )
    return Advice(best, f"{best.name} is the cheapest that keeps the target of {target_s:.0f}s: {evidence}{beside}")


def labelled(policy: str, chosen: Mapping[str, str]) -> str:
    return " ".join([policy, *(f"{name}={value}" for name, value in chosen.items())])
