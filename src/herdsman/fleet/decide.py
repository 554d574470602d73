"""From a snapshot to a plan, without any side effect; and what a second scaling policy would have planned.

Also the life of pools that were created by name: started, kept, drained, and changed to another model.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from operator import index
from typing import Any, assert_never

from herdsman.fleet import actions
from herdsman.fleet.actions import Action, ActionReason, Code, Note
from herdsman.fleet.model import InstanceRef
from herdsman.fleet.phases.health import check_health, promote, reassign, warn
from herdsman.fleet.phases.instances import grow_volumes, recognise, sweep
from herdsman.fleet.phases.scale import end_workers, scale_down, scale_up, wanted_workers
from herdsman.fleet.snapshot import ListingFailed, PoolLife, PoolSnapshot, Snapshot, WorkerSnapshot
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs.model import FailureClass
from herdsman.states import POOL, WORKER, PoolStatus, WorkerStatus

SHARE = 4
"""At most one in so many workers of a pool loads another model at a time; the others serve."""


def keep_pools(seen: Snapshot) -> Iterable[Action]:
    """A pool runs when it has a worker, and drains when nobody has used it for as long as it is held."""
    for pool, life in _named(seen):
        wanted, ends_at = pool.queued > 0 or life.waiting, life.hold_ends_at
        busy = any(each.job for each in seen.of(pool.id, *WorkerStatus))
        # A provider that cannot be listed is no evidence that nobody uses the pool.
        unused = not wanted and not busy and not isinstance(seen.instances, ListingFailed)
        if life.open and unused and ends_at is not None and seen.now >= ends_at:
            idle = (seen.now - ends_at).total_seconds()
            reason = ActionReason(Code.HOLD_OVER, "nobody used it for as long as it is held", {"over_s": idle})
            yield actions.MovePool(pool.id, PoolStatus.DRAINING, reason)
        elif life.status is PoolStatus.STARTING and any(seen.of(pool.id, WorkerStatus.ACTIVE)):
            reason = ActionReason(Code.POOL_SERVED, "a worker of it is there")
            yield actions.MovePool(pool.id, PoolStatus.RUNNING, reason)
        elif life.status is PoolStatus.DRAINING and life.ended_by_hold and wanted:
            reason = ActionReason(Code.POOL_WANTED, "jobs came while it was drained", {"queued": pool.queued})
            yield actions.MovePool(pool.id, PoolStatus.RUNNING, reason)


def retire(seen: Snapshot) -> Iterable[Action]:
    """Drain the workers of a closed pool, and one at a time of those that have lived long enough."""
    if isinstance(seen.instances, ListingFailed):
        return
    for pool, life in _named(seen):
        if not life.open:
            reason = ActionReason(Code.POOL_CLOSED, f"its pool is {life.status}")
            evicted = life.status is PoolStatus.EVICTED
            for worker in seen.of(pool.id, WorkerStatus.SPAWNING):
                if worker.job is None or evicted:
                    yield actions.CancelSpawn(worker.id, reason)
            for worker in seen.of(pool.id, WorkerStatus.ACTIVE):
                yield actions.DrainWorker(worker.id, reason)
            if evicted:
                alive = (WorkerStatus.SPAWNING, WorkerStatus.ACTIVE, WorkerStatus.TERMINATING)
                for worker in seen.of(pool.id, *alive):
                    for job in (worker.job, *worker.batch):
                        if job is not None:  # an evicted pool is not waited for; its jobs are not to blame
                            yield actions.RequeueJob(job.key, worker.id, reason, FailureClass.INTERRUPTED)
        elif life.max_lifetime is not None:
            yield from _renew(pool, life, seen)


def close_pools(seen: Snapshot) -> Iterable[Action]:
    """A pool that drains has stopped when its last worker is gone."""
    for pool, life in _named(seen):
        if life.status is PoolStatus.DRAINING and seen.alive(pool.id) == 0:
            reason = ActionReason(Code.POOL_EMPTY, "its last worker is gone")
            yield actions.MovePool(pool.id, PoolStatus.STOPPED, reason)


def assign_revisions(seen: Snapshot) -> Iterable[Action]:
    """Workers follow their pool to another model a few at a time, so that the others go on serving."""
    for pool, life in _named(seen):
        if not life.open:
            continue
        active = list(seen.of(pool.id, WorkerStatus.ACTIVE))
        loading = sum(1 for each in active if each.revision < each.wanted_revision)
        behind = [each for each in active if max(each.revision, each.wanted_revision) < life.revision]
        numbers = {"revision": life.revision, "behind": len(behind), "loading": loading}
        reason = ActionReason(Code.SWAP, "its pool serves another model now", numbers)
        # Idle ones first: they need not finish anything.
        behind.sort(key=lambda each: (each.job is not None, each.id))
        for worker in behind[: max(1, len(active) // SHARE) - loading]:
            yield actions.AssignModelRevision(worker.id, life.revision, reason)


def _named(seen: Snapshot) -> Iterator[tuple[PoolSnapshot, PoolLife]]:
    return ((pool, pool.life) for pool in seen.pools if pool.life is not None)


def _renew(pool: PoolSnapshot, life: PoolLife, seen: Snapshot) -> Iterator[Action]:
    """Only while the fleet is whole: nobody comes or goes, and the one that goes is surely there."""
    assert life.max_lifetime is not None
    restless = (WorkerStatus.SPAWNING, WorkerStatus.TERMINATING, WorkerStatus.ERROR)
    if any(seen.of(pool.id, *restless)):
        return
    born = seen.now - life.max_lifetime
    old = [
        each
        for each in seen.of(pool.id, WorkerStatus.ACTIVE)
        if each.created_at < born and (each.instance_name is not None and each.absent_since is None)
    ]
    for worker in sorted(old, key=lambda each: (each.created_at, each.id))[:1]:
        numbers = {
            "age_s": (seen.now - worker.created_at).total_seconds(),
            "limit_s": life.max_lifetime.total_seconds(),
        }
        yield actions.DrainWorker(worker.id, ActionReason(Code.LIFETIME, "it has lived as long as it may", numbers))


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
    # What was drained just now is ended in the same cycle.
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
    """The fleet as it will be when everything planned succeeds."""

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(step.action for step in self.steps)


def decide(seen: Snapshot) -> Plan:
    """Nothing follows from a database that may be a copy, or out of date: its machines may be another's by now."""
    if seen.doubt:
        reason = ActionReason(Code.DATABASE_NOT_ADOPTED, seen.doubt)
        return Plan(tuple(Planned("recognise", Note(pool.id, reason)) for pool in seen.pools), seen)
    plan = Plan((), seen)
    for name, phase in PHASES:
        taken = tuple(phase(plan.expected))
        steps = tuple(Planned(name, action) for action in taken)
        plan = Plan((*plan.steps, *steps), after(plan.expected, taken))
    return plan


