"""Replays a trace from its first arrival to its last end, with the fleet kept by the real `decide` or by another controller."""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
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
from herdsman.whatif.outcome import Outcome, outcome_of
from herdsman.whatif.trace import Trace

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
