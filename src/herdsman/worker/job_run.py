"""Runs claimed jobs in the handler's process until each has ended, and makes the calls that handlers ask for."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from threading import BoundedSemaphore, Event
from typing import Any

from herdsman.errors import HerdsmanError, InvalidRequest, NotFound, StaleWrite
from herdsman.jobs.model import Claim, ClaimKey, Failure, FailureClass
from herdsman.jobs.protocol import Done, Ending, Failed, GivenBack, MarkStatus, Progress, ServiceMark
from herdsman.ports import Clock, SystemThreads, Threads, WorkQueue
from herdsman.worker.context import CANCELLED
from herdsman.worker.handler_pool import HandlerPool, Models
from herdsman.worker.handler_process import Child, Exit
from herdsman.worker.heartbeat import Keeper
from herdsman.worker.job_log import MOST_BYTES, MOST_LINES, LogBook, Sink, split_lines
from herdsman.worker.registry import HandlerSpec
from herdsman.worker.stop_rules import Leaving, Limits, Stop, must_stop

_MEMORY_LOOK_S = 1.0
_LONGEST_SAVED_S = 10 * 365 * 86_400
MOST_AT_ONCE = 16
_PAUSE = timedelta(seconds=1)
Reply = Callable[[Mapping[str, object]], None]


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The claim is another's by now: there is nobody to tell."""

    key: ClaimKey
    reason: str


@dataclass(slots=True, kw_only=True)
class Task:
    """One job at work."""

    claim: Claim
    book: LogBook
    deadline: float | None = None
    word: Mapping[str, Any] | None = None
    """Its last one: a result or a failure."""
    stop: Stop | None = None
    kill_at: float = math.inf
    ran: float | None = None
    """For how many seconds, once it has ended."""


@dataclass(slots=True, kw_only=True)
class Order:
    """What a handler's process is given at once: a job, or a batch of one type."""

    run: int
    spec: HandlerSpec
    tasks: Mapping[ClaimKey, Task]
    words: Mapping[str, object]
    output: int
    """Where its jobs print to: two that follow each other do not share it."""
    sent: bool = False
    """Ahead, behind another one."""
    answers: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    """Those that came before the one before was over."""
    began: float = 0.0
    spoke_at: float = 0.0
    made: bool = False

    def write(self, clock: Clock) -> Sink:
        """What a batch prints is of all its jobs."""

        def write(lines: Sequence[str]) -> None:
            self.spoke_at = clock.monotonic()
            for task in self.tasks.values():
                task.book.add(lines)

        return write


