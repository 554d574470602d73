"""The life of a job as a person would write it down: small, slow, and in memory."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from herdsman.ids import JobId, WorkerId
from herdsman.jobs.model import ClaimKey, FailureClass

CLAIM_TTL = timedelta(seconds=30)
PATIENCE = timedelta(seconds=60)
"""How long the sweep lets a worker stop a job by itself."""
STEP = timedelta(minutes=1)
HELD = ("claimed", "running")
ENDS = ("done", "dead_letter", "cancelled")


@dataclass
class ModelJob:
    priority: int
    max_attempts: int
    timeout: timedelta | None
    due: datetime
    status: str
    rank: datetime = field(init=False)
    """The moment it became due, moved forward by its priority."""
    token: int = 0
    attempts: int = 0
    interruptions: int = 0
    losses: int = 0
    memory: int = 0
    steps: int = 1
    claims: int = 0
    cancelled_at: datetime | None = None
    worker: WorkerId | None = None
    expires: datetime | None = None
    deadline: datetime | None = None
    service: str | None = None
    """Where it was left on an external service."""
    recovered: bool = False

    @property
    def cancel(self) -> bool:
        return self.cancelled_at is not None

    def __post_init__(self) -> None:
        self.queue_up(self.due)

    def queue_up(self, due: datetime) -> None:
        self.due, self.rank = due, due - self.priority * STEP

    def step(self, status: str) -> None:
        self.status = status
        self.steps += 1
        if status not in HELD:
            self.worker = self.expires = self.deadline = None

    def finish(self, *, recovered: bool) -> None:
        self.step("done")
        self.recovered = recovered

    def claim(self, worker: WorkerId, now: datetime) -> None:
        self.step("claimed")
        self.token, self.attempts, self.claims = self.token + 1, self.attempts + 1, self.claims + 1
        self.worker, self.expires = worker, now + CLAIM_TTL
        self.deadline = now + self.timeout if self.timeout else None

    def end(self, kind: FailureClass, now: datetime) -> None:
        """J5, J7 and J8; the time of a retry is the one thing that has to be looked up afterwards."""
        self.interruptions += kind is FailureClass.INTERRUPTED
        self.losses += kind is FailureClass.WORKER_LOST
        self.memory += kind is FailureClass.OUT_OF_MEMORY
        if self.cancel:
            self.step("cancelled")
        elif self._is_hopeless(kind):
            self.step("dead_letter")
        elif kind is FailureClass.INTERRUPTED:
            self.step("pending")
        elif kind is FailureClass.WORKER_LOST:
            self.step("pending")
            self.queue_up(now)
        else:
            self.step("failed")

    def _is_hopeless(self, kind: FailureClass) -> bool:
        limits = {
            FailureClass.USER_ERROR: True,
            FailureClass.INTERRUPTED: self.interruptions >= 20,
            FailureClass.WORKER_LOST: self.losses >= 2,
            FailureClass.OUT_OF_MEMORY: self.memory >= 2,
        }
        return limits.get(kind, False) or self.attempts - self.interruptions >= self.max_attempts

    def requeue(self, now: datetime) -> None:
        self.step("pending")
        self.token += 1
        self.attempts = self.interruptions = self.losses = self.memory = 0
        self.cancelled_at = self.service = None
        self.recovered = False
        self.queue_up(now)


@dataclass
class Model:
    now: datetime
    jobs: dict[JobId, ModelJob] = field(default_factory=dict[JobId, ModelJob])

    def holder_of(self, key: ClaimKey) -> ModelJob | None:
        """The job, if this claim is the one that holds it."""
        job = self.jobs[key.job_id]
        return job if job.status in HELD and job.token == key.token else None

    def next_in_line(self) -> set[JobId]:
        """More than one where two have the same place."""
        ranks = {job_id: job.rank for job_id, job in self.jobs.items() if job.status == "pending"}
        return {job_id for job_id, rank in ranks.items() if rank == min(ranks.values())}

    def busy(self, worker: WorkerId) -> bool:
        return any(job.worker == worker for job in self.jobs.values())

    def overdue(self) -> dict[JobId, FailureClass]:
        held = {job_id: job for job_id, job in self.jobs.items() if job.status in HELD}
        silent = [job_id for job_id, job in held.items() if job.expires and job.expires < self.now]
        stops = {job_id: [job.deadline, job.cancelled_at] for job_id, job in held.items()}
        late = [key for key, times in stops.items() if any(at and at + PATIENCE < self.now for at in times)]
        return dict.fromkeys(late, FailureClass.TIMEOUT) | dict.fromkeys(silent, FailureClass.WORKER_LOST)

    def due(self) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.status in ("scheduled", "failed") and job.due <= self.now]
