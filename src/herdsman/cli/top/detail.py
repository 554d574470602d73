"""One thing looked at closely: a job, a worker, the jobs of a queue; what is read, and how it is written."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rich.table import Table as Letter
from rich.text import Text

from herdsman.cli.top.rows import gpu_memory, held_table, job_table
from herdsman.cli.top.text import (
    Aim,
    JobAim,
    QueueAim,
    StepAim,
    Table,
    WorkerAim,
    bar,
    clean,
    ink,
    load,
    money,
    span,
    state,
)
from herdsman.client import Client, calls
from herdsman.explain.wire import EtaOut, WhyOut
from herdsman.fleet.wire import GpuBarOut, HerdWorkerOut, StepOut
from herdsman.jobs.wire import AttemptOut, JobDetail
from herdsman.states import JOB

SHOWN_LINES = 40
_NAMES = 7


def job_text(
    job: JobDetail,
    why: WhyOut,
    tries: Sequence[AttemptOut],
    eta: EtaOut | None,
    log: Sequence[str],
    now: datetime,
) -> Letter:
    tried = f"attempt {job.attempts - job.interruptions} of {job.max_attempts}"
    about = f"  {clean(job.type)} in pool {clean(job.pool)}, {tried}, {_ago(job.created_at, now)} old"
    job_line = state(job.status) + ink(about)
    return _letter(
        ("STATE", [job_line, *_progress(job)]),
        ("ERROR", [ink(clean(job.last_error), "red")] if job.last_error else ()),
        ("WHY", (ink(clean(each)) for each in why.because)),
        ("WHEN", () if eta is None else _when(eta)),
        ("TRIES", (_attempt(each, now) for each in tries)),
        ("STEPS", _steps(why)),
        ("LOG", (ink(clean(each.expandtabs())) for each in log[-SHOWN_LINES:])),
    )


def _progress(job: JobDetail) -> list[Text]:
    if job.progress is None:
        return []
    return [bar(job.progress, 40) + ink(f" {job.progress:4.0%}  {clean(job.progress_note or '')}")]


def _when(eta: EtaOut) -> Iterable[Text]:
    if eta.position is not None:
        yield ink(f"number {eta.position} in the line of its pool")
    for what, guess in (("starts", eta.start), ("ends", eta.finish)):
        if guess is not None:
            yield ink(f"{what} in {span(guess.p50)} (half of the times), {span(guess.p80)} (four of five)")
    yield ink(clean(eta.basis), "dim")


def _attempt(each: AttemptOut, now: datetime) -> Text:
    end = each.outcome or f"goes on for {_ago(each.claimed_at, now)}"
    error = ink(f": {clean(each.error)}", "red") if each.error else Text()
    return ink(f"{each.attempt:>2} on {clean(each.worker_id)}, {end}") + error


def worker_text(worker: HerdWorkerOut | None, why: WhyOut, now: datetime) -> Letter:
    return _letter(
        ("STATE", [state(why.state)] if worker is None else _worker_lines(worker, now)),
        ("WHY", (ink(clean(each)) for each in why.because)),
        ("GPUS", () if worker is None else (_gpu(each) for each in worker.gpus)),
        ("STEPS", _steps(why)),
    )


def _worker_lines(worker: HerdWorkerOut, now: datetime) -> list[Text]:
    beat = "never" if worker.last_heartbeat is None else f"{_ago(worker.last_heartbeat, now)} ago"
    price = "" if worker.cost_per_hour is None else f", {money(worker.cost_per_hour)}/h"
    machine = " on ".join(clean(each) for each in (worker.instance_type, worker.node_id) if each)
    lines = [
        state(worker.status) + ink(f" for {_ago(worker.since, now)}, {clean(worker.reason)}"),
        ink(f"pool {clean(worker.pool)}, {_ago(worker.created_at, now)} old, last heartbeat {beat}"),
        ink(f"{machine or 'a machine of unknown type'}{price}"),
    ]
    return [*lines, ink(clean(worker.error), "red")] if worker.error else lines


def _gpu(gpu: GpuBarOut) -> Text:
    busy = "" if gpu.busy_pct is None else f"  {gpu.busy_pct:.0f}% busy"
    place = "-" if gpu.index is None else str(gpu.index)
    fraction = gpu.used_mb / max(1, gpu.total_mb)
    drawn = bar(fraction, 20, load(fraction)) + gpu_memory([gpu])[8:]
    return ink(f"{place:>2} ") + drawn + ink(f"{busy}  {clean(gpu.name or gpu.uuid)}")


def step_text(step: StepOut, now: datetime) -> Letter:
    often = f", the same {step.times} times in a row" if step.times > 1 else ""
    numbers = (ink(f"{clean(name)}  {clean(str(value))}") for name, value in step.numbers.items())
    done = ink("done" if step.done else "not done", "green" if step.done else "yellow")
    return _letter(
        ("WHAT", [ink(clean(step.words))]),
        ("WHEN", [ink(f"{_ago(step.at, now)} ago, cycle {step.cycle}{often}")]),
        ("WHY", [ink(f"{clean(step.code)}: {clean(step.why)}")]),
        ("NUMBERS", numbers),
        ("OUTCOME", [done + ink(f" {clean(step.said)}")]),
    )


def _steps(why: WhyOut) -> Iterable[Text]:
    for step in why.history:
        space = " " * (13 - len(step.to_status))
        what = ink(f"{space}{clean(step.reason):<18} {clean(step.actor)}")
        yield ink(f"{step.ts:%H:%M:%S}  ") + state(step.to_status) + what


def _letter(*parts: tuple[str, Iterable[Text]]) -> Letter:
    """A name at the left of each part; one without lines is left out."""
    letter = Letter.grid(padding=(0, 1))
    letter.add_column(style="bold", width=_NAMES)
    letter.add_column(ratio=1, overflow="fold")
    for name, lines in parts:
        text = ink("\n").join(lines)
        if text:
            letter.add_row(name, text)
    return letter


def _ago(then: datetime, now: datetime) -> str:
    return span((now - then).total_seconds())


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
            self.client.send(calls.why("job", self.job_id)),
            self.client.send(calls.attempts(self.job_id)).attempts,
        )
        eta = None if job.status in JOB.terminal else self.client.send(calls.eta(self.job_id))
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
            self.client.send(calls.herd()),
            self.client.send(calls.why("worker", self.worker_id)),
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
