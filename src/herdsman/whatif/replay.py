"""Replays a trace from its first arrival to its last end, with the fleet kept by the real `decide` or by another controller."""

import math
import re
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Protocol

from herdsman.errors import InvalidRequest
from herdsman.fleet import actions
from herdsman.fleet.decide import Plan, decide
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.scaling import AHEAD, FORECASTING, OURS, RECENT, SLOT, Demand, ScalingPolicy
from herdsman.fleet.snapshot import PoolSnapshot, Snapshot
from herdsman.ids import DEFAULT_POOL
from herdsman.states import WorkerStatus
from herdsman.whatif.machines import Boots, FleetView, World
from herdsman.whatif.trace import Trace


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


START = datetime(2026, 1, 5, tzinfo=UTC)
"""When the first job comes. The judgement reads nothing from the date."""
DAY_S = 86_400.0
SLOT_S = SLOT.total_seconds()
LIMITS = (actions.Code.CEILING, actions.Code.KILL_SWITCH)


class PolicyController:
    """Keeps the fleet of a world as a leader would, by the same pure function."""

    def __init__(
        self, world: World, policy: FleetPolicy, *, price: float = 0.0, policies: Mapping[str, ScalingPolicy] = OURS
    ) -> None:
        self.cap_hits = 0
        self._world = world
        self._policy = policy
        self._policies = policies
        self._fleet = FleetView(START, Decimal(str(price)))
        self._failed: deque[float] = deque()
        self._promoted: deque[float] = deque()
        self._created: deque[float] = deque()
        self._scaled_at: datetime | None = None
        self._history = _History()

    def cycle(self) -> Plan:
        plan = decide(self.observe())
        capped = False
        for action in plan.actions:
            capped |= self._act(action)
        self.cap_hits += capped
        return plan

    @property
    def quiet(self) -> bool:
        """Nothing will change until a job comes: nobody works, comes or goes, and nobody is one too many."""
        world, kept = self._world, len(self._fleet.workers) <= self._policy.min_workers
        still = kept and not world.queued and len(world.idle) == len(self._fleet.workers)
        return still and self._policy.scaling not in FORECASTING

    def observe(self) -> Snapshot:
        world, now = self._world, START + timedelta(seconds=self._world.now)
        window = self._policy.failure_window.total_seconds()
        failures = _within(self._failed, world.now - window)
        workers, instances = self._fleet.observe(world.now)
        pool = PoolSnapshot(
            id=DEFAULT_POOL,
            policy=self._policy,
            queued=world.queued,
            failures=failures,
            starts=failures + _within(self._promoted, world.now - window),
            last_scaled_at=self._scaled_at,
            demand=self._history.demand(world) if self._policy.scaling in FORECASTING else None,
        )
        return Snapshot(now=now, pools=(pool,), workers=workers, instances=instances, policies=self._policies)

    def _act(self, action: actions.Action) -> bool:
        """Whether a limit prevented it."""
        match action:
            case actions.SpawnWorker():
                limit = self._policy.max_creates_per_hour
                if limit is not None and _within(self._created, self._world.now - 3600) >= limit:
                    return True
                self._created.append(self._world.now)
                self._scaled_at = START + timedelta(seconds=self._world.now)
                self._fleet.add(self._world.spawn())
            case actions.PromoteWorker(worker_id):
                self._promoted.append(self._world.now)
                self._history.starts.append(False)
                self._fleet.move(worker_id, WorkerStatus.ACTIVE, self._world.now)
            case actions.FailWorker(worker_id):
                self._failed.append(self._world.now)
                self._history.starts.append(True)
                self._fleet.move(worker_id, WorkerStatus.ERROR, self._world.now)
            case actions.DrainIdleWorker(worker_id):
                self._fleet.move(worker_id, WorkerStatus.TERMINATING, self._world.now)
            case actions.EndInstance(worker_id):
                worker = self._fleet.workers[worker_id]
                worker.end_asked_at = self._world.now
                self._world.end(worker.machine)
            case actions.ConfirmTerminated(worker_id):
                del self._fleet.workers[worker_id]
            case actions.Note(_, reason):
                return reason.code in LIMITS
            case _:
                # Pools by name, other models, orphans and lost answers do not occur in a replay.
                raise AssertionError(f"a replay cannot {type(action).__name__}")
        return False


