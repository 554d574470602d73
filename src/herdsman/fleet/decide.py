"""The world as actions leave it."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any, assert_never

from herdsman.fleet.actions import (
    Action,
    ActionReason,
    AssignModelRevision,
    AttachInstance,
    CancelSpawn,
    Code,
    ConfirmTerminated,
    DrainIdleWorker,
    DrainWorker,
    EndInstance,
    FailWorker,
    GrowVolume,
    MovePool,
    Note,
    PromoteWorker,
    RequeueJob,
    SpawnWorker,
    TerminateOrphan,
)
from herdsman.fleet.model import InstanceRef
from herdsman.fleet.phases.health import check_health, promote, reassign, warn
from herdsman.fleet.phases.instances import grow_volumes, recognise, sweep
from herdsman.fleet.phases.pools import assign_revisions, close_pools, keep_pools, retire
from herdsman.fleet.phases.scale import end_workers, scale_down, scale_up, wanted_workers
from herdsman.fleet.snapshot import ListingFailed, PoolSnapshot, Snapshot, WorkerSnapshot
from herdsman.ids import PoolId, WorkerId
from herdsman.states import POOL, WORKER, PoolState, WorkerState


def after(seen: Snapshot, actions: Iterable[Action]) -> Snapshot:
    """The world in which every one of `actions` has succeeded."""
    changes = [action for action in actions if not isinstance(action, Note)]
    if not changes:
        return seen
    world = _World(seen)
    for action in changes:
        world.apply(action)
    return world.snapshot()


class _World:
    """A scratch copy by id: a plan may touch thousands of workers, and each must cost the same."""

    def __init__(self, seen: Snapshot) -> None:
        self._seen = seen
        self._workers = {worker.id: worker for worker in seen.workers}
        self._queued: Counter[PoolId] = Counter()
        self._ended: set[InstanceRef] = set()
        self._pools: dict[PoolId, PoolState] = {}

    def apply(self, action: Action) -> None:
        match action:
            case PromoteWorker(worker_id):
                self._move(worker_id, WorkerState.ACTIVE)
            case FailWorker(worker_id, why) | CancelSpawn(worker_id, why):
                self._move(worker_id, WorkerState.ERROR)
                self._change(worker_id, error_code=why.code.value)
            case DrainIdleWorker(worker_id) | DrainWorker(worker_id):
                self._move(worker_id, WorkerState.TERMINATING)
            case ConfirmTerminated(worker_id):
                self._move(worker_id, WorkerState.TERMINATED)
            case RequeueJob():
                self._queued[self._workers[action.worker_id].pool] += 1
                self._change(action.worker_id, job=None, batch=())
            case EndInstance(worker_id):
                self._change(worker_id, end_asked_at=self._seen.now)
            case AttachInstance(worker_id, ref):
                self._change(worker_id, instance_ref=ref, absent_since=None)
            case SpawnWorker(pool):
                self._spawn(pool)
            case MovePool() | AssignModelRevision() | GrowVolume():
                self._steer(action)
            case TerminateOrphan(ref):
                self._ended.add(ref)
            case Note():
                pass
            case _:
                assert_never(action)

    def snapshot(self) -> Snapshot:
        pools = tuple(self._pool(pool) for pool in self._seen.pools)
        seen = self._seen.instances
        left = (
            seen
            if isinstance(seen, ListingFailed)
            else tuple(each for each in seen if each.ref not in self._ended)
        )
        return replace(self._seen, workers=tuple(self._workers.values()), pools=pools, instances=left)

    def _steer(self, action: MovePool | AssignModelRevision | GrowVolume) -> None:
        match action:
            case MovePool():
                self._pools[action.pool] = action.to
            case AssignModelRevision():
                self._change(action.worker_id, wanted_revision=action.revision)
            case GrowVolume():
                # How much room there is then, the workers will say.
                pool = self._workers[action.worker_id].pool
                for worker in [each for each in self._workers.values() if each.pool == pool]:
                    self._change(worker.id, disk_free_gb=None)

    def _pool(self, pool: PoolSnapshot) -> PoolSnapshot:
        queued = pool.queued + self._queued[pool.id]
        to = self._pools.get(pool.id)
        if to is None or pool.life is None:
            return replace(pool, queued=queued)
        assert POOL.allows(pool.life.state, to), f"{pool.life.state} -> {to} was planned"
        return replace(pool, queued=queued, life=replace(pool.life, state=to))

    def _move(self, worker_id: WorkerId, to: WorkerState) -> None:
        here = self._workers[worker_id].state
        assert WORKER.allows(here, to), f"{here} -> {to} was planned"
        self._change(worker_id, state=to, entered_state_at=self._seen.now)

    def _change(self, worker_id: WorkerId, **values: Any) -> None:
        self._workers[worker_id] = replace(self._workers[worker_id], **values)

    def _spawn(self, pool: PoolId) -> None:
        name = WorkerId(f"planned-{len(self._workers)}")
        self._workers[name] = WorkerSnapshot(
            id=name,
            pool=pool,
            state=WorkerState.SPAWNING,
            created_at=self._seen.now,
            entered_state_at=self._seen.now,
            instance_name=name,
        )


Phase = Callable[[Snapshot], Iterable[Action]]
PHASES: tuple[tuple[str, Phase], ...] = (
    ("recognise", recognise),
    ("promote", promote),
    ("health", check_health),
    ("reassign", reassign),
    # Jobs that came back are waiting now, and silence counts while jobs wait.
    ("health", check_health),
    ("health", warn),
    ("pools", keep_pools),
    ("scale_down", scale_down),
    ("terminating", end_workers),
    ("pools", retire),
    # What was let go just now is ended in the same cycle.
    ("terminating", end_workers),
    ("pools", close_pools),
    ("pools", assign_revisions),
    ("scale_up", scale_up),
    ("sweep", sweep),
    ("storage", grow_volumes),
)


@dataclass(frozen=True, slots=True)
class Planned:
    phase: str
    action: Action


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Planned, ...]
    expected: Snapshot
    """The world as it will be when everything planned succeeds."""

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(step.action for step in self.steps)


def decide(seen: Snapshot) -> Plan:
    """Of a database that may be a copy, or out of date, nothing follows: what it knows may be another's by now."""
    if seen.doubt:
        why = ActionReason(Code.DATABASE_NOT_ADOPTED, seen.doubt)
        return Plan(tuple(Planned("recognise", Note(pool.id, why)) for pool in seen.pools), seen)
    plan = Plan((), seen)
    for name, phase in PHASES:
        actions = tuple(phase(plan.expected))
        steps = tuple(Planned(name, action) for action in actions)
        plan = Plan((*plan.steps, *steps), after(plan.expected, actions))
    return plan