@dataclass(kw_only=True)
class JobRunner:
    """Runs the jobs of one order in the handler's process, and stops those that must stop."""

    keeper: Keeper
    clock: Clock
    limits: Limits
    leaving: Callable[[], Leaving]
    calls: "AsyncCalls"
    say: Callable[[str], None]
    meanwhile: Callable[[], object] = lambda: None
    """Called again and again while jobs run; it must not wait."""
    current: Order | None = None
    """At work."""
    following: Order | None = None
    """In the process already."""
    _runs: int = 0
    _until: float | None = None
    """Until when the process may go on, as it was told."""
    _look_at: float = 0.0
    _exit: Exit | None = None
    """How the process ended in which `following` had begun."""

    def work(
        self, claims: Sequence[Claim], spec: HandlerSpec, warm: HandlerPool, claimed_at: float
    ) -> list[Ending | Abandoned]:
        """How each of them ended. The claims stay held until they are released."""
        ahead = self.following
        if ahead is None or [*ahead.tasks] != [claim.key for claim in claims]:
            ahead = None
        order = ahead or self._order(claims, spec, warm)
        self.keeper.hold({key: task.book for key, task in order.tasks.items()}, claimed_at)
        child = warm.child
        if ahead is not None:
            self.following = None
        elif child is None or child.ended():
            warm.check()
            why = "the handler's process had ended before the job began"
            return [GivenBack(key, why, begun=False) for key in order.tasks]
        order.began = order.spoke_at = now = self.clock.monotonic()
        for task in order.tasks.values():
            task.deadline = None if task.claim.timeout is None else now + task.claim.timeout.total_seconds()
        culprit, how = None, self._exit
        if how is not None:  # the process ended between the two
            self._exit = None
            self._take(order, None, warm.models)
        else:
            assert child is not None
            warm.models.begin(claim.model for claim in claims)
            self.current = order
            if not order.sent:
                child.print_to(order.write(self.clock), order.output)
            culprit = self._attend(order, child, warm.models)
            self.current = None
            child.print_to(None, order.output)
            following = "" if self.following is None else f"{self.following.run}-"
            how = warm.served(len(order.tasks), made=order.made, following=following)
            if warm.child is None and self.following is not None:
                if child.recall():
                    self.following = None
                else:
                    self._exit = how or Exit(0)
        if how is not None and how.fenced:
            for task in order.tasks.values():
                self.say(f"job {task.claim.key.job_id} is stopped: {Stop.FENCED.value}")
        endings = [_ending(task, how, culprit) for task in order.tasks.values()]
        if not any(isinstance(each, Done) for each in endings):
            warm.models.undo()
        return endings

    def send_ahead(self, claim: Claim, spec: HandlerSpec, warm: HandlerPool) -> None:
        """The job that follows goes into the process before the one at work has ended, where there is room for it."""
        child = warm.child
        if (
            child is None
            or self.current is None
            or self.following is not None
            or warm.share <= len(self.current.tasks) + 1
        ):
            return
        order = self._order([claim], spec, warm, output=1 - self.current.output)
        order.sent = True
        child.print_to(order.write(self.clock), order.output)
        if child.send_ahead(order.words):
            self.following = order
        else:
            child.print_to(None, order.output)

    def recall(self, warm: HandlerPool) -> bool:
        """Whether what follows had not begun; then it never does."""
        if self.following is None:
            return True
        if self._exit is not None or warm.child is None or not warm.child.recall():
            return False
        warm.child.print_to(None, self.following.output)
        self.following = None
        return True

    def _order(self, claims: Sequence[Claim], spec: HandlerSpec, warm: HandlerPool, output: int = 0) -> Order:
        self._runs += 1
        share, home = len(claims), "" if warm.child is None else warm.child.home
        jobs: list[Mapping[str, object]] = []
        for number, claim in enumerate(claims):
            # An adapter goes with the model it was made for: a job that names another one has none.
            fits = claim.model in (None, warm.load.model)
            jobs.append(
                {
                    "job_id": claim.key.job_id,
                    "agent": claim.agent,
                    "payload": claim.payload,
                    "attempt": claim.attempt,
                    "token": claim.key.token,
                    "service_job_id": claim.service_job_id,
                    "seconds": None if claim.timeout is None else claim.timeout.total_seconds(),
                    "workspace": f"{home}/{self._runs}-{number}",
                    "model": claim.model or warm.load.model,
                    "adapter": warm.load.adapter if fits else None,
                    "variant": warm.load.variant if fits else None,
                }
            )
        books = (LogBook(lines=MOST_LINES // share, size=MOST_BYTES // share) for _ in claims)
        return Order(
            run=self._runs,
            spec=spec,
            tasks={claim.key: Task(claim=claim, book=book) for claim, book in zip(claims, books, strict=True)},
            words={"run": self._runs, "type": spec.type, "jobs": jobs, "output": output},
            output=output,
        )

    def _attend(self, order: Order, child: Child, models: Models) -> Stop | None:
        """Hands the order over and waits until each has ended, or the process is gone; why it was killed, if it was.

        The process ends itself when the claims are not renewed, even if this one stands still by then (W8).
        """
        killed: Stop | None = None
        handed_over = order.sent
        if not handed_over:
            self._until = None
        while not child.ended():
            kept_until = self.keeper.heard.kept_at + self.limits.self_fence.total_seconds()
            if self._until != kept_until:
                self._until = kept_until
                child.send({"run": order.run, "until": kept_until})
            if not handed_over:
                handed_over = True
                child.send(order.words)
            self.meanwhile()
            self._take(order, child, models)
            if any(task.word is None for task in order.tasks.values()):
                self._hear(order, child, models, self.limits.poll.total_seconds())
            at_work = [task for task in order.tasks.values() if task.word is None]
            if not at_work:
                return None
            if killed is not None:
                continue
            killed = self._stop(order, at_work, child)
            if killed is not None:
                child.kill()
        self._hear(order, child, models, 0)  # what it had said before it ended still counts
        return killed

    def _stop(self, order: Order, at_work: Sequence[Task], child: Child) -> Stop | None:
        """Tells jobs to stop, where they must; why the process has to be killed, if it has to."""
        now, stalls = self.clock.monotonic(), order.spec.stall_seconds
        for task in at_work:
            stop = must_stop(
                task.claim.key,
                now=now,
                heard=self.keeper.heard,
                leaving=self.leaving(),
                limits=self.limits,
                deadline=task.deadline,
                stalls_at=None if stalls is None else order.spoke_at + stalls,
            )
            if stop is None or (task.stop is not None and (task.stop.at_once or not stop.at_once)):
                continue
            task.stop = stop
            task.kill_at = now if stop.at_once else now + self.limits.stop_grace.total_seconds()
            self.say(f"job {task.claim.key.job_id} is stopped: {stop.value}")
            child.send({"run": order.run, "cancel": task.claim.key.job_id, "reason": stop.name})
        killed = next((task.stop for task in at_work if now >= task.kill_at), None)
        if killed is None and order.spec.memory_limit_mb is not None and now >= self._look_at:
            self._look_at = now + _MEMORY_LOOK_S
            return Stop.MEMORY if child.memory_mb() > order.spec.memory_limit_mb else None
        return killed

    def _hear(self, order: Order, child: Child, models: Models, wait_s: float) -> None:
        for answer in child.listen(wait_s):
            if "nonsense" in answer:
                for task in order.tasks.values():
                    task.word = task.word or {"failure": "user_error", "error": answer["nonsense"]}
                child.kill()
            elif self.following is not None and answer.get("run") == self.following.run:
                self.following.answers.append(answer)
            else:
                order.answers.append(answer)
        self._take(order, child, models)

    def _take(self, order: Order, child: Child | None, models: Models) -> None:
        """The answers that have come."""
        answers, order.answers = order.answers, []
        by_id = {str(task.claim.key.job_id): task for task in order.tasks.values()} if answers else {}
        for answer in answers:
            if "loaded" in answer or "unloaded" in answer:
                models.hear(answer)
            job_id = answer.get("job")
            task = by_id.get(job_id) if isinstance(job_id, str) else None
            if task is None or task.word is not None or answer.get("run") != order.run:
                continue
            order.spoke_at = self.clock.monotonic()
            if "result" in answer or "failure" in answer:
                task.word, task.ran = answer, _ran(answer.get("ran"), order.spoke_at - order.began, ahead=order.sent)
                order.made = order.made or bool(answer.get("made", True))
            elif "progress" in answer:
                done, note = answer["progress"], answer.get("note")
                if isinstance(done, int | float) and math.isfinite(done) and 0 <= done <= 1:
                    text = None if note is None else str(note).replace("\0", "")[:1000]
                    self.keeper.note_progress(task.claim.key, Progress(done=float(done), note=text))
            elif "log" in answer:
                lines = str(answer["log"]).splitlines()
                task.book.add([piece for line in lines for piece in split_lines(line)])
            elif child is not None and (answer.get("checkpoint") in ("get", "put") or "service" in answer):
                self.calls.run(task.claim.key, answer, child.send)


def _ran(said: object, measured: float, *, ahead: bool) -> float:
    """What the process says counts within what is possible: one that was sent ahead may be over before we look."""
    if not isinstance(said, int | float) or isinstance(said, bool) or not math.isfinite(said) or said < 0:
        return measured
    return min(said, _LONGEST_SAVED_S) if ahead else min(said, measured)


def _ending(task: Task, how: Exit | None, culprit: Stop | None) -> Ending | Abandoned:
    """`culprit` is why the process was stopped, where it was: for this job, or for another one of its batch."""
    key, stop, word = task.claim.key, task.stop, task.word
    ran = None if task.ran is None else timedelta(seconds=task.ran)
    if stop is Stop.LOST:
        return Abandoned(key, stop.value)
    if word is not None and "result" in word:
        # It was finished; whether that still counts is decided at the queue. What it says is not trusted.
        said = word.get("recovered")
        saved = None
        if isinstance(said, int | float) and not isinstance(said, bool) and 0 <= said <= _LONGEST_SAVED_S:
            saved = timedelta(seconds=said)
        return Done(key, word["result"], saved, ran)
    if stop in (Stop.TIMEOUT, Stop.STALLED):
        return _failed(key, FailureClass.TIMEOUT, stop.value)
    if stop is not None:
        return GivenBack(key, stop.value)
    if word is not None and word.get("failure") == FailureClass.INTERRUPTED.value:
        return GivenBack(key, str(word.get("error", "")))  # somebody stopped it at its service: not its fault
    if word is not None:
        # The handler names the class of its failure, but only of those that it can know about.
        said, error = str(word["failure"]), str(word.get("error", ""))
        if said == CANCELLED:
            return _failed(key, FailureClass.JOB_ERROR, f"the handler stopped, and nobody had asked: {error}")
        known = (FailureClass.USER_ERROR, FailureClass.OUT_OF_MEMORY, FailureClass.INFRASTRUCTURE)
        kind = next((each for each in known if each.value == said), FailureClass.JOB_ERROR)
        return replace(_failed(key, kind, error), ran=ran)
    if how is not None and how.fenced:
        return GivenBack(key, Stop.FENCED.value)
    if culprit is Stop.MEMORY:
        return _failed(key, FailureClass.OUT_OF_MEMORY, culprit.value)
    if culprit is not None:
        return GivenBack(key, f"another job of its batch had to be stopped: {culprit.value}")
    starved = how is not None and how.out_of_memory
    kind = FailureClass.OUT_OF_MEMORY if starved else FailureClass.JOB_ERROR
    return _failed(key, kind, f"the handler's process {how} without a word")


def _failed(key: ClaimKey, kind: FailureClass, error: str) -> Failed:
    return Failed(key, Failure(kind=kind, error=error))


class AsyncCalls:
    """Calls of the queue that a handler asks for, made aside so that its job stays watched."""

    def __init__(self, queue: WorkQueue, clock: Clock, *, patience: timedelta, threads: Threads | None = None) -> None:
        """An outage shorter than `patience` is none to the handler: it only waits longer."""
        self._queue, self._clock, self._patience = queue, clock, patience
        self._closed = Event()
        self._thread = (threads or SystemThreads()).line("async-calls")
        self._room = BoundedSemaphore(MOST_AT_ONCE)

    def run(self, key: ClaimKey, answer: Mapping[str, Any], reply: Reply) -> None:
        number = answer.get("ask")
        if not self._room.acquire(blocking=False):
            reply({"reply": number, "error": {"said": f"more than {MOST_AT_ONCE} were asked for at once"}})
            return
        self._thread.submit(self._go, key, answer, reply)

    def close(self) -> None:
        self._closed.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _go(self, key: ClaimKey, answer: Mapping[str, Any], reply: Reply) -> None:
        until = self._clock.monotonic() + self._patience.total_seconds()
        outcome: Mapping[str, object] | None = None
        try:
            while outcome is None:
                try:
                    if "service" in answer:
                        self._queue.mark_service(key, _mark(answer["service"]))
                        outcome = {"value": None}
                    elif answer["checkpoint"] == "put":
                        self._queue.put_checkpoint(key, answer.get("value"))
                        outcome = {"value": None}
                    else:
                        outcome = {"value": self._queue.get_checkpoint(key)}
                except InvalidRequest as error:
                    outcome = {"error": {"kind": "refused", "said": str(error)}}
                except HerdsmanError as error:
                    over = self._closed.is_set() or self._clock.monotonic() >= until
                    if over or isinstance(error, StaleWrite | NotFound):
                        outcome = {"error": {"said": str(error)}}
                    else:
                        self._clock.sleep(_PAUSE)
            reply({"reply": answer.get("ask"), **outcome})
        finally:
            self._room.release()


def _mark(said: Any) -> ServiceMark:
    """Words of a process that is not trusted."""
    match said:
        case {"id": str(external_id), "status": str(status)} if status in set(MarkStatus):
            return ServiceMark(external_id=external_id, status=MarkStatus(status))
        case _:
            raise InvalidRequest(f"{str(said)[:200]!r} does not say where a job is")
