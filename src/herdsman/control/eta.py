"""When a job will start and end, from what its type, its pool and its workers did lately."""

from dataclasses import dataclass

from herdsman.control.services import Services
from herdsman.core.eta import Guess, Line, finish_of, rest_of, start_of
from herdsman.core.holds import ALL
from herdsman.core.model import Job, JobId
from herdsman.core.states import HELD, JOB, JobState, WorkerState
from herdsman.store import holds, jobs, pace, sight, tally
from herdsman.store.database import Tx
from herdsman.store.pace import Pace
from herdsman.wire.dashboard import EtaOut, SpanOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    basis: str
    sample: int = 0
    position: int | None = None
    start: Guess | None = None
    finish: Guess | None = None


def eta(services: Services, job_id: JobId) -> EtaOut:
    job, found = services.database.read(lambda tx: _look(tx, job_id))
    return EtaOut(
        job_id=job_id,
        status=job.state,
        position=found.position,
        start=_span(found.start),
        finish=_span(found.finish),
        basis=found.basis,
        sample=found.sample,
    )


def _look(tx: Tx, job_id: JobId) -> tuple[Job, Outlook]:
    job = jobs.get(tx, job_id)
    if job.state in JOB.terminal:
        return job, Outlook(basis=f"it has ended as {job.state}")
    took = pace.took(tx, job.type)
    return job, _running(tx, job, took) if job.state in HELD else _waiting(tx, job, took)


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


def _waiting(tx: Tx, job: Job, took: Pace) -> Outlook:
    queued, sample = job.state is JobState.PENDING, len(took.seconds)
    # One that waits for its time comes after whatever is queued now.
    ahead = jobs.ahead_of(tx, job.job_id) if queued else tally.depths(tx).get(job.pool, 0)
    position = ahead + 1 if queued else None
    stopped = _stopped(tx, job)
    if stopped is not None:
        return Outlook(basis=stopped, sample=sample, position=position)
    line = _line(tx, job, ahead)
    boots = pace.boots(tx, job.pool) if line.workers == 0 else Pace((), own=True)
    start = start_of(line, took.seconds, boots.seconds)
    return Outlook(
        basis=_basis(job, line, took, boots),
        sample=sample,
        position=position,
        start=start,
        finish=finish_of(start, took.seconds),
    )


def _line(tx: Tx, job: Job, ahead: int) -> Line:
    here = [each for each in sight.see_workers(tx) if each.pool == job.pool]
    active = [each for each in here if each.state is WorkerState.ACTIVE]
    return Line(
        ahead=ahead,
        workers=len(active),
        free=sum(1 for each in active if each.job is None),
        coming=sum(1 for each in here if each.state is WorkerState.SPAWNING),
        delay=max(0.0, (job.run_at - tx.now()).total_seconds()),
    )


def _stopped(tx: Tx, job: Job) -> str | None:
    scopes = (ALL, f"pool:{job.pool}", f"type:{job.type}")
    held = next((each for each in holds.standing(tx).holds if each.scope in scopes), None)
    if held is None:
        return None
    why = f" ({held.why})" if held.why else ""
    return f"{held.scope.replace(':', ' ')} is stopped{why}: nobody knows for how long; see: herdsman holds"


def _basis(job: Job, line: Line, took: Pace, boots: Pace) -> str:
    said = [f"{line.ahead} jobs before it", _workers(job, line, boots), _sample(job, took)]
    if line.delay > 0:
        said.insert(0, f"its time comes in {line.delay:.0f} s")
    return "; ".join(said)


def _workers(job: Job, line: Line, boots: Pace) -> str:
    if line.workers:
        return f"{line.workers} active workers of pool {job.pool}, {line.free} of them free"
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
