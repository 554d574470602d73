"""Starting workers that have shown they can work become active."""

from collections.abc import Iterable

from herdsman.core.actions import Action, PromoteWorker
from herdsman.core.findings import Code, Finding
from herdsman.core.fleet import SeenWorker, Snapshot
from herdsman.core.policy import FleetPolicy, Promotion
from herdsman.core.states import WorkerState


def promote(seen: Snapshot) -> Iterable[Action]:
    for pool in seen.pools:
        for worker in seen.of(pool.id, WorkerState.SPAWNING):
            why = _proof(worker, seen, pool.policy)
            if why is not None:
                yield PromoteWorker(worker.id, why)


def _proof(worker: SeenWorker, seen: Snapshot, policy: FleetPolicy) -> Finding | None:
    # A heartbeat from before its creation belongs to somebody else who had the name; an old one speaks for nobody.
    since = max(worker.created_at, seen.now - policy.promoting_beat)
    beats = worker.last_heartbeat is not None and worker.last_heartbeat >= since
    rule = policy.promotion
    match rule:
        case Promotion.POD if seen.runs(worker):
            return Finding(Code.INSTANCE_RUNNING, "its instance is running")
        case Promotion.HEARTBEAT if beats:
            return Finding(Code.HEARTBEAT_SEEN, "it sent a heartbeat")
        case Promotion.READY if beats and worker.ready and worker.gpu_seen:
            return Finding(Code.READY, "it reported a GPU and is ready for jobs")
        case _ if rule is not Promotion.POD and (worker.job is not None or worker.jobs_done > 0):
            return Finding(Code.FIRST_TASK, "it took its first job")
        case _:
            return None
