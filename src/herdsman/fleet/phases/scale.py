"""Grows and shrinks each pool as its scaling policy wants, within every limit, and ends what is drained."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from math import ceil

from herdsman.fleet import actions
from herdsman.fleet.actions import ActionReason, Code
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.scaling import FORECASTING, Load, Wanted, bounded, chosen
from herdsman.fleet.snapshot import ListingFailed, PoolSnapshot, Snapshot, WorkerSnapshot
from herdsman.states import WorkerStatus


def load_of(pool: PoolSnapshot, seen: Snapshot) -> Load:
    active = list(seen.of(pool.id, WorkerStatus.ACTIVE))
    busy = [worker for worker in active if worker.job is not None]
    starting = [each for each in seen.of(pool.id, WorkerStatus.SPAWNING) if _to_come(each, pool, seen)]
    load = Load(
        queued=pool.queued,
        active=len(active),
        spawning=len(starting),
        busy=len(busy),
        since_scaled=None if pool.last_scaled_at is None else seen.now - pool.last_scaled_at,
    )
    # Demand that was counted for a shadow is kept from the policy that decides: it would decide otherwise.
    # Only a policy that forecasts needs the rest, and there may be thousands of workers.
    if pool.demand is None or pool.policy.scaling not in FORECASTING:
        return load
    prices = [float(each.cost_per_hour) for each in active if each.cost_per_hour]
    begun = (each.job.begun or each.job.since for each in busy if each.job is not None)
    return replace(
        load,
        held_for=tuple(max(timedelta(0), seen.now - since) for since in begun),
        starting_for=tuple(seen.now - each.created_at for each in starting),
        failures=pool.failures,
        starts=pool.starts,
        cost_per_hour=sum(prices) / len(prices) if prices else 0.0,
        demand=pool.demand,
    )


def wanted_workers(pool: PoolSnapshot, seen: Snapshot) -> Wanted:
    """As many as the scaling policy wants, times what the settings multiply it by."""
    policy, load = pool.policy, load_of(pool, seen)
    ask = chosen(policy.scaling, seen.policies)
    wanted = ask(load, policy)
    if wanted.grow_to > load.capacity:
        if policy.grow_by == 1:
            return wanted
        return replace(wanted, grow_to=bounded(_times(wanted.grow_to, policy.grow_by), policy))
    if policy.shrink_by == 1:
        return wanted
    keep = bounded(max(load.busy, _times(wanted.keep, policy.shrink_by)), policy)
    if keep < wanted.keep and ask(replace(load, active=keep, spawning=0), policy).grow_to > keep:
        return wanted  # who goes would be asked for again at once
    return replace(wanted, keep=keep)


def _times(workers: int, factor: float) -> int:
    """Rounded up, but not for what is lost in the arithmetic."""
    return ceil(round(workers * factor, 6))


def _to_come(worker: WorkerSnapshot, pool: PoolSnapshot, seen: Snapshot) -> bool:
    """A machine that does not run in time is waited for no longer, unless its creation is still in doubt (P2)."""
    late = seen.now - worker.created_at > pool.policy.spawning_grace
    listed = worker.instance_ref is not None and not isinstance(seen.instances, ListingFailed)
    return not (late and listed and worker.last_heartbeat is None and not seen.runs(worker))


FULL_MACHINE = "every GPU of this machine has its worker"


def scale_up(seen: Snapshot) -> Iterable[actions.Action]:
    room = seen.room_together()
    for pool in seen.pools:
        taken = tuple(_grow(pool, seen, room if pool.shares else None))
        if room is not None and pool.shares:
            room -= sum(1 for action in taken if isinstance(action, actions.SpawnWorker))
        yield from taken


def _grow(pool: PoolSnapshot, seen: Snapshot, room: int | None) -> Iterator[actions.Action]:
    """`room` is left for it under the ceiling that it shares with other pools."""
    life, policy = pool.life, pool.policy
    if life is not None and (life.by_hand or not life.open):
        # Not ours to fill; jobs that wait for it are worth a note.
        numbers = {"queued": pool.queued}
        if pool.queued and not life.open:
            text = f"the pool is {life.status}: start it again"
            yield actions.Note(pool.id, ActionReason(Code.POOL_CLOSED, text, numbers))
        elif pool.queued and seen.alive(pool.id) == 0:
            text = "its workers are started by hand"
            yield actions.Note(pool.id, ActionReason(Code.SERVED_BY_HAND, text, numbers))
        return
    wanted, capacity = wanted_workers(pool, seen), load_of(pool, seen).capacity
    missing = wanted.grow_to - capacity
    blocked = (_blocked(pool, seen) if missing > 0 else None) or _at_the_ceiling(pool, seen, missing)
    if blocked is None and missing > 0 and room is not None and room <= 0:
        text = "as many workers as allowed are alive in all pools together"
        blocked = ActionReason(Code.CEILING, text, {"max": seen.most_together or 0})
    if blocked is not None:
        yield actions.Note(pool.id, blocked)
        return
    numbers = {**wanted.terms, "wanted": wanted.grow_to, "min": policy.min_workers, "max": policy.max_workers}
    free = policy.max_workers - seen.alive(pool.id)
    for added in range(min(missing, free if room is None else min(free, room))):
        code, text = Code.DEMAND, wanted.said or "more jobs than the workers can take"
        if capacity + added < policy.min_workers:
            code, text = Code.FLOOR, "fewer workers than the floor"
        yield actions.SpawnWorker(pool.id, ActionReason(code, text, numbers))


def _at_the_ceiling(pool: PoolSnapshot, seen: Snapshot, missing: int) -> ActionReason | None:
    """Everything that may be alive counts."""
    policy, alive = pool.policy, seen.alive(pool.id)
    asked = max(missing, ceil(pool.queued / policy.jobs_per_worker) - alive)
    if asked <= 0 or alive < policy.max_workers:
        return None
    if policy.max_workers == 0:
        return ActionReason(Code.KILL_SWITCH, "MAX_ACTIVE_GPUS is 0", {"queued": pool.queued})
    text = FULL_MACHINE if policy.machine_is_full else "as many workers as allowed are alive"
    numbers = {"alive": alive, "max": policy.max_workers, "queued": pool.queued}
    return ActionReason(Code.CEILING, text, numbers)


def _blocked(pool: PoolSnapshot, seen: Snapshot) -> ActionReason | None:
    """The first of the things that forbid a spawn, or None."""
    policy = pool.policy
    if isinstance(seen.instances, ListingFailed):
        return ActionReason(Code.PARTIAL_SIGHT, f"the provider could not be listed: {seen.instances.reason}")
    if pool.drained is not None:
        return ActionReason(Code.CLUSTER_DRAINED, pool.drained, {"queued": pool.queued})
    if pool.stopped_by is not None:
        return ActionReason(Code.PROVIDER_REJECTED, pool.stopped_by)
    if pool.wait_until is not None and seen.now < pool.wait_until:
        text = "the provider had nothing to give; waiting before asking again"
        wait = {"wait_s": (pool.wait_until - seen.now).total_seconds()}
        return ActionReason(Code.PROVIDER_WAITS, text, wait)
    if pool.starts >= policy.min_starts_to_judge and pool.failures > policy.max_failure_rate * pool.starts:
        text = "too many workers failed: look at one before more are spawned"
        numbers = {"failures": pool.failures, "starts": pool.starts, "max_rate": policy.max_failure_rate}
        return ActionReason(Code.BREAKER_OPEN, text, numbers)
    for span, limit in (("hour", policy.budget_per_hour), ("day", policy.budget_per_day)):
        spent = seen.spent.get(span)
        if limit is not None and spent is not None and spent >= limit:
            text = f"the budget of this {span} is spent"
            numbers = {"spent_usd": float(spent), "limit_usd": float(limit)}
            return ActionReason(Code.BUDGET_SPENT, text, numbers)
    return None


_NO_FAILURE = frozenset({None, Code.BY_HAND.value, Code.POOL_CLOSED.value})
"""Why a worker may have ended in an error without a failure that somebody would want to examine."""


def scale_down(seen: Snapshot) -> Iterable[actions.Action]:
    if isinstance(seen.instances, ListingFailed):
        return
    for pool in seen.pools:
        if pool.life is not None and not pool.life.open:
            continue  # all of its workers go, idle or not
        if pool.drained is None:
            yield from _drain_idle(pool, seen)
            continue
        # Those that came after the drain was asked for; they get no job meanwhile, so each is soon without one.
        for worker in seen.of(pool.id, WorkerStatus.ACTIVE):
            if worker.job is None:
                yield actions.DrainIdleWorker(worker.id, ActionReason(Code.CLUSTER_DRAINED, pool.drained))


def end_workers(seen: Snapshot) -> Iterable[actions.Action]:
    """What is drained or failed is ended at the provider, again and again, until it is confirmed to be gone."""
    if isinstance(seen.instances, ListingFailed):
        return
    now = seen.now
    for pool in seen.pools:
        policy = pool.policy
        for worker in seen.of(pool.id, WorkerStatus.TERMINATING, WorkerStatus.ERROR):
            reason = may_end(worker, policy, now)
            if reason is None or _kept_for_diagnosis(worker, pool, seen):
                continue
            if is_gone(worker, policy, now):
                gone = ActionReason(Code.CONFIRMED_ABSENT, "its instance is gone")
                yield actions.ConfirmTerminated(worker.id, gone)
            elif worker.instance_ref is not None and (
                worker.end_asked_at is None or now - worker.end_asked_at > policy.end_again_after
            ):
                yield actions.EndInstance(worker.id, worker.instance_ref, reason)


def _drain_idle(pool: PoolSnapshot, seen: Snapshot) -> Iterator[actions.Action]:
    """The longest idle go first. Only workers without a job are taken, and never below what is kept."""
    active = list(seen.of(pool.id, WorkerStatus.ACTIVE))
    policy, wanted = pool.policy, wanted_workers(pool, seen)
    keep, usual = wanted.keep, min(policy.idle_timeout, wanted.idle_limit or policy.idle_timeout)
    surplus = len(active) - max(keep, min(policy.min_workers, policy.max_workers))
    if surplus <= 0:
        return
    # A new one has its time to find work; one that somebody started manually is theirs to stop.
    settled = seen.now - policy.scale_down_grace
    idle = [
        each
        for each in active
        if each.job is None and each.instance_name is not None and each.entered_state_at <= settled
    ]
    idle.sort(key=_idle_since)
    for index, worker in enumerate(idle[:surplus]):
        over = index < len(active) - policy.max_workers
        limit = policy.overcapacity_idle_timeout if over else usual
        idle_for = seen.now - seen.since(_idle_since(worker))
        if idle_for > limit:
            numbers = {"idle_s": idle_for.total_seconds(), "limit_s": limit.total_seconds()}
            reason = ActionReason(
                Code.IDLE, "idle, and more than are wanted", {**numbers, "active": len(active), "keep": keep}
            )
            yield actions.DrainIdleWorker(worker.id, reason)


def _idle_since(worker: WorkerSnapshot) -> datetime:
    return worker.idle_since or worker.entered_state_at


def may_end(worker: WorkerSnapshot, policy: FleetPolicy, now: datetime) -> ActionReason | None:
    if worker.status is WorkerStatus.ERROR:
        return ActionReason(Code.CLEAN_UP, "it has failed")
    if worker.job is None:
        return ActionReason(Code.DRAINED, "it holds no job any more")
    since = now - worker.entered_state_at
    if since <= policy.shutdown_grace:
        return None
    numbers = {"draining_s": since.total_seconds(), "grace_s": policy.shutdown_grace.total_seconds()}
    return ActionReason(Code.GRACE_EXPIRED, "its job did not end within the grace period", numbers)


def _kept_for_diagnosis(worker: WorkerSnapshot, pool: PoolSnapshot, seen: Snapshot) -> bool:
    """The machine of a failed worker, while it is there, its grace lasts and nobody needs its place."""
    policy = pool.policy
    failed = worker.status is WorkerStatus.ERROR and worker.error_code not in _NO_FAILURE
    over = seen.now - worker.entered_state_at >= policy.error_grace
    if not failed or over or worker.instance_ref is None or worker.absent_since or worker.end_asked_at:
        return False
    going = (WorkerStatus.ERROR, WorkerStatus.TERMINATING)
    usable = seen.alive(pool.id) - sum(1 for _ in seen.of(pool.id, *going))
    full = seen.alive(pool.id) >= policy.max_workers
    return not (full and (pool.queued > 0 or usable < policy.min_workers))


def is_gone(worker: WorkerSnapshot, policy: FleetPolicy, now: datetime) -> bool:
    """Listings have lacked it long enough: not so long where we asked for its end, longer where we never saw it."""
    if worker.instance_name is None:
        return True
    if worker.absent_since is None:
        return False
    if worker.instance_ref is None or worker.end_asked_at is None:
        return now - worker.absent_since > policy.absence_window
    # A young instance may be missing from every answer, and there all the same, until it has shown itself
    # once.
    shown = any((worker.last_heartbeat, worker.idle_since, worker.listed_at, policy.exact_listings))
    may_be_overlooked = not shown and now - worker.created_at <= policy.absence_window
    if may_be_overlooked:
        return False
    return now - max(worker.absent_since, worker.end_asked_at) > policy.confirm_window
