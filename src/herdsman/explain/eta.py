"""When a job will start and end, and what its time was spent on."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean, pstdev
from typing import Any, Literal

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.explain.job import WaitingJob, unpredictable
from herdsman.explain.wire import EtaOut, SegmentOut, SpanOut, TimelineOut
from herdsman.fleet import snapshot_sql, stats_sql
from herdsman.fleet.stats_sql import Pace
from herdsman.ids import JobId
from herdsman.jobs import sql as jobs_sql
from herdsman.jobs.model import Job
from herdsman.states import HELD, JOB, JobStatus


def eta(services: Services, job_id: JobId) -> EtaOut:
    def read(tx: Tx) -> EtaOut:
        job = jobs_sql.get_job(tx, job_id)
        if job.status in JOB.terminal:
            return _eta(job, f"the job has ended: {job.status}")
        took = stats_sql.job_durations(tx, job.type)
        if job.status in HELD:
            return _running(tx, job, took)
        return _waiting(WaitingJob(tx=tx, services=services, job=job), took)

    return services.database.read(read)


def _eta(job: Job, basis: str, start: "Guess | None" = None, finish: "Guess | None" = None, **more: Any) -> EtaOut:
    shown = [
        None if each is None else SpanOut(p50=round(each.p50, 3), p80=round(each.p80, 3)) for each in (start, finish)
    ]
    known: dict[str, Any] = {"position": None, "start": shown[0], "finish": shown[1], **more}
    return EtaOut(job_id=job.job_id, status=job.status, basis=basis, **known)


def _running(tx: Tx, job: Job, took: Pace) -> EtaOut:
    begun = job.started_at or job.claimed_at or tx.now()
    elapsed = max(0.0, (tx.now() - begun).total_seconds())
    finish = rest_of(elapsed, job.progress, took.seconds)
    if finish is None and took.seconds:
        basis = f"the job has run for {elapsed:.0f} s, longer than each of {_sample(job, took)}"
    elif finish is None:
        basis = _sample(job, took)
    elif job.progress is not None:
        basis = f"the job reports {job.progress:.0%} done after {elapsed:.0f} s; compared with {_sample(job, took)}"
    else:
        basis = f"the job has run for {elapsed:.0f} s; compared with {_sample(job, took)}"
    return _eta(job, basis, finish=finish, sample=len(took.seconds))


def _waiting(waiting: WaitingJob, took: Pace) -> EtaOut:
    tx, job = waiting.tx, waiting.job
    queued = job.status is JobStatus.PENDING
    # A job that is not due yet comes after whatever is queued now.
    ahead = waiting.ahead if queued else stats_sql.depths(tx).get(job.pool, 0)
    more: dict[str, Any] = {"sample": len(took.seconds), "position": ahead + 1 if queued else None}
    reason = unpredictable(waiting)
    if reason is not None:
        return _eta(job, f"no estimate: {reason.short}", blocker=reason, **more)
    # Only workers that take its type count: the others serve another queue.
    line = Line(
        ahead=ahead,
        workers=len(waiting.able),
        free=len(waiting.asking),
        coming=len(waiting.starting),
        delay=max(0.0, (job.run_at - tx.now()).total_seconds()),
    )
    boots = stats_sql.boot_times(tx, job.pool) if line.workers == 0 else Pace((), own=True)
    start = start_of(line, took.seconds, boots.seconds)
    finish = spread(took.seconds).after(start) if start is not None and took.seconds else None
    basis = [f"{line.ahead} jobs ahead", _workers(waiting, line, boots), _sample(job, took)]
    if line.delay > 0:
        basis.insert(0, f"the job is due in {line.delay:.0f} s")
    return _eta(job, "; ".join(basis), start, finish, **more)


def _workers(waiting: WaitingJob, line: "Line", boots: Pace) -> str:
    job = waiting.job
    if line.workers:
        taking = "" if line.workers == len(waiting.active) else f" that take {job.type}"
        return f"{line.workers} active workers of pool {job.pool}{taking}, {line.free} of them free"
    coming = f"{line.coming} are starting" if line.coming else "one has to be started"
    if not boots.seconds:
        return f"no active worker in pool {job.pool}: {coming}, and no start was ever timed"
    whose = "its" if boots.own else "other pools'"
    return f"no active worker in pool {job.pool}: {coming}, timed by {len(boots.seconds)} of {whose} starts"


def _sample(job: Job, took: Pace) -> str:
    if not took.seconds:
        return "no completed job to compare it with"
    which = f"type {job.type}" if took.own else f"any type, since none of type {job.type} was completed lately"
    return f"the last {len(took.seconds)} jobs of {which}"


NORMAL_80 = 0.8416
"""80 % of a normal distribution lie below its mean plus this many deviations."""
LEAST_PROGRESS = 0.02
"""Progress below this says nothing about the speed of a job."""


@dataclass(frozen=True, slots=True)
class Guess:
    """Seconds from now."""

    p50: float
    p80: float

    def after(self, earlier: "Guess") -> "Guess":
        return Guess(self.p50 + earlier.p50, self.p80 + earlier.p80)


NOW = Guess(0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What is between a waiting job and its start."""

    ahead: int
    workers: int
    """Active ones, busy or not."""
    free: int = 0
    coming: int = 0
    delay: float = 0.0
    """Seconds until it is due."""


