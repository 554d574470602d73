"""Jobs that run on an external service: submitted once, watched, and their results never lost."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar, assert_never

from pydantic import TypeAdapter

from herdsman.connectors.registry import Around, ConnectorManager
from herdsman.errors import HerdsmanError, InvalidRequest, ServiceRejected, ServiceUnavailable, SubmissionUnknown
from herdsman.ids import JobId
from herdsman.jobs.model import ClaimKey
from herdsman.jobs.protocol import Broken, Ended, Finished, MarkStatus, ServiceJob, Unknown, Verdict, Working
from herdsman.ports import Clock, Connector, SystemClock
from herdsman.results import ResultOptions, open_store
from herdsman.wire import service_id
from herdsman.worker.context import Cancelled, JobContext, Recovered, TryAgain, UserError
from herdsman.worker.registry import Handler, HandlerSpec, UnusableHandler
from herdsman.worker.stop_rules import Stop

T = TypeVar("T")
TICK = timedelta(milliseconds=200)
_PAUSE = timedelta(milliseconds=500)
_STOPPING = timedelta(seconds=5)
NOT_FOUND = "service_job_not_found"
_OURS = (Stop.CANCELLED.name, Stop.TIMEOUT.name, Stop.STALLED.name)
"""Only then is the job stopped at the service too. A worker that leaves, or has lost its claim, lets it run: whoever
has the job next finds it there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """How closely jobs on a service are watched."""

    interval: timedelta = timedelta(seconds=30)
    """WORKER_HEALTH_CHECK_INTERVAL_MS: how often quiet jobs are looked for."""
    inactivity: timedelta = timedelta(seconds=30)
    """WORKER_WEBSOCKET_INACTIVITY_TIMEOUT_MS: silence after which a job is quiet."""
    patience: timedelta = timedelta(seconds=120)
    """How long a service may be away before the attempt is over."""
    stall: timedelta = timedelta(seconds=900)
    """How long a job may stand still there while the service says that it works on it."""
    settle: timedelta = timedelta(seconds=10)
    """How long a job whose submission got no answer may take to show up there."""


class Monitor:
    """A timer that acts on silence alone. Only messages of this very job count."""

    def __init__(self, watching: Watching, began: float) -> None:
        self._watching = watching
        self._heard_at = self._moved_at = began
        self._check_at = began + watching.interval.total_seconds()
        self._last: Working | None = None

    def heard(self, now: float) -> None:
        """It spoke by itself."""
        self._heard_at = self._moved_at = now

    def inactive(self, now: float) -> float:
        return now - self._heard_at

    def is_due(self, now: float) -> bool:
        """True at most once for each turn of the timer."""
        if now < self._check_at:
            return False
        self._check_at = now + self._watching.interval.total_seconds()
        return self.inactive(now) >= self._watching.inactivity.total_seconds()

    def stalled(self, found: Working, now: float) -> str | None:
        """Why it is given up; None while something moves, or where the service says nothing that could.

        A service that says "running" is no proof of life: a dead thread says so for ever. While a job waits there behind
        the work of others, nothing is counted: only its own timeout ends the wait.
        """
        if found.position is None and found.done is None:
            return None
        if found.position or found != self._last:
            self._last, self._moved_at = found, now
        still = now - self._moved_at
        if still < self._watching.stall.total_seconds():
            return None
        return f"the service says that it runs, but nothing has moved for {still:.0f} seconds"


