"""The work queue of one worker on a database in memory, with places where a test may break it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

from herdsman.context import Services
from herdsman.errors import NotFound, StaleWrite
from herdsman.fleet import workers_sql
from herdsman.fleet.commands import move_worker, register_worker
from herdsman.fleet.model import GpuReport
from herdsman.ids import JobId, WorkerId
from herdsman.jobs import commands
from herdsman.jobs.assign import claim_for
from herdsman.jobs.model import Claim, ClaimKey, Failure, Job, JobFilter, JobPolicy, NewJob
from herdsman.jobs.protocol import (
    ClaimRequest,
    Ending,
    FinishAndClaim,
    HeartbeatReply,
    Load,
    Progress,
    ServiceMark,
    WorkerHeartbeat,
)
from herdsman.jobs.sweep import expire_claims, stage_due_jobs
from herdsman.jobs.worker_commands import release_job
from herdsman.ports import Clock
from herdsman.states import JobStatus, Reason, WorkerStatus
from herdsman.testing.cluster import memory_database
from herdsman.testing.direct_queue import DirectQueue
from herdsman.wire import new_job_id

WORKER = WorkerId("w1")
POLL = timedelta(milliseconds=20)
HELD = (JobStatus.CLAIMED, JobStatus.RUNNING)
T = TypeVar("T")

Fault = Callable[[str], None]
"""Called with the name of the request; what it raises is what the worker gets."""


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as it was when it was read."""

    row: Job
    logs: Mapping[int, Sequence[str]]
    """The lines of each attempt, by its token."""

    @property
    def job_id(self) -> JobId:
        return self.row.job_id

    @property
    def state(self) -> JobStatus:
        return self.row.status

    @property
    def result(self) -> Any:
        return self.row.result

    @property
    def token(self) -> int:
        return self.row.claim_token

    @property
    def worker_id(self) -> WorkerId | None:
        return self.row.worker_id

    @property
    def spent(self) -> int:
        """The attempts that count against it."""
        return self.row.attempts - self.row.interruptions

    @property
    def failure(self) -> Failure | None:
        kind = self.row.failure_class
        return None if kind is None else Failure(kind=kind, error=self.row.last_error or "")

    @property
    def progress(self) -> Progress | None:
        done = self.row.progress
        return None if done is None else Progress(done=done, note=self.row.progress_note)


class StoredJobs:
    """The jobs of a test. What time does to jobs is done whenever a worker asks for something."""

    def __init__(self, clock: Clock, policy: JobPolicy | None = None) -> None:
        self.services = Services(memory_database(clock), policy or JobPolicy(), new_job_id)
        self.clock = clock
        self._swept_at = clock.monotonic()

    @property
    def policy(self) -> JobPolicy:
        return self.services.policy

    @policy.setter
    def policy(self, policy: JobPolicy) -> None:
        self.services = replace(self.services, policy=policy)

    def submit(self, new: NewJob) -> JobId:
        return commands.submit_jobs(self.services, [new])[0].job_id

    def cancel(self, job_id: JobId) -> JobStatus:
        return commands.cancel_job(self.services, job_id)

    def job(self, job_id: JobId) -> StoredJob:
        logs: dict[int, list[str]] = {}
        for piece in commands.read_logs(self.services, job_id).pieces:
            logs.setdefault(piece.claim_token, []).extend(piece.lines)
        return StoredJob(commands.find_job(self.services, job_id), logs)

    def all(self) -> list[Job]:
        return list(commands.list_jobs(self.services, JobFilter(), limit=200).jobs)

    def held_by(self, worker_id: WorkerId) -> list[Job]:
        return [job for job in self.all() if job.worker_id == worker_id and job.status in HELD]

    def take(self, worker_id: WorkerId, ask: ClaimRequest) -> list[Claim]:
        """Another worker claims, or another request of the same one."""
        self.sweep()
        self.enlist(worker_id)
        return claim_for(self.services, {worker_id: ask})

    def lose(self, job_id: JobId) -> None:
        """Its claim goes to another worker; a second time is as good as once."""
        job = self.job(job_id)
        if job.worker_id != WorkerId("thief"):
            release_job(self.services, ClaimKey(job_id, job.token), "taken away", who="leader")
            self.take(WorkerId("thief"), ClaimRequest(begin=True))

    def enlist(self, worker_id: WorkerId) -> None:
        try:
            self.services.database.read(lambda tx: workers_sql.get_worker(tx, worker_id))
        except NotFound:
            register_worker(self.services, worker_id)
            move_worker(self.services, worker_id, WorkerStatus.ACTIVE, Reason.READY)

    def sweep(self) -> None:
        """Once a second, as the sweeper of a replica does."""
        now = self.clock.monotonic()
        if now - self._swept_at >= 1:
            self._swept_at = now
            expire_claims(self.services)
            stage_due_jobs(self.services)


