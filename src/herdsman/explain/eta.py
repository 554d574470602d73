"""When a job will start and end, from what its type, its pool and its workers did lately."""

from dataclasses import dataclass

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.explain.job import untold
from herdsman.explain.rules import Blocker, Guess, Line, finish_of, rest_of, start_of
from herdsman.explain.wire import BlockerOut, EtaOut, SpanOut
from herdsman.explain.workers import Around
from herdsman.fleet import stats_sql
from herdsman.fleet.stats_sql import Pace
from herdsman.ids import JobId
from herdsman.jobs import sql as jobs_sql
from herdsman.jobs.model import Job
from herdsman.states import HELD, JOB, JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    basis: str
    sample: int = 0
    position: int | None = None
    start: Guess | None = None
    finish: Guess | None = None
    blocker: Blocker | None = None
    """Why no time can be told."""


def eta(services: Services, job_id: JobId) -> EtaOut:
    job, found = services.database.read(lambda tx: _look(tx, services, job_id))
    return EtaOut(
        job_id=job_id,
        status=job.state,
        position=found.position,
        start=_span(found.start),
        finish=_span(found.finish),
        basis=found.basis,
        sample=found.sample,
        blocker=None if found.blocker is None else BlockerOut.of(found.blocker),
    )


def _look(tx: Tx, services: Services, job_id: JobId) -> tuple[Job, Outlook]:
    job = jobs_sql.get_job(tx, job_id)
    if job.state in JOB.terminal:
        return job, Outlook(basis=f"it has ended as {job.state}")
    took = stats_sql.job_durations(tx, job.type)
    if job.state in HELD:
        return job, _running(tx, job, took)
    return job, _waiting(Around(tx=tx, services=services, job=job), took)


def _running(tx: Tx, job: Job, took: Pace) -> Outlook:
    begun = job.started_at or job.claimed_at or tx.now()
    elapsed = max(0.0, (tx.now() - begun).total_seconds())
    finish = rest_of(elapsed, job.progress, took.seconds)
    if finish is None and took.seconds:
        basis = f"it has run for {elapsed:.0f} s, longer than each of {_sample(job, took)}"
    elif finish is None:
        basis = _sample(job, took)
    elif job.progress is not None:
        basis = f"it says that {job.progress:.0%} is done after {elapsed:.0f} s; compared with {_sample(job, took)}"
    else:
        basis = f"it has run for {elapsed:.0f} s; compared with {_sample(job, took)}"
    return Outlook(basis=basis, sample=len(took.seconds), finish=finish)


def _waiting(here: Around, took: Pace) -> Outlook:
    tx, job, sample = here.tx, here.job, len(took.seconds)
    queued = job.state is JobState.PENDING
    # One that waits for its time comes after whatever is queued now.
    ahead = here.ahead if queued else stats_sql.depths(tx).get(job.pool, 0)
    position = ahead + 1 if queued else None
    blocker = untold(here)
    if blocker is not None:
        basis = f"no time can be told: {blocker.short}"
        return Outlook(basis=basis, sample=sample, position=position, blocker=blocker)
    line = _line(here, ahead)
    boots = stats_sql.boot_times(tx, job.pool) if line.workers == 0 else Pace((), own=True)
    start = start_of(line, took.seconds, boots.seconds)
    return Outlook(
        basis=_basis(here, line, took, boots),
        sample=sample,
        position=position,
        start=start,
        finish=finish_of(start, took.seconds),
    )


def _line(here: Around, ahead: int) -> Line:
    """Only workers that take its type count: it does not stand in the line of the others."""
    return Line(
        ahead=ahead,
        workers=len(here.able),
        free=len(here.asking),
        coming=len(here.starting),
        delay=max(0.0, (here.job.run_at - here.tx.now()).total_seconds()),
    )


def _basis(here: Around, line: Line, took: Pace, boots: Pace) -> str:
    said = [f"{line.ahead} jobs before it", _workers(here, line, boots), _sample(here.job, took)]
    if line.delay > 0:
        said.insert(0, f"its time comes in {line.delay:.0f} s")
    return "; ".join(said)


def _workers(here: Around, line: Line, boots: Pace) -> str:
    job = here.job
    if line.workers:
        taking = "" if line.workers == len(here.active) else f" that take {job.type}"
        return f"{line.workers} active workers of pool {job.pool}{taking}, {line.free} of them free"
    coming = f"{line.coming} are starting" if line.coming else "one has to be started"
    if not boots.seconds:
        return f"no active worker in pool {job.pool}: {coming}, and no start was ever timed"
    whose = "its" if boots.own else "other pools'"
    return f"no active worker in pool {job.pool}: {coming}, timed by {len(boots.seconds)} of {whose} starts"


def _sample(job: Job, took: Pace) -> str:
    if not took.seconds:
        return "no job has been done yet that it could be compared with"
    which = f"type {job.type}" if took.own else f"any type, for none of type {job.type} was done lately"
    return f"the last {len(took.seconds)} jobs of {which}"


def _span(guess: Guess | None) -> SpanOut | None:
    return None if guess is None else SpanOut(p50=round(guess.p50, 3), p80=round(guess.p80, 3))
