"""What became of the jobs of a local herd: their attempts, their moves and their times."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from herdsman.jobs.wire import AttemptOut, EventOut, JobDetail, ResultOut
from herdsman.states import JOB, JobState
from herdsman.testing.memory_jobs import WAITING, MemoryJob

_BEGUN = (JobState.CLAIMED, JobState.RUNNING)


@dataclass(slots=True)
class Record:
    created_at: datetime
    state: JobState | None = None
    version: int = 0
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempts: dict[int, AttemptOut] = field(default_factory=dict[int, AttemptOut])
    """By the token of the claim."""
    events: list[EventOut] = field(default_factory=list[EventOut])


class Ledger:
    def __init__(self) -> None:
        self.events: list[EventOut] = []
        self._records: dict[str, Record] = {}

    def note(self, jobs: Iterable[MemoryJob], now: datetime) -> None:
        """Called after every change, with the jobs that it may have moved."""
        for job in jobs:
            record = self._records.setdefault(job.job_id, Record(now))
            if record.state in WAITING and job.state in _BEGUN:
                self._move(job, record, JobState.PENDING, "due", now)
            if record.state is not job.state:
                self._move(job, record, job.state, job.reason, now)

    def record(self, job: MemoryJob) -> Record:
        return self._records[job.job_id]

    def detail(self, job: MemoryJob, max_attempts: int) -> JobDetail:
        return JobDetail(
            **_asked(job),
            **_been_through(job),
            **self._times(job),
            max_attempts=job.new.max_attempts or max_attempts,
        )

    def result(self, job: MemoryJob) -> ResultOut:
        failure = job.failure
        return ResultOut(
            job_id=job.job_id,
            status=job.state,
            result=job.result,
            failure_class=None if failure is None else failure.kind,
            last_error=None if failure is None else failure.error,
        )

    def _times(self, job: MemoryJob) -> dict[str, Any]:
        record = self.record(job)
        return {
            "created_at": record.created_at,
            "claimed_at": record.claimed_at,
            "started_at": record.started_at,
            "finished_at": record.finished_at,
            "version": record.version,
        }

    def _move(self, job: MemoryJob, record: Record, to: JobState, reason: str, now: datetime) -> None:
        event = EventOut(
            id=len(self.events) + 1,
            ts=now,
            event=f"job.{to}",
            kind=JOB.kind,
            object_id=job.job_id,
            seq=len(record.events) + 1,
            from_status=record.state,
            to_status=to,
            reason=reason,
            actor="local",
        )
        self.events.append(event)
        record.events.append(event)
        _keep_attempt(job, record, to, reason, now)
        record.finished_at = now if to in JOB.terminal else None
        record.state, record.version = to, record.version + 1


def _keep_attempt(job: MemoryJob, record: Record, to: JobState, reason: str, now: datetime) -> None:
    known = record.attempts.get(job.token)
    if to is JobState.CLAIMED:
        record.claimed_at, record.started_at = now, None
        record.attempts[job.token] = _attempt(job, now)
    elif to is JobState.RUNNING and known is not None:
        record.started_at = now
        record.attempts[job.token] = known.model_copy(update={"started_at": now})
    elif known is not None and known.ended_at is None:
        failure = None if to is JobState.DONE else job.failure
        ended = {
            "ended_at": now,
            "outcome": to.value,
            "reason": str(reason),
            "failure_class": None if failure is None else failure.kind.value,
            "error": None if failure is None else failure.error,
        }
        record.attempts[job.token] = known.model_copy(update=ended)


def _attempt(job: MemoryJob, now: datetime) -> AttemptOut:
    return AttemptOut(
        attempt=job.tally.attempts,
        claim_token=job.token,
        worker_id=job.worker_id or "",
        pool=job.new.pool,
        claimed_at=now,
        started_at=None,
        ended_at=None,
        outcome=None,
        reason=None,
        failure_class=None,
        error=None,
    )


def _asked(job: MemoryJob) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "type": job.new.type,
        "agent": job.new.agent,
        "pool": job.new.pool,
        "priority": job.new.priority,
        "tags": job.new.tags,
        "payload": job.new.payload,
        "idempotency_key": job.new.idempotency_key,
        "timeout_seconds": None if job.new.timeout is None else job.new.timeout.total_seconds(),
    }


def _been_through(job: MemoryJob) -> dict[str, Any]:
    return {
        "status": job.state,
        "reason": job.reason,
        "attempts": job.tally.attempts,
        "interruptions": job.tally.interruptions,
        "worker_id": job.worker_id,
        "progress": None if job.progress is None else job.progress.done,
        "progress_note": None if job.progress is None else job.progress.note,
        "failure_class": None if job.failure is None else job.failure.kind,
        "last_error": None if job.failure is None else job.failure.error,
        "run_at": job.run_at,
        "cancel_requested": job.cancel_requested,
    }
