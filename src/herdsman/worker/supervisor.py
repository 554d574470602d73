"""Claims one job at a time, has it run in a process of its own, and says what became of it.

The supervisor never runs user code, so it can always beat, stop and report.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from herdsman.core.errors import HerdsmanError, InvalidRequest, NotFound, StaleWrite
from herdsman.core.model import Claim, ClaimKey, Failure
from herdsman.core.retry import FailureClass
from herdsman.ports import Clock, WorkQueue
from herdsman.worker.child import Answer, Child
from herdsman.worker.keeper import Keeper
from herdsman.worker.watch import Leaving, Limits, Stop, must_stop

TICK = timedelta(milliseconds=100)


@dataclass(frozen=True, slots=True)
class Done:
    result: object


@dataclass(frozen=True, slots=True)
class GivenBack:
    why: str


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The claim is another's by now: there is nobody to tell."""

    why: str


Ending = Done | Failure | GivenBack | Abandoned


@dataclass(kw_only=True)
class Supervisor:
    queue: WorkQueue
    keeper: Keeper
    clock: Clock
    limits: Limits
    poll: timedelta
    """How long to wait before asking for a job again."""
    types: Collection[str]
    launch: Callable[[Claim], Child]
    say: Callable[[str], None]
    _asked: int = 0
    _leaving_since: float | None = None
    _told: set[str] = field(default_factory=set[str])

    def drain(self) -> None:
        """Finish the job at hand and leave; asked again, give it back and leave. Safe in a signal handler."""
        self._asked += 1

    def run(self) -> str | None:
        """Until drained; or the reason why this worker is not wanted any more."""
        with self.keeper.beating():
            while self._leaving().since is None and self.keeper.heard.dismissed is None:
                claim = self._claim()
                if claim is None:
                    self._wait(self.poll)
                else:
                    self.work(*claim)
            dismissed = self.keeper.heard.dismissed
            if dismissed is None:
                self._leave()
        return dismissed

    def _leaving(self) -> Leaving:
        ordered = self.keeper.heard.drain
        if self._leaving_since is None and (ordered or self._asked):
            self._leaving_since = self.clock.monotonic()
            self.say("draining: no more jobs are taken")
        return Leaving(since=self._leaving_since, at_once=self._asked + ordered > 1)

    def _claim(self) -> tuple[Claim, float] | None:
        asked_at = self.clock.monotonic()
        try:
            claim = self.queue.claim(tuple(self.types))
        except HerdsmanError as error:
            self._say_once("claim", f"no job could be asked for: {error}")
            return None
        self._told.discard("claim")
        return None if claim is None else (claim, asked_at)

    def _wait(self, duration: timedelta) -> None:
        """In short steps: a signal must not wait for the end of a long one."""
        until = self.clock.monotonic() + duration.total_seconds()
        while (left := until - self.clock.monotonic()) > 0 and self._leaving().since is None:
            self.clock.sleep(min(TICK, timedelta(seconds=left)))

    def work(self, claim: Claim, claimed_at: float) -> None:
        """One job from its claim to its end; `claimed_at` is from before it was asked for."""
        job_id = claim.key.job_id
        self.say(f"job {job_id} claimed: {claim.type}, attempt {claim.attempt}")
        self.keeper.hold(claim.key, claimed_at)
        try:
            ending = self._run_job(claim)
            self.say(f"job {job_id} {self._report(claim.key, ending)}")
        finally:
            self.keeper.let_go()

    def _run_job(self, claim: Claim) -> Ending:
        if claim.type not in self.types:
            known = ", ".join(sorted(self.types))
            return GivenBack(f"no handler for type {claim.type!r}; here are: {known}")
        try:
            self.queue.start(claim.key)
        except (StaleWrite, NotFound) as error:
            return Abandoned(str(error))
        except HerdsmanError as error:
            return GivenBack(f"its start could not be reported: {error}")
        try:
            child = self.launch(claim)
        except OSError as error:
            return _failed(FailureClass.INFRASTRUCTURE, f"no process could be started for the job: {error}")
        return self._attend(claim, child)

    def _attend(self, claim: Claim, child: Child) -> Ending:
        """Listen until the process is gone, and stop it when it must not go on."""
        started = self.clock.monotonic()
        deadline = None if claim.timeout is None else started + claim.timeout.total_seconds()
        answer: Answer | None = None
        stop: Stop | None = None
        kill_at = math.inf
        while not child.ended():
            answer = self._listen(child, TICK) or answer
            now = self.clock.monotonic()
            verdict = must_stop(
                now=now,
                heard=self.keeper.heard,
                leaving=self._leaving(),
                limits=self.limits,
                deadline=deadline,
            )
            if verdict is not None and (stop is None or (verdict.at_once and not stop.at_once)):
                stop = verdict
                self.say(f"job {claim.key.job_id} is stopped: {stop.value}")
                child.ask_to_stop()
                kill_at = now if stop.at_once else now + self.limits.stop_grace.total_seconds()
            elif answer is not None and kill_at == math.inf:
                kill_at = now + self.limits.stop_grace.total_seconds()  # it has said its last word
            if now >= kill_at:
                child.kill()
        answer = self._listen(child, timedelta(0)) or answer
        return _ending(answer, stop, child.close())

    def _listen(self, child: Child, wait: timedelta) -> Answer | None:
        """The answer that ends the job, if it came."""
        last: Answer | None = None
        for answer in child.listen(wait.total_seconds()):
            if "progress" in answer:
                self._note_progress(answer)
            elif "result" in answer or "failure" in answer:
                last = answer
        return last

    def _note_progress(self, answer: Answer) -> None:
        done, note = answer["progress"], answer.get("note")
        if isinstance(done, int | float) and math.isfinite(done) and 0 <= done <= 1:
            self.keeper.note_progress(float(done), str(note).replace("\0", "") if note is not None else None)

    def _report(self, key: ClaimKey, ending: Ending) -> str:
        match ending:
            case Done(result):
                return self._deliver(lambda: f"is {self._complete(key, result)}")
            case Failure():
                return self._deliver(lambda: _told(self.queue.fail(key, ending), ending))
            case GivenBack(why):
                return self._deliver(lambda: f"was given back ({why}): {self.queue.release(key, why)}")
            case Abandoned(why):
                return f"was abandoned: {why}"

    def _complete(self, key: ClaimKey, result: object) -> str:
        try:
            return self.queue.complete(key, result)
        except InvalidRequest as error:
            failure = Failure(kind=FailureClass.USER_ERROR, error=f"its result was refused: {error}")
            return _told(self.queue.fail(key, failure), failure)

    def _deliver(self, word: Callable[[], str]) -> str:
        """Say it until it is heard, as long as the claim is ours: the beats go on meanwhile."""
        while True:
            try:
                return word()
            except (StaleWrite, NotFound) as error:
                return f"was taken away before its end could be told: {error}"
            except HerdsmanError as error:
                silence = self.clock.monotonic() - self.keeper.heard.accepted_at
                if silence >= self.limits.self_fence.total_seconds():
                    return f"has an end that could not be told: {error}"
            self.clock.sleep(TICK)

    def _leave(self) -> None:
        try:
            self.queue.leave()
        except HerdsmanError as error:
            self.say(f"nobody could be told of the leave: {error}")

    def _say_once(self, what: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self.say(text)


def _ending(answer: Answer | None, stop: Stop | None, how: str) -> Ending:
    if stop is Stop.LOST:
        return Abandoned(stop.value)
    if answer is not None and "result" in answer:
        return Done(answer["result"])  # it was finished; whether that still counts is decided at the queue
    if stop is Stop.TIMEOUT:
        return _failed(FailureClass.TIMEOUT, "the job did not end within its timeout")
    if stop is not None:
        return GivenBack(stop.value)
    if answer is not None:
        return _reported(answer)
    return _failed(FailureClass.JOB_ERROR, f"the handler's process {how} without a word")


def _reported(answer: Mapping[str, object]) -> Failure:
    """The handler says which class its failure is of, but only the three that it can know about."""
    said = str(answer["failure"])
    known = {each.value: each for each in (FailureClass.USER_ERROR, FailureClass.OUT_OF_MEMORY)}
    return Failure(kind=known.get(said, FailureClass.JOB_ERROR), error=str(answer.get("error", "")))


def _failed(kind: FailureClass, error: str) -> Failure:
    return Failure(kind=kind, error=error)


def _told(state: str, failure: Failure) -> str:
    last = failure.error.strip().splitlines()[-1:] or [""]
    return f"is {state} ({failure.kind}): {last[0][:200]}"
