"""The life of one job as stretches of time, each with what it cost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.explain.wire import SegmentOut, TimelineOut
from herdsman.fleet import snapshot_sql
from herdsman.ids import JobId
from herdsman.jobs import sql as jobs_sql
from herdsman.jobs.model import Attempt, AuditEntry, Job
from herdsman.states import JOB, JobState

HOUR = timedelta(hours=1)
MOST_ATTEMPTS = 200
What = Literal["queue", "boot", "run", "result", "backoff"]
_WAITS: Mapping[str, What] = {
    JobState.PENDING: "queue",
    JobState.SCHEDULED: "queue",
    JobState.FAILED: "backoff",
}


def timeline(services: Services, job_id: JobId) -> TimelineOut:
    return services.database.read(lambda tx: _timeline(tx, job_id))


def _timeline(tx: Tx, job_id: JobId) -> TimelineOut:
    job = jobs_sql.get_job(tx, job_id)
    tried = jobs_sql.list_attempts(tx, job_id)[-MOST_ATTEMPTS:]
    starts = snapshot_sql.worker_starts(tx, sorted({each.worker_id for each in tried}))
    history = jobs_sql.job_history(tx, JOB.kind, job_id)
    return told(job, history, tried, starts, tx.now())


def told(
    job: Job,
    history: Sequence[AuditEntry],
    tried: Sequence[Attempt],
    starts: Mapping[str, Mapping[str, Any]],
    now: datetime,
) -> TimelineOut:
    waits = list(_waits(history, now))
    runs = [_run(each, starts, now) for each in tried]
    boots = list(_boots(waits, tried, starts, now))
    found = [*waits, *boots, *runs, *_result(job, tried)]
    segments = tuple(sorted(found, key=lambda each: (each.begin, _ORDER[each.what])))
    end = job.finished_at or now
    costs = [each.cost for each in (*boots, *runs) if each.cost is not None]
    return TimelineOut(
        job_id=job.job_id,
        status=job.state,
        segments=segments,
        seconds=_seconds(job.created_at, end),
        cost=round(sum(costs), 9) if costs else None,
    )


_ORDER: Mapping[What, int] = {"queue": 0, "backoff": 1, "boot": 2, "run": 3, "result": 4}


def _waits(history: Sequence[AuditEntry], now: datetime) -> Iterator[SegmentOut]:
    """From each step into a state in which it waits to the step out of it."""
    moves = [each for each in history if each.from_state != each.to_state]
    for here, following in zip(moves, [*moves[1:], None], strict=False):
        what = _WAITS.get(here.to_state)
        if what is not None:
            yield _segment(what, here.ts, None if following is None else following.ts, now)


def _run(each: Attempt, starts: Mapping[str, Mapping[str, Any]], now: datetime) -> SegmentOut:
    return _segment(
        "run",
        each.claimed_at,
        each.ended_at,
        now,
        worker=each.worker_id,
        attempt=each.attempt,
        outcome=each.outcome,
        price=_price(starts, each.worker_id),
    )


def _boots(
    waits: Iterable[SegmentOut],
    tried: Sequence[Attempt],
    starts: Mapping[str, Mapping[str, Any]],
    now: datetime,
) -> Iterator[SegmentOut]:
    """The start of the worker that took it, as far as the job waited meanwhile."""
    queued = [each for each in waits if each.what == "queue"]
    for one in tried:
        worker = starts.get(one.worker_id)
        wait = next((each for each in reversed(queued) if each.begin <= one.claimed_at), None)
        if worker is None or worker["promoted_at"] is None or wait is None:
            continue
        begin, end = max(worker["created_at"], wait.begin), min(worker["promoted_at"], one.claimed_at)
        if begin < end:
            price = _price(starts, one.worker_id)
            yield _segment("boot", begin, end, now, worker=one.worker_id, attempt=one.attempt, price=price)


def _result(job: Job, tried: Sequence[Attempt]) -> Iterator[SegmentOut]:
    """The moment in which it was stored: from the end of the last attempt to that of the job."""
    last = tried[-1] if tried else None
    if job.state is JobState.DONE and job.finished_at is not None and last is not None and last.ended_at:
        begin = min(last.ended_at, job.finished_at)
        yield _segment("result", begin, job.finished_at, job.finished_at, worker=last.worker_id)


def _segment(
    what: What,
    begin: datetime,
    end: datetime | None,
    now: datetime,
    *,
    worker: str | None = None,
    attempt: int | None = None,
    outcome: str | None = None,
    price: float | None = None,
) -> SegmentOut:
    seconds = _seconds(begin, end or now)
    cost = None if price is None else round(price * seconds / HOUR.total_seconds(), 9)
    return SegmentOut.model_validate(
        {
            "what": what,
            "from": begin,
            "to": end,
            "seconds": seconds,
            "worker": worker,
            "attempt": attempt,
            "outcome": outcome,
            "cost": cost,
        }
    )


def _price(starts: Mapping[str, Mapping[str, Any]], worker_id: str) -> float | None:
    worker = starts.get(worker_id)
    return None if worker is None or worker["cost_per_hour"] is None else float(worker["cost_per_hour"])


def _seconds(begin: datetime, end: datetime) -> float:
    return round(max(0.0, (end - begin).total_seconds()), 6)
