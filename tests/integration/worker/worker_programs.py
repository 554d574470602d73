"""A whole worker on jobs in memory: a real supervisor, a real handler's process, real signals."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

from herdsman.ids import JobId
from herdsman.jobs.model import JobPolicy, NewJob, RetryPolicy
from herdsman.jobs.protocol import Load, to_variables
from herdsman.ports import SystemClock
from herdsman.settings.environment import harmless_environment
from herdsman.states import JobStatus
from herdsman.worker.handler_pool import HandlerPool
from herdsman.worker.handler_process import HandlerChild
from herdsman.worker.heartbeat import Keeper
from herdsman.worker.registry import Sources
from herdsman.worker.stop_rules import Limits, WorkerExit
from herdsman.worker.supervisor import Supervisor
from tests.worker_queue import BreakableQueue, StoredJob, StoredJobs

ROOT = Path(__file__).parents[3]
HANDLERS = Sources(modules=("tests.integration.worker.handlers",), paths=(str(ROOT),))
ENDS = (JobStatus.DONE, JobStatus.DEAD_LETTER, JobStatus.CANCELLED)
PATIENCE_S = 60.0
ONCE = JobPolicy(max_attempts=1, retry=RetryPolicy(base=timedelta(milliseconds=10), jitter=0))


@dataclass
class WorkerSite:
    sources: Sources = HANDLERS
    stop_grace: float = 30
    max_jobs: int | None = None
    policy: JobPolicy = ONCE
    said: list[str] = field(default_factory=list[str])
    children: list[HandlerChild] = field(default_factory=list[HandlerChild])

    def __post_init__(self) -> None:
        self.clock = SystemClock()
        self.jobs = StoredJobs(self.clock, self.policy)
        self.queue = BreakableQueue(self.jobs)
        self.warm = HandlerPool(launch=self._launch, clock=self.clock, say=self.said.append, max_jobs=self.max_jobs)
        self.keeper = Keeper(
            self.queue,
            self.clock,
            timedelta(milliseconds=50),
            lambda: None,
            self.said.append,
            self.warm.model_state,
        )
        limits = Limits(
            self_fence=timedelta(seconds=25),
            drain_grace=timedelta(seconds=60),
            stop_grace=timedelta(seconds=self.stop_grace),
        )
        self.supervisor = Supervisor(
            queue=self.queue,
            keeper=self.keeper,
            clock=self.clock,
            limits=limits,
            warm=self.warm,
            say=self.said.append,
            wait=timedelta(milliseconds=200),
            pause=timedelta(milliseconds=20),
        )

    def submit(self, kind: str, payload: object = None, **wanted: Any) -> JobId:
        asked: dict[str, Any] = {"type": kind, "payload": payload, "max_attempts": 1, **wanted}
        return self.jobs.submit(NewJob(**asked))

    def run(self, meanwhile: Callable[[], None] = lambda: None) -> WorkerExit:
        """Works until every job has ended; `meanwhile` runs beside it."""
        failed: list[BaseException] = []

        def watch() -> None:
            try:
                meanwhile()
                eventually(lambda: all(job.status in ENDS for job in self.jobs.all()))
            except BaseException as error:  # noqa: BLE001  raised below, in the test's own thread
                failed.append(error)
            self.supervisor.drain()
            if failed:
                self.supervisor.drain()

        watcher = Thread(target=watch)
        watcher.start()
        parted = self.supervisor.run()
        watcher.join()
        if failed:
            raise failed[0]
        return parted

    def one(self, kind: str, payload: object = None, **wanted: Any) -> StoredJob:
        job_id = self.submit(kind, payload, **wanted)
        self.run()
        return self.jobs.job(job_id)

    def working(self, job_ids: Sequence[JobId]) -> bool:
        return all(self.jobs.job(each).progress is not None for each in job_ids)

    def _launch(self, load: Load) -> HandlerChild:
        environment = harmless_environment() | to_variables(load)
        child = HandlerChild(self.sources, environment, say=self.said.append)
        self.children.append(child)
        return child


def eventually(holds: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"
