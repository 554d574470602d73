"""What is asked of the server, all of one moment together, and the tables made of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.text import Text

from herdsman.cli.top.text import (
    Column,
    JobAim,
    QueueAim,
    Row,
    StepAim,
    Table,
    WorkerAim,
    bar,
    blocks,
    clean,
    count,
    ink,
    load,
    middle,
    span,
    state,
    trend,
)
from herdsman.client import Client, calls
from herdsman.fleet.wire import (
    GpuBarOut,
    HeldOut,
    HerdOut,
    HerdWorkerOut,
    OverviewOut,
    QueueOut,
    SeriesOut,
    StepOut,
)
from herdsman.jobs.wire import JobOut
from herdsman.states import HELD, JobState

MOST_JOBS = 50


@dataclass(frozen=True, slots=True)
class Choice:
    """Which jobs are listed."""

    name: str
    states: tuple[JobState, ...] = ()


CHOICES = (
    Choice("all"),
    Choice("waiting", (JobState.PENDING, JobState.SCHEDULED)),
    Choice("running", HELD),
    Choice("failed", (JobState.FAILED, JobState.DEAD_LETTER)),
)


@dataclass(frozen=True, slots=True)
class Seen:
    overview: OverviewOut
    herd: HerdOut
    jobs: Sequence[JobOut]
    choice: Choice


def look(client: Client, choice: Choice = CHOICES[0]) -> Seen:
    jobs = client.send(calls.jobs(statuses=choice.states, limit=MOST_JOBS)).jobs
    return Seen(
        overview=client.send(calls.overview()),
        herd=client.send(calls.herd()),
        jobs=jobs,
        choice=choice,
    )


TREND = 24
_BAR = 8
_SHORT_ID = 11
_POOL = Column("POOL", 9, 20)
_AGE = Column("AGE", 4, right=True)

_QUEUE = (
    Column("QUEUE", 20, 40),
    Column("POOL", 16, 30),
    Column("JOBS", 6, right=True),
    Column("OLDEST", 7, right=True),
    Column("LAST HOUR", TREND),
)
_WORKERS = (
    Column("WORKER", 13, 50, is_id=True),
    _POOL,
    Column("STATE", 11),
    Column("GPU MEMORY", 16),
)
_DECISIONS = (Column("AGO", 4, right=True), Column("", 4, right=True), Column("DECISION", 40))


def queue_table(seen: Seen) -> Table:
    rows = tuple(_queue(each, seen.overview.series) for each in seen.overview.queue)
    return Table(_QUEUE, rows, "nothing waits; submit jobs with: herdsman submit demo --count 20")


def _queue(each: QueueOut, series: SeriesOut) -> Row:
    past = series.queued.get(each.type, ()) if series.by == "type" else ()
    cells = (
        ink(clean(each.type)),
        ink(clean(each.pool)),
        ink(count(each.queued), "bold"),
        ink(span(each.oldest_s), "yellow"),
        ink(trend(past, TREND), "cyan"),
    )
    return Row(f"{each.type} {each.pool}", cells, QueueAim(each.type, each.pool))


def worker_table(seen: Seen) -> Table:
    rows, more = tuple(_worker(each) for each in seen.herd.workers), seen.herd.more
    last = Column(f"JOB ({more} workers more)" if more else "JOB", 26)
    return Table((*_WORKERS, last), rows, "no workers; they come when jobs wait, see: herdsman plan")


def _worker(each: HerdWorkerOut) -> Row:
    cells = (
        ink(clean(each.worker_id)),
        ink(clean(each.pool)),
        state(each.status),
        gpu_memory(each.gpus),
        _work(each),
    )
    return Row(each.worker_id, cells, WorkerAim(each.worker_id, tuple(job.job_id for job in each.jobs)))


def gpu_memory(gpus: Sequence[GpuBarOut]) -> Text:
    """One GPU as a bar; of several each is a block, and the numbers are those of all."""
    if not gpus:
        return ink("-", "dim")
    used, total = sum(each.used_mb for each in gpus), max(1, sum(each.total_mb for each in gpus))
    fullest = max(_fraction(each) for each in gpus)
    if len(gpus) == 1:
        drawn = bar(fullest, _BAR, load(fullest))
    else:
        drawn = ink(blocks([_fraction(each) for each in gpus[:_BAR]]).ljust(_BAR), load(fullest))
    return drawn + ink(f" {used / 1024:.0f}/{total / 1024:.0f}G")


def _fraction(gpu: GpuBarOut) -> float:
    return gpu.used_mb / max(1, gpu.total_mb)


def _work(each: HerdWorkerOut) -> Text:
    if not each.jobs:
        return ink(clean(each.error), "red") if each.error else ink(clean(each.reason), "dim")
    first, *others = each.jobs
    more = ink(f"+{len(others)} ", "bold") if others else Text()
    return more + _held(first)


def _held(job: HeldOut) -> Text:
    return _progress(job.progress) + ink(
        f"{clean(job.type)} {middle(clean(job.job_id), _SHORT_ID)} {clean(job.progress_note or '')}"
    )


def _progress(done: float | None) -> Text:
    return Text() if done is None else bar(done, 5) + ink(f"{done:4.0%} ")


def held_table(jobs: Sequence[HeldOut], now: datetime) -> Table:
    columns = (
        Column("JOB", 24, 40, is_id=True),
        Column("STATE", 11),
        _AGE,
        Column("PROGRESS, TYPE, NOTE", 30),
    )
    rows = tuple(
        Row(
            each.job_id,
            (
                ink(clean(each.job_id)),
                state(each.status),
                _age(each.since, now),
                (_progress(each.progress) + ink(f"{clean(each.type)} {clean(each.progress_note or '')}")),
            ),
            JobAim(each.job_id),
        )
        for each in jobs
    )
    return Table(columns, rows, "it holds no job")


def job_table(jobs: Sequence[JobOut], now: datetime, choice: Choice = CHOICES[0]) -> Table:
    title = "JOB" if choice == CHOICES[0] else f"JOB ({choice.name})"
    columns = (
        Column(title, 16, 36, is_id=True),
        Column("TYPE", 12, 24),
        Column("STATE", 11),
        _AGE,
        Column("PROGRESS, OR WHY", 30),
    )
    nothing = "no jobs yet; submit one with: herdsman submit demo"
    empty = nothing if choice == CHOICES[0] else f"no jobs are {choice.name}; s shows others"
    return Table(columns, tuple(_job(each, now) for each in jobs), empty)


def _job(each: JobOut, now: datetime) -> Row:
    cells = (
        ink(clean(each.job_id)),
        ink(clean(each.type)),
        state(each.status),
        _age(each.created_at, now),
        _standing(each),
    )
    return Row(each.job_id, cells, JobAim(each.job_id))


def _standing(each: JobOut) -> Text:
    if each.status in HELD:
        return _progress(each.progress) + ink(clean(each.progress_note or each.reason))
    if each.last_error:
        return ink(clean(each.last_error), "red")
    return ink(clean(each.admission or each.reason), "dim")


def _age(since: datetime, now: datetime) -> Text:
    return ink(span((now - since).total_seconds()))


def decision_table(seen: Seen) -> Table:
    rows = tuple(_step(each, seen.overview.now) for each in seen.overview.last_decisions)
    return Table(_DECISIONS, rows, "nothing was decided yet")


def _step(each: StepOut, now: datetime) -> Row:
    times = ink(f"{each.times}x" if each.times > 1 else "", "dim")
    words = ink(clean(each.words), "" if each.done else "yellow")
    # Without its cycle, which is another one every time that the same is decided again.
    key = f"{each.action} {each.about} {each.code} {each.done}"
    return Row(key, (_age(each.at, now), times, words), StepAim(each))


def tables(seen: Seen) -> tuple[Table, Table, Table, Table]:
    """From the top of the screen to its bottom."""
    jobs = job_table(seen.jobs, seen.overview.now, seen.choice)
    return queue_table(seen), worker_table(seen), jobs, decision_table(seen)
