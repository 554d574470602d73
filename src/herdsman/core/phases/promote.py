"""Starting workers that have shown they can work become active."""

from collections.abc import Iterable
from datetime import datetime

from herdsman.core.actions import Action, Note, PromoteWorker
from herdsman.core.findings import Code, Finding
from herdsman.core.fleet import SeenWorker, Snapshot
from herdsman.core.policy import FleetPolicy, Promotion
from herdsman.core.states import WorkerState

LOADS_HANDLERS = "it is not ready for jobs yet: it loads its handlers"


def promote(seen: Snapshot) -> Iterable[Action]:
    for pool in seen.pools:
        for worker in seen.of(pool.id, WorkerState.SPAWNING):
            why = _proof(worker, seen, pool.policy)
            if why is not None:
                yield PromoteWorker(worker.id, why)
            elif worker.gpu_seen is False and (lack := _gpu_lack(worker, pool.policy)) is not None:
                yield Note(worker.id, Finding(Code.GPU_NOT_DETECTED, lack))


def lack_of(worker: SeenWorker, policy: FleetPolicy, now: datetime) -> str | None:
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


def _gpu_lack(worker: SeenWorker, policy: FleetPolicy) -> str | None:
    if not policy.require_gpu or worker.gpu_seen:
        return None
    has = "has none" if worker.gpu_seen is False else "cannot tell whether it has one (ENABLE_NVML)"
    return f"pool {worker.pool} requires a GPU (REQUIRE_GPU), and this worker {has}"


def _proof(worker: SeenWorker, seen: Snapshot, policy: FleetPolicy) -> Finding | None:
    rule = policy.promotion
    shown = lack_of(worker, policy, seen.now) is None
    match rule:
        case Promotion.POD if seen.runs(worker):
            return Finding(Code.INSTANCE_RUNNING, "its instance is running")
        case Promotion.HEARTBEAT if shown:
            return Finding(Code.HEARTBEAT_SEEN, "it sent a heartbeat")
        case Promotion.READY if shown:
            has_gpu = "reported a GPU and " if worker.gpu_seen else ""
            return Finding(Code.READY, f"it {has_gpu}is ready for jobs")
        case _ if rule is not Promotion.POD and (worker.job is not None or worker.jobs_done > 0):
            return Finding(Code.FIRST_TASK, "it took its first job")
        case _:
            return None
