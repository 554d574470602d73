"""Where the time and the money of one job went, as segments."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.explain.wire import SegmentOut, TimelineOut
from herdsman.fleet import snapshot_sql
from herdsman.ids import JobId
from herdsman.jobs import sql as jobs_sql
from herdsman.states import JOB, JobState

HOUR = timedelta(hours=1)
MOST_ATTEMPTS = 200
What = Literal["queue", "backoff", "boot", "run", "result"]
_ORDER: Mapping[What, int] = {"queue": 0, "backoff": 1, "boot": 2, "run": 3, "result": 4}
_WAITS: Mapping[str, What] = {
    JobState.PENDING: "queue",
    JobState.SCHEDULED: "queue",
    JobState.FAILED: "backoff",
}


def timeline(services: Services, job_id: JobId) -> TimelineOut:
    return services.database.read(lambda tx: _timeline(tx, job_id))


def _timeline(tx: Tx, job_id: JobId) -> TimelineOut:
    job, now = jobs_sql.get_job(tx, job_id), tx.now()
    tried = jobs_sql.list_attempts(tx, job_id)[-MOST_ATTEMPTS:]
    workers = snapshot_sql.worker_starts(tx, sorted({each.worker_id for each in tried}))
    moves = [each for each in jobs_sql.job_history(tx, JOB.kind, job_id) if each.from_state != each.to_state]
    # From each move into a state in which it waits to the move out of it.
    ends = [*(each.ts for each in moves[1:]), None]
    found = [
        _segment(_WAITS[each.to_state], each.ts, end, now)
        for each, end in zip(moves, ends, strict=False)
        if each.to_state in _WAITS
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
    if job.state is JobState.DONE and job.finished_at is not None and last is not None and last.ended_at:
        begin = min(last.ended_at, job.finished_at)
        found.append(_segment("result", begin, job.finished_at, now, worker=last.worker_id))
    costs = [each.cost for each in found if each.cost is not None]
    return TimelineOut(
        job_id=job.job_id,
        status=job.state,
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