@dataclass(kw_only=True)
class ServiceRun:
    job: JobContext
    connector: Connector
    watching: Watching
    clock: Clock
    _unreached_since: float | None = field(default=None)

    def __post_init__(self) -> None:
        job = self.job
        self._described = ServiceJob(
            job_id=job.job_id,
            type=job.type,
            payload=job.payload,
            agent=job.agent,
            attempt=job.attempt,
            model=job.model,
            adapter=job.adapter,
            variant=job.variant,
            workspace=str(job.workspace),
        )

    def run(self) -> object:
        """The result, one that was recovered, or a failure."""
        try:
            external_id, found = self._begin()
            return self._watch(external_id) if found is None else self._adopt(external_id, found)
        except InvalidRequest as error:  # what it made, or says, is larger than may be kept
            raise UserError(str(error)) from error
        finally:
            self.connector.close()

    def _begin(self) -> tuple[str, Finished | None]:
        """Where the job is at the service; with its end, if it had come to it before this attempt."""
        before = self.job.service_job_id
        if before is None or not self.connector.capabilities.recovers:
            return self._submit(), None
        verdict = self._persist(lambda: self.connector.check(before))
        match verdict:
            case Finished():
                self._log(before, verdict, "an earlier claim had handed it over")
                return before, verdict
            case Working():
                self._log(before, verdict, "an earlier claim had handed it over")
                self.job.mark_service(before, MarkStatus.ATTACHED)
                self._persist(lambda: self.connector.attach(self._described, before))
                return before, None
            case Broken() | Unknown():  # its failure was that of an earlier attempt
                self.job.log(f"prompt_id={before} of an earlier claim is of no use any more: handed over anew")
                return self._submit(), None
            case _:
                assert_never(verdict)

    def _submit(self) -> str:
        """The id is written down before anything is sent, so that no crash can lose it."""
        chosen = service_id(ClaimKey(JobId(self.job.job_id), self.job.token))
        self.job.mark_service(chosen, MarkStatus.SUBMITTED)
        try:
            given = self._persist(lambda: self._handed_over(chosen))
        except ServiceRejected as error:
            raise _refused(error) from error
        if given != chosen:
            self.job.mark_service(given, MarkStatus.SUBMITTED)
        return given

    def _handed_over(self, external_id: str) -> str:
        try:
            return self.connector.submit(self._described, external_id)
        except SubmissionUnknown as error:
            self.job.log(f"{error}; the service is asked whether it has the job")
            # It may be there all the same: sent again, it would run twice.
            until = self.clock.monotonic() + self.watching.settle.total_seconds()
            while isinstance(self._persist(lambda: self.connector.check(external_id)), Unknown):
                if self.clock.monotonic() >= until:
                    raise TryAgain(f"return_to_queue: the submission failed: {error}") from error
                self._wait(_PAUSE)
            return external_id

    def _watch(self, external_id: str) -> object:
        monitor = Monitor(self.watching, self.clock.monotonic())
        while not self.job.cancelled:
            heard = self.connector.listen(external_id, TICK)
            now = self.clock.monotonic()
            if isinstance(heard, Ended):
                verdict, missed = self._settled(external_id), False
            elif isinstance(heard, Working):
                monitor.heard(now)
                self._tell(heard)
                continue
            elif monitor.is_due(now):
                verdict, missed = self._health_check(external_id, monitor.inactive(now)), True
            else:
                continue
            match verdict:
                case None:
                    continue
                case Working():
                    self._tell(verdict)
                    if (why := monitor.stalled(verdict, self.clock.monotonic())) is not None:
                        self._cancel(external_id)
                        raise TryAgain(f"{why}; it may have to be restarted")
                case Finished():
                    return self._adopt(external_id, verdict) if missed else self._fetched(external_id, verdict)
                case Broken():
                    return verdict.failure
                case Unknown():
                    raise TryAgain(f"return_to_queue: {NOT_FOUND}: {verdict.reason}")
        if self.job.stop_reason in _OURS:
            self._cancel(external_id)
        raise Cancelled(f"job {self.job.job_id} was asked to stop")

    def _health_check(self, external_id: str, inactive: float) -> Verdict | None:
        """None where the service could not be asked: that is no verdict, and the job goes on."""
        try:
            verdict = self.connector.check(external_id)
        except ServiceUnavailable as error:
            self.job.log(f"health_check prompt_id={external_id} inactive_s={inactive:.1f}: {error}")
            self._bear(error)
            return None
        self._unreached_since = None
        self._log(external_id, verdict, _reason(verdict), inactive)
        self.job.mark_service(external_id, MarkStatus.CHECKED)
        return verdict

    def _settled(self, external_id: str) -> Verdict | None:
        """The end was heard, so the service has it, or will in a moment."""
        until = self.clock.monotonic() + _STOPPING.total_seconds()
        while True:
            verdict = self._persist(lambda: self.connector.check(external_id))
            if not isinstance(verdict, Working) or self.clock.monotonic() >= until:
                return verdict
            self._wait(TICK)

    def _adopt(self, external_id: str, finished: Finished) -> object:
        """What is there need not be made again, unless it is gone after all."""
        try:
            result = self._fetched(external_id, finished)
        except TryAgain as error:
            if self.job.service_job_id != external_id:
                raise
            self.job.log(f"{error}; the job is handed over anew")
            self.job.service_job_id = None
            return self._watch(self._submit())
        return Recovered(result, finished.seconds or 0.0)

    def _fetched(self, external_id: str, finished: Finished) -> object:
        try:
            return self._persist(lambda: self.connector.fetch(self._described, external_id, finished))
        except ServiceRejected as error:
            raise _refused(error) from error

    def _cancel(self, external_id: str) -> None:
        """Best effort, and a look whether it helped: the next job should not wait behind a dead one."""
        if not self.connector.capabilities.cancels:
            return
        until = self.clock.monotonic() + _STOPPING.total_seconds()
        try:
            self.connector.cancel(external_id)
            while isinstance(self.connector.check(external_id), Working):
                if self.clock.monotonic() >= until:
                    self.job.log("the service has not stopped it yet")
                    return
                self.clock.sleep(TICK)
        except (ServiceUnavailable, ServiceRejected) as error:
            self.job.log(f"the service could not be asked to stop it: {error}")

    def _persist(self, call: Callable[[], T]) -> T:
        """A service that is away for a moment costs a moment, not the attempt."""
        while True:
            try:
                found = call()
            except ServiceUnavailable as error:
                self._bear(error)
                self._wait(_PAUSE)
            else:
                self._unreached_since = None
                return found

    def _bear(self, error: ServiceUnavailable) -> None:
        now = self.clock.monotonic()
        if self._unreached_since is None:
            self._unreached_since = now
        if (away := now - self._unreached_since) >= self.watching.patience.total_seconds():
            raise TryAgain(f"the service could not be reached for {away:.0f} seconds: {error}") from error

    def _wait(self, duration: timedelta) -> None:
        self.job.raise_if_cancelled()
        self.clock.sleep(duration)

    def _tell(self, working: Working) -> None:
        if working.position:
            before = "1 job" if working.position == 1 else f"{working.position} jobs"
            self.job.progress(working.done or 0.0, f"waits at the service, {before} before it")
        elif working.done is not None:
            self.job.progress(working.done, working.note)

    def _log(self, external_id: str, verdict: Verdict, reason: str, inactive: float = 0.0) -> None:
        """One line that tells the whole decision."""
        self.job.log(
            f"health_check job_id={self.job.job_id} prompt_id={external_id} action={verdict.action}"
            f" reason={reason!r} inactive_s={inactive:.1f}"
        )


