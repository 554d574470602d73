"""A work queue in memory, with the promises of the real one, and places where a test may break it."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar, assert_never

from herdsman.errors import InvalidRequest, NotFound, StaleWrite
from herdsman.fleet.model import GpuReport
from herdsman.ids import WorkerId
from herdsman.jobs.model import Claim, ClaimKey, Failure, FailureClass
from herdsman.jobs.protocol import (
    MOST_AT_ONCE,
    ClaimRequest,
    Done,
    Ending,
    Failed,
    FinishAndClaim,
    FinishResult,
    GivenBack,
    HeartbeatReply,
    Load,
    ServiceMark,
    WorkerHeartbeat,
    check_saved,
)
from herdsman.json_text import encode
from herdsman.states import JobState
from herdsman.testing.memory_jobs import HELD, MemoryJob, MemoryJobs, claim_of

WORKER = WorkerId("w1")
_LOOK_S = 1.0
T = TypeVar("T")

Fault = Callable[[str], None]
"""Called with the name of the word; what it raises is what the worker sees."""


class MemoryQueue:
    """One worker's queue; any number of them may share the same jobs.

    `before` is called when a word comes, and what it raises means that nothing was done. `after` is called when
    it was done and the answer is on its way, so what it raises means that the answer was lost.
    """

    def __init__(self, jobs: MemoryJobs, worker_id: WorkerId = WORKER) -> None:
        self.jobs = jobs
        self.worker_id = worker_id
        self.before: Fault = lambda _: None
        self.after: Fault = lambda _: None
        self.words: list[str] = []
        self.reports: list[GpuReport] = []
        self.models: tuple[str, ...] = ()
        self.revision = 0
        self.trouble: str | None = None
        self.load: Load | None = None
        """What the worker has to serve; it is told until it does."""
        self.not_active: str | None = None
        self.draining = False
        self.dismissed = False
        self.left = False

    def claim(self, ask: ClaimRequest, wait: timedelta = timedelta(0)) -> Sequence[Claim]:
        self._enter("claim")
        with self.jobs.changed:
            found = self._next(ask)
            left = wait.total_seconds()
            while not found and left > 0 and not self.draining and not self.dismissed:
                self.jobs.changed.wait(min(left, _LOOK_S))  # a retry becomes due without a word
                left -= _LOOK_S
                found = self._next(ask)
        return self._answer("claim", found)

    def held(self) -> Sequence[ClaimKey]:
        self._enter("held")
        with self.jobs.changed:
            self.jobs.sweep()
            held = self.jobs.held_by(self.worker_id)
            keys = [job.key for job in held if job.state is JobState.CLAIMED or job.begun_by is self]
        return self._answer("held", keys)

    def start(self, keys: Sequence[ClaimKey]) -> Mapping[ClaimKey, str]:
        self._enter("start")
        refused: dict[ClaimKey, str] = {}
        with self.jobs.changed:
            for key in keys:
                job = self._held(key)
                if job is None or job.begun_by not in (None, self):
                    refused[key] = _stale(key, "start")
                else:
                    job.state, job.begun_by = JobState.RUNNING, self
        return self._answer("start", refused)

    def beat(self, pulse: WorkerHeartbeat) -> HeartbeatReply:
        self._enter("beat")
        with self.jobs.changed:
            self.jobs.sweep()
            self.models = self.models if pulse.models is None else pulse.models
            self.revision = self.revision if pulse.revision is None else pulse.revision
            self.trouble = pulse.trouble
            if pulse.report is not None:
                self.reports = [*self.reports[-99:], pulse.report]
            held = {key: job for key in pulse.keys if (job := self._held(key)) is not None}
            expires_at = self.jobs.now() + self.jobs.policy.claim_ttl
            for key, job in held.items():
                job.expires_at = expires_at
                job.progress = pulse.progress.get(key, job.progress)
                piece = pulse.logs.get(key)
                if piece is not None:
                    lines = job.logs.setdefault(job.token, [])
                    lines[piece.first : piece.first + len(piece.lines)] = piece.lines
            orders = HeartbeatReply(
                expires_at=expires_at,
                drain=self.draining,
                cancel=frozenset(key for key, job in held.items() if job.cancel_requested),
                lost={key: _stale(key, "keep") for key in pulse.keys if key not in held},
                load=self.load if self.load is not None and self.load.revision > self.revision else None,
                not_active=self.not_active,
            )
        return self._answer("beat", orders)

    def finish(self, endings: Sequence[Ending], then: ClaimRequest | None = None) -> FinishAndClaim:
        self._enter("finish")
        with self.jobs.changed:
            self.jobs.sweep()
            told = [self._end(ending) for ending in endings]
            claims = () if then is None else self._next(then)
        return self._answer("finish", FinishAndClaim(told=told, claims=claims))

    def get_checkpoint(self, key: ClaimKey) -> object:
        self._enter("get_checkpoint")
        with self.jobs.changed:
            return self._answer("get_checkpoint", self._must_hold(key, "checkpoint").checkpoint)

    def put_checkpoint(self, key: ClaimKey, value: object) -> None:
        self._enter("put_checkpoint")
        encode(value, what="checkpoint", limit=self.jobs.policy.max_result_bytes)
        with self.jobs.changed:
            self._must_hold(key, "checkpoint").checkpoint = value
        self._answer("put_checkpoint", None)

    def mark_service(self, key: ClaimKey, mark: ServiceMark) -> None:
        self._enter("mark_service")
        with self.jobs.changed:
            self.jobs.mark(self._must_hold(key, "mark"), mark)
        self._answer("mark_service", None)

    def leave(self) -> None:
        self._enter("leave")
        self.draining = self.left = True
        self._answer("leave", None)

    def drain(self) -> None:
        """The worker is told with its next beat, and gets no more jobs."""
        with self.jobs.changed:
            self.draining = True
            self.jobs.changed.notify_all()

    def _next(self, ask: ClaimRequest) -> list[Claim]:
        if self.draining or self.dismissed:
            return []
        self.jobs.sweep()
        self.models = ask.models
        held = self.jobs.held_by(self.worker_id)
        if held and ask.resume:
            unbegun = [job for job in held if job.state is JobState.CLAIMED and not job.cancel_requested]
            return [claim_of(job) for job in unbegun]
        if len(held) != ask.beside or any(job.new.type not in ask.types for job in held):
            return []  # only a batch is filled up
        taken = self.jobs.take(self.worker_id, ask, MOST_AT_ONCE - len(held))
        for job in taken:
            job.begun_by = self if ask.begin else None
        return [claim_of(job) for job in taken]

    def _end(self, ending: Ending) -> FinishResult:
        job = self._held(ending.key)
        if job is None:
            return self._told_before(ending)
        match ending:
            case Done(key, result, saved):
                try:
                    check_saved(saved)
                    encode(result, what="result", limit=self.jobs.policy.max_result_bytes)
                except InvalidRequest as error:
                    return FinishResult(key=key, refused=str(error))
                return FinishResult(key=key, state=self.jobs.complete(job, result, saved))
            case Failed(key, failure):
                return FinishResult(key=key, state=self.jobs.end(job, failure))
            case GivenBack(key, why):
                failure = Failure(kind=FailureClass.INTERRUPTED, error=why)
                return FinishResult(key=key, state=self.jobs.end(job, failure))
            case _:
                assert_never(ending)

    def _told_before(self, ending: Ending) -> FinishResult:
        """The same word again, after its answer was lost, is no offence."""
        job = self._find(ending.key)
        if job is not None and isinstance(ending, Done) and job.state is JobState.DONE:
            return FinishResult(key=ending.key, state=job.state)
        return FinishResult(key=ending.key, refused=_stale(ending.key, "end"), stale=True)

    def _held(self, key: ClaimKey) -> MemoryJob | None:
        job = self._find(key)
        return job if job is not None and job.state in HELD and job.worker_id == self.worker_id else None

    def _find(self, key: ClaimKey) -> MemoryJob | None:
        try:
            job = self.jobs.job(key.job_id)
        except NotFound:
            return None
        return job if job.token == key.token else None

    def _must_hold(self, key: ClaimKey, what: str) -> MemoryJob:
        job = self._held(key)
        if job is None:
            raise StaleWrite(_stale(key, what))
        return job

    def _enter(self, word: str) -> None:
        self.before(word)
        self.words.append(word)
        if self.dismissed:
            raise StaleWrite(f"worker {self.worker_id!r} is terminated: stop its handler and exit")

    def _answer(self, word: str, answer: T) -> T:
        self.after(word)
        return answer


def _stale(key: ClaimKey, what: str) -> str:
    return f"claim {key.token} may not {what} job {key.job_id!r}: it is another's by now"