LONGEST = 500
"""Of a sentence that a policy says: it may be anybody's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one policy makes of a pool."""

    policy: str
    workers: int
    """Those that would be starting or active if all of its plan succeeded."""
    spawns: int
    drains: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    pool: PoolId
    policy: str
    """The name of the shadow."""
    live: Side
    shadow: Side | None
    """None where it could not be told, because it raised."""
    error: str = ""

    @property
    def differs(self) -> bool:
        """It would have done something else. What both want and neither may do is no difference."""
        mine, other = self.live, self.shadow
        return other is not None and (mine.workers, mine.spawns, mine.drains) != (
            other.workers,
            other.spawns,
            other.drains,
        )


def compare(seen: Snapshot, live: Plan) -> tuple[Compared, ...]:
    """Every pool that has a shadow. Never raises: what a shadow raises is told, and the cycle goes on."""
    shadowed = [pool for pool in seen.pools if pool.policy.shadow]
    if not shadowed:
        return ()
    asked = {pool.id: _asked(_as_shadow(pool), seen) for pool in shadowed}
    broken = {name: error for name, (_, error) in asked.items() if error}
    plan, error = _decided(_under_shadows(seen, leaving=broken))
    now = _Sides(seen, live)
    then = None if plan is None else _Sides(seen, plan)
    return tuple(
        Compared(
            pool=pool.id,
            policy=pool.policy.shadow,
            live=now.of(pool.id, pool.policy.scaling, _asked(pool, seen)[0]),
            shadow=None
            if then is None or pool.id in broken
            else then.of(pool.id, pool.policy.shadow, asked[pool.id][0]),
            error=broken.get(pool.id, error),
        )
        for pool in shadowed
    )


