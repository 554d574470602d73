"""Workers beyond what is wanted are drained, idle ones only; drained and failed ones are ended."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from herdsman.core.actions import Action, BuryWorker, DrainWorker, EndInstance
from herdsman.core.findings import Code, Finding
from herdsman.core.fleet import SeenPool, SeenWorker, Snapshot, Unseen
from herdsman.core.phases.sizing import wanted_workers
from herdsman.core.policy import FleetPolicy
from herdsman.core.states import WorkerState

_NO_FAILURE = frozenset({None, Code.BY_HAND.value, Code.POOL_CLOSED.value})
"""Why a worker that was ended before it could leave by itself is not worth a look."""


def scale_down(seen: Snapshot) -> Iterable[Action]:
    if isinstance(seen.instances, Unseen):
        return
    for pool in seen.pools:
        if pool.life is not None and not pool.life.open:
            continue  # all of its workers go, idle or not
        yield from _drain_idle(pool, seen) if pool.drained is None else _drain_all(pool, pool.drained, seen)


def end_workers(seen: Snapshot) -> Iterable[Action]:
    """What is drained or failed is ended at the provider, again and again, until it is seen to be gone."""
    if isinstance(seen.instances, Unseen):
        return
    for pool in seen.pools:
        for worker in seen.of(pool.id, WorkerState.TERMINATING, WorkerState.ERROR):
            why = may_end(worker, pool.policy, seen.now)
            if why is not None and not _kept_for_a_look(worker, pool, seen):
                yield from _end(worker, why, pool.policy, seen.now)


def _drain_idle(pool: SeenPool, seen: Snapshot) -> Iterator[Action]:
    """The longest idle go first. Only workers without a job are taken, and never below what is kept."""
    active = list(seen.of(pool.id, WorkerState.ACTIVE))
    policy, wanted = pool.policy, wanted_workers(pool, seen)
    keep, usual = wanted.keep, min(policy.idle_timeout, wanted.idle_limit or policy.idle_timeout)
    surplus = len(active) - max(keep, min(policy.min_workers, policy.max_workers))
    if surplus <= 0:
        return
    idle = sorted((each for each in active if _may_go(each, policy, seen.now)), key=_idle_since)
    for index, worker in enumerate(idle[:surplus]):
        over = index < len(active) - policy.max_workers
        limit = policy.overcapacity_idle_timeout if over else usual
        idle_for = seen.now - seen.since(_idle_since(worker))
        if idle_for > limit:
            numbers = {"idle_s": idle_for.total_seconds(), "limit_s": limit.total_seconds()}
            why = Finding(
                Code.IDLE, "idle, and more than are wanted", {**numbers, "active": len(active), "keep": keep}
            )
            yield DrainWorker(worker.id, why)


def _drain_all(pool: SeenPool, why: str, seen: Snapshot) -> Iterator[Action]:
    """Those that came after the drain was asked for; they get no job meanwhile, so each is soon without one."""
    for worker in seen.of(pool.id, WorkerState.ACTIVE):
        if worker.job is None:
            yield DrainWorker(worker.id, Finding(Code.CLUSTER_DRAINED, why))


def _may_go(worker: SeenWorker, policy: FleetPolicy, now: datetime) -> bool:
    """A new one has its time to find work; one that somebody started by hand is theirs to stop."""
    new = now - worker.entered_state_at < policy.scale_down_grace
    return worker.job is None and worker.instance_name is not None and not new


def _idle_since(worker: SeenWorker) -> datetime:
    return worker.idle_since or worker.entered_state_at


def may_end(worker: SeenWorker, policy: FleetPolicy, now: datetime) -> Finding | None:
    if worker.state is WorkerState.ERROR:
        return Finding(Code.CLEAN_UP, "it has failed")
    if worker.job is None:
        return Finding(Code.DRAINED, "it holds no job any more")
    since = now - worker.entered_state_at
    if since <= policy.shutdown_grace:
        return None
    numbers = {"draining_s": since.total_seconds(), "grace_s": policy.shutdown_grace.total_seconds()}
    return Finding(Code.GRACE_EXPIRED, "its job did not end within the grace period", numbers)


def _kept_for_a_look(worker: SeenWorker, pool: SeenPool, seen: Snapshot) -> bool:
    """The machine of a failed worker, while it is there, its grace lasts and nobody needs its place."""
    policy = pool.policy
    failed = worker.state is WorkerState.ERROR and worker.error_code not in _NO_FAILURE
    over = seen.now - worker.entered_state_at >= policy.error_grace
    if not failed or over or worker.instance_ref is None or worker.absent_since or worker.end_asked_at:
        return False
    usable = seen.alive(pool.id) - sum(
        1 for _ in seen.of(pool.id, WorkerState.ERROR, WorkerState.TERMINATING)
    )
    full = seen.alive(pool.id) >= policy.max_workers
    return not (full and (pool.queued > 0 or usable < policy.min_workers))


def _end(worker: SeenWorker, why: Finding, policy: FleetPolicy, now: datetime) -> Iterator[Action]:
    if is_gone(worker, policy, now):
        yield BuryWorker(worker.id, Finding(Code.CONFIRMED_ABSENT, "its instance is gone"))
    elif worker.instance_ref is not None and _ask_again(worker, policy, now):
        yield EndInstance(worker.id, worker.instance_ref, why)


def is_gone(worker: SeenWorker, policy: FleetPolicy, now: datetime) -> bool:
    """Listings have lacked it long enough: not so long where we asked for its end, longer where we never saw it."""
    if worker.instance_name is None:
        return True
    if worker.absent_since is None:
        return False
    if worker.instance_ref is None or worker.end_asked_at is None:
        return now - worker.absent_since > policy.absence_window
    if _may_be_overlooked(worker, policy, now):
        return False
    return now - max(worker.absent_since, worker.end_asked_at) > policy.confirm_window


def _may_be_overlooked(worker: SeenWorker, policy: FleetPolicy, now: datetime) -> bool:
    """A young instance may be missing wherever we look, and there all the same, until it has shown itself once."""
    shown = any((worker.last_heartbeat, worker.idle_since, worker.listed_at, policy.exact_listings))
    return not shown and now - worker.created_at <= policy.absence_window


def _ask_again(worker: SeenWorker, policy: FleetPolicy, now: datetime) -> bool:
    return worker.end_asked_at is None or now - worker.end_asked_at > policy.end_again_after
