"""Jobs of workers that are lost go back to the queue at once."""

from collections.abc import Iterable

from herdsman.core.actions import Action, ReturnJob
from herdsman.core.findings import Code, Finding
from herdsman.core.fleet import SeenPool, SeenWorker, Snapshot, Unseen
from herdsman.core.phases.scale_down import is_gone, may_end
from herdsman.core.states import WorkerState

ENDING = (WorkerState.TERMINATING, WorkerState.ERROR, WorkerState.TERMINATED)


def reassign(seen: Snapshot) -> Iterable[Action]:
    for pool in seen.pools:
        for worker in seen.of(pool.id, *ENDING):
            if worker.job is not None and _lost(worker, pool, seen):
                why = Finding(Code.WORKER_FAILED, f"worker {worker.id} is {worker.state}")
                for job in (worker.job, *worker.batch):
                    yield ReturnJob(job.key, worker.id, why)


def _lost(worker: SeenWorker, pool: SeenPool, seen: Snapshot) -> bool:
    if worker.state in (WorkerState.ERROR, WorkerState.TERMINATED):
        return True
    if worker.state is not WorkerState.TERMINATING or isinstance(seen.instances, Unseen):
        return False
    ended = may_end(worker, pool.policy, seen.now) is not None
    return ended and is_gone(worker, pool.policy, seen.now)