@dataclass
class BreakableQueue:
    """Any number of them may share the same jobs.

    `before` is called when a request comes, and what it raises means that nothing was done. `after` is called when
    it was done and the answer is on its way, so what it raises means that the answer was lost. What the control
    plane would decide about the worker is decided by the test: `load`, `not_active`, `draining`, `dismissed`.
    """

    jobs: StoredJobs
    worker_id: WorkerId = WORKER
    before: Fault = lambda _: None
    after: Fault = lambda _: None
    words: list[str] = field(default_factory=list[str])
    reports: list[GpuReport] = field(default_factory=list[GpuReport])
    models: tuple[str, ...] = ()
    revision: int = 0
    trouble: str | None = None
    load: Load | None = None
    """What the worker has to serve; it is told until it does."""
    not_active: str | None = None
    draining: bool = False
    dismissed: bool = False
    left: bool = False

    def __post_init__(self) -> None:
        self.jobs.enlist(self.worker_id)
        self._queue = DirectQueue(
            services=self.jobs.services, worker_id=self.worker_id, clock=self.jobs.clock, poll=POLL
        )

    def claim(self, ask: ClaimRequest, wait: timedelta = timedelta(0)) -> Sequence[Claim]:
        def claim(queue: DirectQueue) -> Sequence[Claim]:
            self.models = ask.models
            return [] if self.draining else queue.claim(ask, wait)

        return self._call("claim", claim)

    def held(self) -> Sequence[ClaimKey]:
        return self._call("held", lambda queue: queue.held())

    def start(self, keys: Sequence[ClaimKey]) -> Mapping[ClaimKey, str]:
        return self._call("start", lambda queue: queue.start(keys))

    def beat(self, heartbeat: WorkerHeartbeat) -> HeartbeatReply:
        def beat(queue: DirectQueue) -> HeartbeatReply:
            self.models = self.models if heartbeat.models is None else heartbeat.models
            self.revision = self.revision if heartbeat.revision is None else heartbeat.revision
            self.trouble = heartbeat.trouble
            if heartbeat.report is not None:
                self.reports = [*self.reports[-99:], heartbeat.report]
            load = self.load if self.load is not None and self.load.revision > self.revision else None
            reply = queue.beat(replace(heartbeat, report=None))
            return replace(reply, load=load, not_active=self.not_active, drain=reply.drain or self.draining)

        return self._call("beat", beat)

    def finish(self, endings: Sequence[Ending], then: ClaimRequest | None = None) -> FinishAndClaim:
        self.models = self.models if then is None else then.models
        return self._call("finish", lambda queue: queue.finish(endings, None if self.draining else then))

    def get_checkpoint(self, key: ClaimKey) -> object:
        return self._call("get_checkpoint", lambda queue: queue.get_checkpoint(key))

    def put_checkpoint(self, key: ClaimKey, value: object) -> None:
        self._call("put_checkpoint", lambda queue: queue.put_checkpoint(key, value))

    def mark_service(self, key: ClaimKey, mark: ServiceMark) -> None:
        self._call("mark_service", lambda queue: queue.mark_service(key, mark))

    def leave(self) -> None:
        self._call("leave", lambda queue: queue.leave())
        self.draining = self.left = True

    def claim_late(self, ask: ClaimRequest) -> None:
        """A request of this process is carried out after it was given up."""
        self._queue.claim(ask)

    def _call(self, word: str, work: Callable[[DirectQueue], T]) -> T:
        self.before(word)
        self.words.append(word)
        if self.dismissed:
            raise StaleWrite(f"worker {self.worker_id!r} is terminated: stop its handler and exit")
        self.jobs.sweep()
        answer = work(replace(self._queue, services=self.jobs.services))
        self.after(word)
        return answer