def _reason(verdict: Verdict) -> str:
    match verdict:
        case Finished():
            return "its end was missed"
        case Broken():
            return f"service_error: {verdict.failure.error[:200]}"
        case Unknown():
            return NOT_FOUND
        case Working():
            return f"place {verdict.position}" if verdict.position else "running"
        case _:
            assert_never(verdict)


def _refused(error: ServiceRejected) -> Exception:
    return TryAgain(str(error)) if error.retry else UserError(str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    services: Mapping[str, Mapping[str, Any]]
    results: ResultOptions
    watching: Watching = field(default_factory=Watching)

    def to_json(self) -> str | None:
        """For the one process that speaks to services; None where there are none."""
        return _OUTSIDE.dump_json(self).decode() if self.services else None


_OUTSIDE = TypeAdapter(Outside)


def handlers_of(text: str) -> Iterator[tuple[str, Handler]]:
    """The jobs that run on external services, in the handler's own process: one after the other."""
    outside, clock = read_outside(text), SystemClock()
    at_work: list[JobContext] = []

    def say(line: str) -> None:
        for job in at_work:
            job.log(line)

    def run(job: JobContext) -> object:
        at_work.append(job)
        try:
            connector = manager.get(job.type)
            return ServiceRun(job=job, connector=connector, watching=outside.watching, clock=clock).run()
        finally:
            at_work.clear()

    try:
        around = Around(clock=clock, results=open_store(outside.results), say=say)
        manager = ConnectorManager(services=outside.services, around=around)
        for kind in manager.types():
            manager.get(kind)  # opened now, so that wrong options are known before the first job
            yield f"the connector for {kind}", Handler(spec=HandlerSpec(type=kind, prefetch=2), run=run)
    except HerdsmanError as error:
        raise UnusableHandler(str(error)) from error


def read_outside(text: str) -> Outside:
    return _OUTSIDE.validate_json(text)