def quantile(sample: Sequence[float], share: float) -> float:
    """The value below which this share of the sample lies; between two of them, in proportion."""
    assert sample, "a quantile of nothing"
    ordered = sorted(sample)
    place = share * (len(ordered) - 1)
    low, high = math.floor(place), math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(sample: Sequence[float]) -> Guess:
    return Guess(quantile(sample, 0.5), quantile(sample, 0.8))


def start_of(line: Line, took: Sequence[float], boots: Sequence[float]) -> Guess | None:
    """When a waiting job starts; None where there is nothing to estimate it from."""
    workers, free, before = line.workers, line.free, NOW
    if workers == 0:
        if not boots:
            return None
        before = spread(boots)
        workers = free = max(1, line.coming)
    behind = line.ahead - free + 1
    waiting = NOW
    if behind > 0:
        if not took:
            return None
        mean, deviation = behind * fmean(took), math.sqrt(behind) * pstdev(took)
        waiting = Guess(mean / workers, (mean + NORMAL_80 * deviation) / workers)
    # A delayed job joins the queue only when it is due; meanwhile the queue gets shorter.
    guess = waiting.after(before)
    return Guess(max(guess.p50, line.delay), max(guess.p80, line.delay))


def rest_of(elapsed: float, progress: float | None, took: Sequence[float]) -> Guess | None:
    """Of a running job: from its own progress, or from the other jobs that took longer than it has so far."""
    if progress is not None and progress >= LEAST_PROGRESS:
        rest, slow = elapsed * (1 - progress) / progress, 1.5
        if took:
            usual = spread(took)
            slow = min(3.0, usual.p80 / usual.p50) if usual.p50 > 0 else 1.0
        return Guess(rest, rest * slow)
    longer = [each - elapsed for each in took if each > elapsed]
    return spread(longer) if longer else None


HOUR = timedelta(hours=1)
MOST_ATTEMPTS = 200
What = Literal["queue", "backoff", "boot", "run", "result"]
_ORDER: Mapping[What, int] = {"queue": 0, "backoff": 1, "boot": 2, "run": 3, "result": 4}
_WAITS: Mapping[str, What] = {JobStatus.PENDING: "queue", JobStatus.SCHEDULED: "queue", JobStatus.FAILED: "backoff"}


def timeline(services: Services, job_id: JobId) -> TimelineOut:
    return services.database.read(lambda tx: _timeline(tx, job_id))


def _timeline(tx: Tx, job_id: JobId) -> TimelineOut:
    job, now = jobs_sql.get_job(tx, job_id), tx.now()
    tried = jobs_sql.list_attempts(tx, job_id)[-MOST_ATTEMPTS:]
    workers = snapshot_sql.worker_starts(tx, sorted({each.worker_id for each in tried}))
    history = jobs_sql.job_history(tx, JOB.kind, job_id)
    moves = [each for each in history if each.from_status != each.to_status]
    # From each move into a state in which it waits to the move out of it.
    ends = [*(each.ts for each in moves[1:]), None]
    found = [
        _segment(_WAITS[each.to_status], each.ts, end, now)
        for each, end in zip(moves, ends, strict=False)
        if each.to_status in _WAITS
    ]
    queued = [each for each in found if each.what == "queue"]
    for each in tried:
        worker = workers.get(each.worker_id)
        price = None if worker is None else worker["cost_per_hour"]
        known: dict[str, Any] = {"worker": each.worker_id, "attempt": each.attempt, "price": price}
        found.append(_segment("run", each.claimed_at, each.ended_at, now, outcome=each.outcome, **known))
        # The start of the worker that took it, as far as the job waited meanwhile.
        wait = next((one for one in reversed(queued) if one.begin <= each.claimed_at), None)
        if worker is not None and worker["promoted_at"] is not None and wait is not None:
            begin = max(worker["created_at"], wait.begin)
            end = min(worker["promoted_at"], each.claimed_at)
            if begin < end:
                found.append(_segment("boot", begin, end, now, **known))
    last = tried[-1] if tried else None
    if job.status is JobStatus.DONE and job.finished_at is not None and last is not None and last.ended_at:
        begin = min(last.ended_at, job.finished_at)
        found.append(_segment("result", begin, job.finished_at, now, worker=last.worker_id))
    costs = [each.cost for each in found if each.cost is not None]
    return TimelineOut(
        job_id=job.job_id,
        status=job.status,
        segments=tuple(sorted(found, key=lambda each: (each.begin, _ORDER[each.what]))),
        seconds=_seconds(job.created_at, job.finished_at or now),
        cost=round(sum(costs), 9) if costs else None,
    )


def _segment(
    what: What, begin: datetime, end: datetime | None, now: datetime, *, price: Any = None, **known: Any
) -> SegmentOut:
    seconds = _seconds(begin, end or now)
    cost = None if price is None else round(float(price) * seconds / HOUR.total_seconds(), 9)
    return SegmentOut.model_validate(
        {"what": what, "from": begin, "to": end, "seconds": seconds, "cost": cost, **known}
    )


def _seconds(begin: datetime, end: datetime) -> float:
    return round(max(0.0, (end - begin).total_seconds()), 6)