def after(seen: Snapshot, taken: Iterable[Action]) -> Snapshot:
    """The fleet in which every one of `taken` has succeeded."""
    changes = [action for action in taken if not isinstance(action, Note)]
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
        self._pools: dict[PoolId, PoolStatus] = {}

    def apply(self, action: Action) -> None:  # noqa: C901  (one case for each action)
        match action:
            case actions.PromoteWorker(worker_id):
                self._move(worker_id, WorkerStatus.ACTIVE)
            case actions.FailWorker(worker_id, reason) | actions.CancelSpawn(worker_id, reason):
                self._move(worker_id, WorkerStatus.ERROR)
                self._change(worker_id, error_code=reason.code.value)
            case actions.DrainIdleWorker(worker_id) | actions.DrainWorker(worker_id):
                self._move(worker_id, WorkerStatus.TERMINATING)
            case actions.ConfirmTerminated(worker_id):
                self._move(worker_id, WorkerStatus.TERMINATED)
            case actions.RequeueJob():
                self._queued[self._workers[action.worker_id].pool] += 1
                self._change(action.worker_id, job=None, batch=())
            case actions.EndInstance(worker_id):
                self._change(worker_id, end_asked_at=self._seen.now)
            case actions.AttachInstance(worker_id, ref):
                self._change(worker_id, instance_ref=ref, absent_since=None)
            case actions.SpawnWorker(pool):
                name = WorkerId(f"planned-{len(self._workers)}")
                self._workers[name] = WorkerSnapshot(
                    id=name,
                    pool=pool,
                    status=WorkerStatus.SPAWNING,
                    created_at=self._seen.now,
                    entered_state_at=self._seen.now,
                    instance_name=name,
                )
            case actions.MovePool(pool, to):
                self._pools[pool] = to
            case actions.AssignModelRevision(worker_id, revision):
                self._change(worker_id, wanted_revision=revision)
            case actions.GrowVolume(worker_id):
                # How much room there is then, the workers will report.
                pool = self._workers[worker_id].pool
                for worker in [each for each in self._workers.values() if each.pool == pool]:
                    self._change(worker.id, disk_free_gb=None)
            case actions.TerminateOrphan(ref):
                self._ended.add(ref)
            case Note():
                pass
            case _:
                assert_never(action)

    def snapshot(self) -> Snapshot:
        pools: list[PoolSnapshot] = []
        for pool in self._seen.pools:
            changed, to = replace(pool, queued=pool.queued + self._queued[pool.id]), self._pools.get(pool.id)
            if to is not None and pool.life is not None:
                assert POOL.allows(pool.life.status, to), f"{pool.life.status} -> {to} was planned"
                changed = replace(changed, life=replace(pool.life, status=to))
            pools.append(changed)
        left = self._seen.instances
        if not isinstance(left, ListingFailed):
            left = tuple(each for each in left if each.ref not in self._ended)
        workers = tuple(self._workers.values())
        return replace(self._seen, workers=workers, pools=tuple(pools), instances=left)

    def _move(self, worker_id: WorkerId, to: WorkerStatus) -> None:
        here = self._workers[worker_id].status
        assert WORKER.allows(here, to), f"{here} -> {to} was planned"
        self._change(worker_id, status=to, entered_state_at=self._seen.now)

    def _change(self, worker_id: WorkerId, **values: Any) -> None:
        self._workers[worker_id] = replace(self._workers[worker_id], **values)


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
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The policy that decides, and its shadow: a second one that is only asked. Nothing that it says is done."""

    pool: PoolId
    policy: str
    """The name of the shadow."""
    live: Side
    shadow: Side | None
    """None where the shadow raised an exception."""
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
    """Every pool that has a shadow. Never raises: what a shadow raises is recorded, and the cycle goes on."""
    shadowed = [pool for pool in seen.pools if pool.policy.shadow]
    if not shadowed:
        return ()
    swapped = {
        pool.id: replace(pool, policy=replace(pool.policy, scaling=pool.policy.shadow, shadow="")) for pool in shadowed
    }
    asked = {name: _asked(pool, seen) for name, pool in swapped.items()}
    broken = {name: error for name, (_, error) in asked.items() if error}
    # All pools at once: they share a ceiling. One whose shadow raises stays under the policy that decides.
    trial = tuple(pool if pool.id in broken else swapped.get(pool.id, pool) for pool in seen.pools)
    plan, error = None, ""
    try:
        plan = decide(replace(seen, pools=trial))
    except Exception as raised:  # noqa: BLE001  (it may be a plugin's; the plan that counts was made before)
        error = _printable(f"{type(raised).__name__}: {raised}")
    return tuple(
        Compared(
            pool=pool.id,
            policy=pool.policy.shadow,
            live=_side(seen, live, pool.id, pool.policy.scaling, _asked(pool, seen)[0]),
            shadow=None
            if plan is None or pool.id in broken
            else _side(seen, plan, pool.id, pool.policy.shadow, asked[pool.id][0]),
            error=broken.get(pool.id, error),
        )
        for pool in shadowed
    )


def _asked(pool: PoolSnapshot, seen: Snapshot) -> tuple[str, str]:
    """What the policy of a pool says of it, or else what is wrong with the policy."""
    try:
        wanted = wanted_workers(pool, seen)
        index(wanted.grow_to + wanted.keep)
        terms = ", ".join(f"{name} {value}" for name, value in wanted.terms.items())
        return str(wanted.said) or terms, ""
    except Exception as error:  # noqa: BLE001  (it may be a plugin's, and it is only asked)
        return "", _printable(f"{type(error).__name__}: {error}")


def _printable(text: str) -> str:
    """One line that every database can keep."""
    return "".join(each if each.isprintable() else " " for each in text[:LONGEST])


def _side(seen: Snapshot, plan: Plan, pool: PoolId, policy: str, said: str) -> Side:
    taken, mine = plan.actions, {worker.id for worker in seen.of(pool, *WorkerStatus)}
    spawns = [each for each in taken if isinstance(each, actions.SpawnWorker) and each.pool == pool]
    drains = [each for each in taken if isinstance(each, actions.DrainIdleWorker) and each.worker_id in mine]
    parts = [
        f"{verb} {len(each)}: {each[0].reason.text}"
        for verb, each in (("asks for", spawns), ("drains", drains))
        if each
    ]
    if parts:
        reason = "; ".join(parts)
        reason = reason if not said or said in reason else f"{reason} ({said})"
    else:
        notes = (each.reason.text for each in taken if isinstance(each, Note) and each.about == pool)
        kept = next(notes, said)
        reason = f"changes nothing: {kept}" if kept else "changes nothing"
    return Side(
        policy=policy,
        workers=sum(1 for _ in plan.expected.of(pool, WorkerStatus.SPAWNING, WorkerStatus.ACTIVE)),
        spawns=len(spawns),
        drains=len(drains),
        reason=_printable(reason),
    )
