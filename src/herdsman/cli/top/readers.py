"""One thing looked at closely: a job, a worker, the jobs of a queue. Each reads all that its page shows."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from rich.table import Table as Letter
from rich.text import Text

from herdsman.cli.top.letters import job_text, step_text, worker_text
from herdsman.cli.top.rows import held_table, job_table
from herdsman.cli.top.table import Aim, JobAim, QueueAim, StepAim, Table, WorkerAim
from herdsman.cli.top.words import clean, ink
from herdsman.client import Client, calls, dashboard_calls
from herdsman.core.states import JOB

KEPT_LINES = 200
MOST_LOG_PAGES = 20
"""Read at one time; the rest of a long log comes a second later."""
MOST_JOBS = 200


@dataclass(frozen=True, slots=True)
class Look:
    title: Text
    text: Letter | None = None
    table: Table | None = None
    aim: Aim | None = None
    """What the whole page is about."""


Reader = Callable[[], Look]
Now = Callable[[], datetime]


def reader(aim: Aim, client: Client, now: Now) -> Reader:
    match aim:
        case JobAim(job_id):
            return JobReader(client, job_id, now)
        case WorkerAim(worker_id):
            return WorkerReader(client, worker_id, now)
        case QueueAim():
            return QueueReader(client, aim, now)
        case StepAim(step):
            return lambda: Look(ink("a decision of the control loop", "bold"), step_text(step, now()))


@dataclass(slots=True)
class JobReader:
    client: Client
    job_id: str
    now: Now
    _since: str | None = None
    _lines: deque[str] = field(default_factory=lambda: deque[str](maxlen=KEPT_LINES))

    def __call__(self) -> Look:
        job = self.client.send(calls.job(self.job_id))
        why, tries = (
            self.client.send(dashboard_calls.why("job", self.job_id)),
            self.client.send(calls.attempts(self.job_id)).attempts,
        )
        eta = None if job.status in JOB.terminal else self.client.send(dashboard_calls.eta(self.job_id))
        self._read_log()
        title = ink("job ", "bold") + ink(clean(self.job_id), "bold cyan")
        return Look(
            title, job_text(job, why, tries, eta, tuple(self._lines), self.now()), aim=JobAim(self.job_id)
        )

    def _read_log(self) -> None:
        for _ in range(MOST_LOG_PAGES):
            page = self.client.send(calls.logs(self.job_id, self._since))
            self._since = page.next
            self._lines.extend(line for piece in page.pieces for line in piece.lines)
            if page.ended or not page.pieces:
                return


@dataclass(frozen=True, slots=True)
class WorkerReader:
    client: Client
    worker_id: str
    now: Now

    def __call__(self) -> Look:
        herd, why = (
            self.client.send(dashboard_calls.herd()),
            self.client.send(dashboard_calls.why("worker", self.worker_id)),
        )
        worker = next((each for each in herd.workers if each.worker_id == self.worker_id), None)
        held = () if worker is None else worker.jobs
        return Look(
            ink("worker ", "bold") + ink(clean(self.worker_id), "bold cyan"),
            worker_text(worker, why, self.now()),
            held_table(held, self.now()),
            WorkerAim(self.worker_id, tuple(job.job_id for job in held)),
        )


@dataclass(frozen=True, slots=True)
class QueueReader:
    client: Client
    queue: QueueAim
    now: Now

    def __call__(self) -> Look:
        jobs = self.client.send(calls.jobs(kind=self.queue.type, pool=self.queue.pool, limit=MOST_JOBS)).jobs
        title = ink("jobs of type ", "bold") + ink(clean(self.queue.type), "bold cyan")
        where = ink(f" in pool {clean(self.queue.pool)}, newest first")
        return Look(title + where, table=job_table(jobs, self.now()))
