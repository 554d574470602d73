"""Jobs in memory, by the rules of the real store: tokens, expiry, cancels, retries."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from threading import Condition
from typing import Any

from herdsman.errors import NotFound
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.model import Claim, ClaimKey, Failure, FailureClass, JobPolicy, NewJob, place
from herdsman.jobs.protocol import ClaimRequest, Progress, ServiceMark
from herdsman.jobs.rules import Holding, Tally, end_of, overdue_failure
from herdsman.ports import Clock
from herdsman.states import JobState, Reason

HELD = (JobState.CLAIMED, JobState.RUNNING)
WAITING = (JobState.SCHEDULED, JobState.FAILED)


@dataclass(kw_only=True)
class MemoryJob:
    job_id: JobId
    new: NewJob
    state: JobState
    reason: Reason
    run_at: datetime
    place: int
    tally: Tally
    token: int = 0
    worker_id: WorkerId | None = None
    expires_at: datetime | None = None
    begun_by: object = None
    """The queue, and so the process, that has begun its claim."""
    cancel_requested: bool = False
    result: Any = None
    failure: Failure | None = None
    progress: Progress | None = None
    checkpoint: Any = None
    service_job_id: str | None = None
    marks: list[ServiceMark] = field(default_factory=list[ServiceMark])
    """All that was said of its place on a service, by any claim."""
    saved: timedelta | None = None
    logs: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """The lines of each attempt, by its token."""

    @property
    def key(self) -> ClaimKey:
        return ClaimKey(self.job_id, self.token)


class MemoryJobs:
    """All methods may be called from any thread. `changed` is notified whenever a job may have become due."""

    def __init__(self, clock: Clock, policy: JobPolicy | None = None) -> None:
        self.policy = policy or JobPolicy()
        self.changed = Condition()
        self._clock = clock
        self._zero = datetime.now(UTC) - timedelta(seconds=clock.monotonic())
        self._jobs: dict[JobId, MemoryJob] = {}
        self._numbers = count(1)
        self._pending: dict[str, list[tuple[int, JobId]]] = {}
        """By type, a heap; a job that has moved on is passed over when it comes up."""
        self._timed: set[JobId] = set()
        """Those that time may move."""

    def now(self) -> datetime:
        return self._zero + timedelta(seconds=self._clock.monotonic())

    def submit(self, new: NewJob) -> JobId:
        with self.changed:
            job_id = new.job_id or JobId(f"job-{next(self._numbers)}")
            due = new.run_at or self.now() + (new.delay or timedelta(0))
            job = self._jobs[job_id] = MemoryJob(
                job_id=job_id,
                new=new,
                state=JobState.SCHEDULED if due > self.now() else JobState.PENDING,
                reason=Reason.SUBMITTED,
                run_at=due,
                place=place(due, new.priority, self.policy.priority_step),
                tally=Tally(attempts=0),
            )
            self._sort_in(job)
            return job_id

    def cancel(self, job_id: JobId) -> JobState:
        """A job that is held waits for its worker to let go."""
        with self.changed:
            job = self.job(job_id)
            if job.state in HELD:
                job.cancel_requested = True
            elif job.state in (*WAITING, JobState.PENDING):
                job.state, job.reason = JobState.CANCELLED, Reason.CANCELLED
                self._sort_in(job)
            return job.state

    def job(self, job_id: JobId) -> MemoryJob:
        with self.changed:
            if job_id not in self._jobs:
                raise NotFound(f"there is no job {job_id!r}")
            return self._jobs[job_id]

    def all(self) -> list[MemoryJob]:
        with self.changed:
            return list(self._jobs.values())

    def held_by(self, worker_id: WorkerId) -> list[MemoryJob]:
        with self.changed:
            timed = [self._jobs[job_id] for job_id in self._timed]
            return [job for job in timed if job.worker_id == worker_id and job.state in HELD]

    def take(self, worker_id: WorkerId, ask: ClaimRequest, room: int) -> list[MemoryJob]:
        """The next job, and with it more of its type as far as the worker takes them."""
        with self.changed:
            self.sweep()
            heads = [job for kind in ask.types or self._pending if (job := self._head(kind)) is not None]
            if not heads:
                return []
            kind = min(heads, key=lambda job: (job.place, job.job_id)).new.type
            taken: list[MemoryJob] = []
            while len(taken) < min(room, ask.most.get(kind, 1)) and (job := self._head(kind)) is not None:
                taken.append(self._hand_out(job, worker_id, ask))
            return taken

    def sweep(self) -> None:
        """What time does to jobs."""
        with self.changed:
            now = self.now()
            for job in [self._jobs[job_id] for job_id in self._timed]:
                if job.state in HELD and job.expires_at is not None and job.expires_at < now:
                    self.end(job, overdue_failure(holding(job, self.policy), now))
                if job.state in WAITING and job.run_at <= now:
                    job.state, job.reason = JobState.PENDING, Reason.DUE
                    self._sort_in(job)

    def end(self, job: MemoryJob, failure: Failure) -> JobState:
        """A claim ends without a result."""
        ending = end_of(holding(job, self.policy), failure, self.now(), self.policy)
        job.state, job.reason, job.tally = ending.state, ending.reason, ending.tally
        job.run_at, job.place, job.failure = ending.run_at, ending.place, ending.failure
        job.worker_id = job.expires_at = None
        self._sort_in(job)
        return job.state

    def mark(self, job: MemoryJob, mark: ServiceMark) -> None:
        job.service_job_id = mark.external_id
        job.marks.append(mark)
        self.changed.notify_all()

    def complete(self, job: MemoryJob, result: object, saved: timedelta | None = None) -> JobState:
        if job.cancel_requested:
            too_late = Failure(kind=FailureClass.INTERRUPTED, error="cancelled; the result came too late")
            return self.end(job, too_late)
        job.state, job.result, job.saved = JobState.DONE, result, saved
        job.reason = Reason.COMPLETED if saved is None else Reason.RECOVERED
        job.worker_id = job.expires_at = None
        self._sort_in(job)
        return job.state

    def wait_until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        with self.changed:
            return self.changed.wait_for(holds, timeout_s)

    def _head(self, kind: str) -> MemoryJob | None:
        heap = self._pending.get(kind, [])
        while heap:
            at, job_id = heap[0]
            job = self._jobs[job_id]
            if job.state is JobState.PENDING and job.place == at:
                return job
            heappop(heap)
        return None

    def _sort_in(self, job: MemoryJob) -> None:
        """After a change of its state, for whoever looks for it next."""
        if job.state is JobState.PENDING:
            heappush(self._pending.setdefault(job.new.type, []), (job.place, job.job_id))
        if job.state in (*HELD, *WAITING):
            self._timed.add(job.job_id)
        else:
            self._timed.discard(job.job_id)
        self.changed.notify_all()

    def _hand_out(self, job: MemoryJob, worker_id: WorkerId, ask: ClaimRequest) -> MemoryJob:
        job.token += 1
        job.tally = replace(job.tally, attempts=job.tally.attempts + 1)
        job.worker_id, job.expires_at = worker_id, self.now() + self.policy.claim_ttl
        job.state, job.reason = JobState.CLAIMED, Reason.CLAIMED
        if ask.begin:
            job.state, job.reason = JobState.RUNNING, Reason.STARTED
        job.progress = None
        self._sort_in(job)
        return job


def holding(job: MemoryJob, policy: JobPolicy) -> Holding:
    assert job.expires_at is not None
    return Holding(
        key=job.key,
        tally=job.tally,
        max_attempts=job.new.max_attempts or policy.max_attempts,
        retry_base=job.new.retry_base,
        retry_cap=job.new.retry_cap,
        priority=job.new.priority,
        place=job.place,
        run_at=job.run_at,
        expires_at=job.expires_at,
        cancel_requested=job.cancel_requested,
    )


def claim_of(job: MemoryJob) -> Claim:
    assert job.worker_id is not None
    assert job.expires_at is not None
    return Claim(
        key=job.key,
        worker_id=job.worker_id,
        type=job.new.type,
        payload=job.new.payload,
        attempt=job.tally.attempts,
        timeout=job.new.timeout,
        expires_at=job.expires_at,
        service_job_id=job.service_job_id,
        model=job.new.model,
        agent=job.new.agent,
    )