def _as_shadow(pool: PoolSnapshot) -> PoolSnapshot:
    return replace(pool, policy=replace(pool.policy, scaling=pool.policy.shadow, shadow=""))


def _under_shadows(seen: Snapshot, leaving: Collection[PoolId]) -> Snapshot:
    """All pools at once: they share a ceiling. One whose shadow raises stays under the policy that decides."""
    pools = (
        _as_shadow(pool) if pool.policy.shadow and pool.id not in leaving else pool for pool in seen.pools
    )
    return replace(seen, pools=tuple(pools))


def _asked(pool: PoolSnapshot, seen: Snapshot) -> tuple[str, str]:
    """What the policy of a pool says of it, and else what is wrong with the policy."""
    try:
        wanted = wanted_workers(pool, seen)
        index(wanted.grow_to + wanted.keep)
        terms = ", ".join(f"{name} {value}" for name, value in wanted.terms.items())
        return str(wanted.said) or terms, ""
    except Exception as error:  # noqa: BLE001  (it may be a plugin's, and it is only asked)
        return "", _told(error)


def _decided(trial: Snapshot) -> tuple[Plan | None, str]:
    try:
        return decide(trial), ""
    except Exception as error:  # noqa: BLE001  (as above; the plan that counts was made before)
        return None, _told(error)


def _told(error: Exception) -> str:
    return plain(f"{type(error).__name__}: {error}")


def plain(text: str) -> str:
    """One line that every database can keep."""
    return "".join(each if each.isprintable() else " " for each in text[:LONGEST])


class _Sides:
    """One plan, by pools."""

    def __init__(self, seen: Snapshot, plan: Plan) -> None:
        self._expected = plan.expected
        homes = {worker.id: worker.pool for worker in seen.workers}
        self._actions: dict[str, list[Action]] = {}
        for action in plan.actions:
            match action:
                case SpawnWorker(pool=about) | Note(about=about):
                    self._actions.setdefault(about, []).append(action)
                case DrainIdleWorker(worker_id=worker_id):
                    self._actions.setdefault(homes[worker_id], []).append(action)
                case _:
                    pass

    def of(self, pool: PoolId, policy: str, said: str) -> Side:
        actions = self._actions.get(pool, [])
        spawns = [each for each in actions if isinstance(each, SpawnWorker)]
        drains = [each for each in actions if isinstance(each, DrainIdleWorker)]
        return Side(
            policy=policy,
            workers=sum(1 for _ in self._expected.of(pool, WorkerState.SPAWNING, WorkerState.ACTIVE)),
            spawns=len(spawns),
            drains=len(drains),
            why=plain(_sentence({"asks for": spawns, "lets go of": drains}, actions, said)),
        )


def _sentence(
    done: Mapping[str, Sequence[SpawnWorker | DrainIdleWorker]], actions: Sequence[Action], said: str
) -> str:
    parts = [f"{verb} {len(each)}: {each[0].why.text}" for verb, each in done.items() if each]
    if parts:
        told = "; ".join(parts)
        return told if not said or said in told else f"{told} ({said})"
    kept = next((each.why.text for each in actions if isinstance(each, Note)), said)
    return f"changes nothing: {kept}" if kept else "changes nothing"
