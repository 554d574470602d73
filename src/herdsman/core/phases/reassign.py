"""Jobs of workers that have failed go back to the queue at once."""

from collections.abc import Iterable

from herdsman.core.actions import Action, ReturnJob
from herdsman.core.findings import Code, Finding
from herdsman.core.fleet import Snapshot
from herdsman.core.states import WorkerState

_GONE = (WorkerState.ERROR, WorkerState.TERMINATED)


def reassign(seen: Snapshot) -> Iterable[Action]:
    for worker in seen.workers:
        if worker.job is not None and worker.state in _GONE:
            why = Finding(Code.WORKER_FAILED, f"worker {worker.id} is {worker.state}")
            yield ReturnJob(worker.job.key, worker.id, why)
