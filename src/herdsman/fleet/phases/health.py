"""Promotes workers that are ready, fails those that cannot work, and takes their jobs back.

A failed listing is no evidence against a worker; missing heartbeats and reports are.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from herdsman.fleet import actions
from herdsman.fleet.actions import ActionReason, Code
from herdsman.fleet.model import FleetPolicy, InstanceStatus, Promotion
from herdsman.fleet.phases.scale import is_gone, may_end
from herdsman.fleet.snapshot import ListingFailed, PoolSnapshot, Snapshot, WorkerSnapshot
from herdsman.jobs.model import FailureClass
from herdsman.states import WorkerStatus


def check_health(seen: Snapshot) -> Iterable[actions.Action]:
    if isinstance(seen.instances, ListingFailed):
        return
    for pool in seen.pools:
        for worker in seen.of(pool.id, WorkerStatus.SPAWNING):
            failure = _spawning(worker, pool, seen)
            if failure is not None:
                yield actions.FailWorker(worker.id, failure)
        # Workers that may have failed; the others, nearly all of them, are healthy.
        heard, moved = seen.now - pool.policy.heartbeat_timeout, seen.now - pool.policy.stuck_timeout
        suspects = [
            each
            for each in seen.of(pool.id, WorkerStatus.ACTIVE)
            if (each.last_heartbeat or each.entered_state_at) < heard
            or (each.job is not None and each.job.since < moved)
            or each.absent_since is not None
            or each.gpu_fault is not None
            or _preparing(each)
            or each.failed_in_a_row >= pool.policy.max_failed_in_a_row
        ]
        for worker in suspects:
            failure = _failure(worker, pool, seen)
            left = None if failure is not None else _left(worker, pool, seen)
            if failure is not None:
                yield actions.FailWorker(worker.id, failure)
            elif left is not None:
                yield actions.DrainIdleWorker(worker.id, left)


def warn(seen: Snapshot) -> Iterable[actions.Action]:
    """A stale report of a GPU is worth a note, and nothing more; so is an idle worker while jobs wait."""
    for pool in seen.pools:
        fresh = seen.now - pool.policy.vram_stale_after
        idle = seen.now - pool.policy.not_claiming_timeout
        for worker in seen.of(pool.id, WorkerStatus.ACTIVE):
            if worker.vram_at is not None and worker.vram_at < fresh:
                age, limit = seen.now - worker.vram_at, pool.policy.vram_stale_after
                text = f"Stale VRAM data ({age.total_seconds():.0f}s old)"
                numbers = {"age_s": age.total_seconds(), "limit_s": limit.total_seconds()}
                yield actions.Note(worker.id, ActionReason(Code.STALE_VRAM, text, numbers))
            if pool.queued and worker.job is None and worker.idle_since and worker.idle_since < idle:
                # No failure: the jobs may be of a type that it does not know (J1).
                waited = (seen.now - worker.idle_since).total_seconds()
                text = f"Idle for {waited:.0f}s while {pool.queued} jobs wait: can it run their types?"
                most = pool.policy.not_claiming_timeout.total_seconds()
                numbers = {"idle_s": waited, "limit_s": most, "queued": pool.queued}
                yield actions.Note(worker.id, ActionReason(Code.GPU_READY_NOT_CLAIMING, text, numbers))


def _spawning(worker: WorkerSnapshot, pool: PoolSnapshot, seen: Snapshot) -> ActionReason | None:
    """Each step of a start has its own limit, and its own words when it takes too long."""
    policy, age = pool.policy, seen.now - seen.since(worker.created_at)
    if (ended := _ended(worker, policy, seen)) is not None:
        return ActionReason(Code.INSTANCE_ENDED, f"Its machine ended during its start: {ended}")
    if worker.last_heartbeat is None:
        registered = worker.created_at if worker.instance_name is None else worker.registered_at
        if registered is not None:
            due = seen.now - seen.since(registered)
            return _late(due, policy.promoting_beat, Code.BOOT_TIMEOUT, "Registered, and sent no heartbeat")
        if worker.instance_ref is None:
            missing = timedelta(0) if worker.absent_since is None else seen.now - worker.absent_since
            return _late(missing, policy.absence_window, Code.NO_INSTANCE, "No Runpod ID")
        if seen.runs(worker) and policy.script_timeout is not None:
            text = "Its start-up script takes too long: no heartbeat yet"
            return _late(age, policy.script_timeout, Code.SCRIPT_RUNNING_TIMEOUT, text)
        if seen.runs(worker):
            return _late(age, policy.boot_timeout, Code.BOOT_TIMEOUT, "No heartbeat since its machine runs")
        return _late(age, policy.spawning_timeout, Code.SPAWNING_TIMEOUT, "Spawning timeout")
    if worker.gpu_fault is not None:
        return ActionReason(Code.GPU_BROKEN, f"GPU broken: {worker.gpu_fault}")
    if policy.require_gpu and worker.gpu_seen is False:
        return _late(age, policy.gpu_timeout, Code.GPU_NOT_DETECTED, "No GPU detected")
    silence = _silence(worker, seen)
    if silence > policy.heartbeat_timeout:
        return _late(silence, policy.heartbeat_timeout, Code.BOOT_TIMEOUT, "Fell silent during its start")
    return _late(age, policy.ready_timeout, Code.STARTUP_NEVER_READY, "Never became ready for jobs")


_STOPPED = {
    InstanceStatus.STOPPED: "the provider says that it stopped",
    InstanceStatus.BROKEN: "the provider says that it broke",
}


def _ended(worker: WorkerSnapshot, policy: FleetPolicy, seen: Snapshot) -> str | None:
    """How the provider says that its machine is gone; None where it does not, or where a heartbeat says otherwise."""
    if worker.instance_ref is None:
        return None
    beaten, silence = worker.last_heartbeat is not None, _silence(worker, seen)
    stopped = _STOPPED.get(seen.instance_states.get(worker.instance_ref, InstanceStatus.UNKNOWN))
    if stopped is not None and (not beaten or silence > policy.promoting_beat):
        return stopped
    absent = worker.absent_since
    if absent is None or (worker.last_heartbeat is not None and worker.last_heartbeat >= absent):
        return None
    # One that was never there may only be missing from a listing that lags.
    shown = beaten or worker.listed_at is not None or policy.exact_listings
    window = policy.confirm_window if shown else policy.absence_window
    # And one that has sent heartbeats could say so itself, if it could be heard.
    missing = seen.now - (seen.since(absent) if beaten else absent)
    return "listings lack it" if missing > window else None


def _late(age: timedelta, limit: timedelta, code: Code, text: str) -> ActionReason | None:
    if age <= limit:
        return None
    return ActionReason(code, text, {"age_s": age.total_seconds(), "limit_s": limit.total_seconds()})


def _failure(worker: WorkerSnapshot, pool: PoolSnapshot, seen: Snapshot) -> ActionReason | None:
    if worker.gpu_fault is not None:
        return ActionReason(Code.GPU_BROKEN, f"GPU broken: {worker.gpu_fault}")
    if (silent := _silent(worker, pool, seen)) is not None:
        return silent
    policy, limit = pool.policy, pool.policy.max_failed_in_a_row
    if worker.job is not None:
        longest = max(policy.stuck_timeout, worker.job.timeout or timedelta(0))
        still = seen.now - seen.since(worker.job.since)
        return _late(still, longest, Code.STUCK_TASK, f"Stuck task {worker.job.key.job_id}")
    if worker.failed_in_a_row >= limit:
        active = list(seen.of(pool.id, WorkerStatus.ACTIVE))
        failing = sum(1 for each in active if each.failed_in_a_row >= limit)
        # Where most workers fail their jobs, the jobs are to blame, and new workers would fail them too.
        if 2 * failing <= len(active):
            text = f"{worker.failed_in_a_row} jobs in a row failed here, and not on other workers"
            return ActionReason(Code.FAILING_TASKS, text, {"failed": worker.failed_in_a_row, "limit": limit})
    if _preparing(worker):
        age = seen.now - worker.entered_state_at
        text = "Active, and still not ready for jobs"
        return _late(age, policy.preparing_timeout, Code.STARTUP_NEVER_READY, text)
    return None


def _silence(worker: WorkerSnapshot, seen: Snapshot) -> timedelta:
    return seen.now - seen.since(worker.last_heartbeat or worker.entered_state_at)


def _silent(worker: WorkerSnapshot, pool: PoolSnapshot, seen: Snapshot) -> ActionReason | None:
    """Silence is a failure while the worker is needed: it holds a job, or jobs are waiting."""
    silence, limit = _silence(worker, seen), pool.policy.heartbeat_timeout
    if silence <= limit:
        return None
    numbers: dict[str, actions.Number] = {
        "silence_s": silence.total_seconds(),
        "limit_s": limit.total_seconds(),
        "queued": pool.queued,
    }
    if worker.job is not None:
        text = f"Heartbeat expired while running task {worker.job.key.job_id}"
        return ActionReason(Code.STALE_HEARTBEAT_ACTIVE_TASK, text, numbers)
    if pool.queued == 0:
        return None
    if worker.last_heartbeat is None:
        text = "No heartbeat received with tasks queued"
        return ActionReason(Code.NO_HEARTBEAT_TASKS_QUEUED, text, numbers)
    return ActionReason(Code.STALE_HEARTBEAT_TASKS_QUEUED, "Heartbeat expired with tasks queued", numbers)


def _preparing(worker: WorkerSnapshot) -> bool:
    """It says so: it became active without being ready, as PROMOTION_POLICY may allow, and has had no job since."""
    return worker.ready is False and worker.job is None and worker.jobs_done == 0


def _left(worker: WorkerSnapshot, pool: PoolSnapshot, seen: Snapshot) -> ActionReason | None:
    """A worker without a machine holds no place; a silent one that nobody needs must not be paid for ever."""
    if worker.job is not None:
        return None
    silence = _silence(worker, seen)
    numbers = {"silence_s": silence.total_seconds()}
    if _ended(worker, pool.policy, seen) is not None:
        return ActionReason(Code.INSTANCE_GONE, "its instance is gone, and no job was lost", numbers)
    if silence > pool.policy.failsafe:
        return ActionReason(Code.FAILSAFE, "silent for too long, though nothing was waiting", numbers)
    return None


LOADS_HANDLERS = "it is not ready for jobs yet: it loads its handlers"


def promote(seen: Snapshot) -> Iterable[actions.Action]:
    for pool in seen.pools:
        for worker in seen.of(pool.id, WorkerStatus.SPAWNING):
            reason = _proof(worker, seen, pool.policy)
            if reason is not None:
                yield actions.PromoteWorker(worker.id, reason)
            elif worker.gpu_seen is False and (lack := _gpu_lack(worker, pool.policy)) is not None:
                yield actions.Note(worker.id, ActionReason(Code.GPU_NOT_DETECTED, lack))


def lack_of(worker: WorkerSnapshot, policy: FleetPolicy, now: datetime) -> str | None:
    """What a starting worker still has to show, in words; None when it has shown all that its pool asks for."""
    rule = policy.promotion
    if rule is Promotion.POD:
        return "its machine has not been seen running yet"
    gpu = _gpu_lack(worker, policy)
    if gpu is not None and worker.gpu_seen is False:
        return gpu
    if rule is Promotion.FIRST_TASK:
        return "it has not taken its first job yet (PROMOTION_POLICY)"
    # A heartbeat from before its creation belongs to somebody else who had the name; an old one speaks for nobody.
    if worker.last_heartbeat is None or worker.last_heartbeat < worker.created_at:
        return "it has sent no heartbeat yet"
    if worker.last_heartbeat < now - policy.promoting_beat:
        return f"its last heartbeat is {(now - worker.last_heartbeat).total_seconds():.0f} s old"
    if rule is Promotion.HEARTBEAT:
        return None
    return gpu if worker.ready else LOADS_HANDLERS


def _gpu_lack(worker: WorkerSnapshot, policy: FleetPolicy) -> str | None:
    if not policy.require_gpu or worker.gpu_seen:
        return None
    has = "has none" if worker.gpu_seen is False else "cannot tell whether it has one (ENABLE_NVML)"
    return f"pool {worker.pool} requires a GPU (REQUIRE_GPU), and this worker {has}"


def _proof(worker: WorkerSnapshot, seen: Snapshot, policy: FleetPolicy) -> ActionReason | None:
    rule = policy.promotion
    shown = lack_of(worker, policy, seen.now) is None
    match rule:
        case Promotion.POD if seen.runs(worker):
            return ActionReason(Code.INSTANCE_RUNNING, "its instance is running")
        case Promotion.HEARTBEAT if shown:
            return ActionReason(Code.HEARTBEAT_SEEN, "it sent a heartbeat")
        case Promotion.READY if shown:
            has_gpu = "reported a GPU and " if worker.gpu_seen else ""
            return ActionReason(Code.READY, f"it {has_gpu}is ready for jobs")
        case _ if rule is not Promotion.POD and (worker.job is not None or worker.jobs_done > 0):
            return ActionReason(Code.FIRST_TASK, "it took its first job")
        case _:
            return None


ENDING = (WorkerStatus.TERMINATING, WorkerStatus.ERROR, WorkerStatus.TERMINATED)


def reassign(seen: Snapshot) -> Iterable[actions.Action]:
    for pool in seen.pools:
        for worker in seen.of(pool.id, *ENDING):
            lost = worker.status is not WorkerStatus.TERMINATING
            if not lost and not isinstance(seen.instances, ListingFailed):
                ended = may_end(worker, pool.policy, seen.now) is not None
                lost = ended and is_gone(worker, pool.policy, seen.now)
            if worker.job is not None and lost:
                reason = ActionReason(Code.WORKER_FAILED, f"worker {worker.id} is {worker.status}")
                for job in (worker.job, *worker.batch):
                    heard = max(job.begun or job.since, worker.last_heartbeat or job.since)
                    # As where a claim expires: nobody could hear it, so its job is not charged (P10).
                    charged = seen.since(heard) == heard
                    kind = FailureClass.WORKER_LOST if charged else FailureClass.INTERRUPTED
                    yield actions.RequeueJob(job.key, worker.id, reason, kind)