class _History:
    """What is known of the demand at a moment, and nothing of what comes after it."""

    def __init__(self) -> None:
        self._took: tuple[float, ...] = ()
        self._boots: tuple[float, ...] = ()
        self.starts: deque[bool] = deque(maxlen=200)
        """Whether each of the latest failed."""
        self._renewed = -SLOT_S

    def demand(self, world: World) -> Demand:
        if len(self._took) < 50 or world.now - self._renewed >= SLOT_S:
            self._took, self._boots = tuple(world.latest_took), tuple(world.latest_boots)
            self._renewed = world.now
        then, span = world.now - DAY_S, AHEAD * SLOT_S
        was, came = (_came(world, then - span, then), _came(world, then, then + span))
        # What was before the trace is left out.
        edges = [edge for each in range(RECENT, 0, -1) if (edge := world.now - SLOT_S * each) > -SLOT_S]
        return Demand(
            arrivals=tuple(_came(world, each, each + SLOT_S) for each in edges),
            day_before=(was, came) if then >= span else None,
            service_s=self._took,
            boots_s=self._boots,
            waits_s=tuple(world.latest_waits),
            failing=sum(self.starts) / len(self.starts) if self.starts else 0.0,
        )


def _came(world: World, since: float, until: float) -> int:
    """What comes at this very moment has not come yet."""
    arrival = world.trace.arrival_s
    return bisect_left(arrival, min(until, world.now)) - bisect_left(arrival, since)


def _within(times: "deque[float]", since: float) -> int:
    while times and times[0] <= since:
        times.popleft()
    return len(times)


PATIENCE_S = 7 * 86_400.0
"""So long after the last arrival, and twice what the work takes at best, a replay is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    policy: FleetPolicy
    boots: Boots = field(default_factory=Boots)
    poll_s: float = 30.0
    price: float = 0.0
    seed: int = 0
    policies: Mapping[str, ScalingPolicy] = field(default_factory=lambda: OURS)


class Controller(Protocol):
    cap_hits: int

    def cycle(self) -> object: ...

    @property
    def quiet(self) -> bool:
        """Nothing will change until a job comes."""
        ...


def replay(trace: Trace, setup: Setup, name: str = "") -> Outcome:
    if setup.policy.max_workers == 0:
        raise InvalidRequest("MAX_ACTIVE_GPUS is 0: nobody would ever run a job; set it to at least 1")

    def controller(world: World) -> Controller:
        rules = replace(setup.policy, look_every=timedelta(seconds=setup.poll_s))
        return PolicyController(world, rules, price=setup.price, policies=setup.policies)

    return steered(trace, setup, controller, name or setup.policy.scaling)


def steered(trace: Trace, setup: Setup, controller: Callable[[World], Controller], name: str) -> Outcome:
    """Under anybody's hand: what others do is replayed here as well."""
    world = World(trace, setup.boots, seed=setup.seed)
    keeper, cycles, poll = controller(world), 0, setup.poll_s
    most = setup.policy.max_workers
    give_up = trace.arrival_s[-1] + 2 * trace.work_s / max(1, most) + PATIENCE_S
    look_at = 0.0
    while not world.over and look_at <= give_up:
        world.advance(look_at)
        if world.over:
            break
        keeper.cycle()
        cycles += 1
        look_at += poll
        if keeper.quiet and world.next_arrival > look_at:
            # Looks are at whole multiples of the interval, wherever the quiet ends.
            look_at = math.ceil(min(world.next_arrival, give_up + poll) / poll) * poll
    target = setup.policy.target_wait.total_seconds()
    return outcome_of(world, name, price=setup.price, target_s=target, cap_hits=keeper.cap_hits, cycles=cycles)
