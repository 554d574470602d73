"""The jobs of a work queue as messages: what each word becomes, and who keeps the claim alive."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from herdsman.errors import InvalidRequest, NotFound, StaleWrite, StoreUnavailable
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.model import Claim, ClaimKey, Failure, FailureClass
from herdsman.jobs.protocol import (
    ClaimRequest,
    Done,
    Ending,
    Failed,
    FinishAndClaim,
    FinishResult,
    GivenBack,
    HeartbeatReply,
    ServiceMark,
    WorkerHeartbeat,
)
from herdsman.loops import MainLoop, MainLoopRequest, WorkQueueMailbox
from herdsman.states import JobStatus
from tests.unit.loops.doubles import HandClock, eventually

KEY = ClaimKey(JobId("j1"), 7)
SOON = datetime(2030, 1, 1, tzinfo=UTC)


class Queue:
    """Gives what it was given, and writes down what it hears."""

    def __init__(self, *claims: Claim) -> None:
        self.claims = list(claims)
        self.asked: list[ClaimRequest] = []
        self.ended: list[Ending] = []
        self.pulses: list[WorkerHeartbeat] = []
        self.reply = HeartbeatReply(expires_at=SOON)
        self.refused: dict[type[object], tuple[str, bool]] = {}
        self.errors: list[Exception] = []
        self.left = False
        self.holding: list[ClaimKey] = []

    def claim(self, ask: ClaimRequest, wait: timedelta = timedelta(0)) -> Sequence[Claim]:  # noqa: ARG002
        self.asked.append(ask)
        self._fail()
        return [self.claims.pop(0)] if self.claims else []

    def held(self) -> Sequence[ClaimKey]:
        return self.holding

    def start(self, keys: Sequence[ClaimKey]) -> dict[ClaimKey, str]:
        raise AssertionError(f"{keys} were started with the claim")

    def beat(self, heartbeat: WorkerHeartbeat) -> HeartbeatReply:
        self.pulses.append(heartbeat)
        self._fail()
        return self.reply

    def finish(self, endings: Sequence[Ending], then: ClaimRequest | None = None) -> FinishAndClaim:  # noqa: ARG002
        self._fail()
        self.ended += endings
        return FinishAndClaim(told=[self._told(ending) for ending in endings])

    def get_checkpoint(self, key: ClaimKey) -> object:  # noqa: ARG002
        return None

    def put_checkpoint(self, key: ClaimKey, value: object) -> None: ...

    def mark_service(self, key: ClaimKey, mark: ServiceMark) -> None: ...

    def leave(self) -> None:
        self.left = True

    def _told(self, ending: Ending) -> FinishResult:
        if type(ending) in self.refused:
            why, stale = self.refused[type(ending)]
            return FinishResult(key=ending.key, refused=why, stale=stale)
        return FinishResult(key=ending.key, status=JobStatus.DONE)

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


def a_claim(payload: object = None) -> Claim:
    return Claim(
        key=KEY,
        worker_id=WorkerId("w1"),
        type="image",
        payload=payload,
        attempt=2,
        timeout=None,
        expires_at=SOON,
        service_job_id=None,
    )


class Job(MainLoop[Any, Any]):
    def __init__(self, mailbox: WorkQueueMailbox, work: Callable[[Any], object]) -> None:
        super().__init__(mailbox)
        self._work = work

    def perform(self, request: Any, beat: Callable[[], None]) -> Any:  # noqa: ARG002
        return self._work(request)


def opened(queue: Queue, **more: Any) -> WorkQueueMailbox:
    return WorkQueueMailbox(queue, ["image"], beat_interval=600, retry_delay=0, **more)


def run_one(queue: Queue, work: Callable[[Any], object]) -> None:
    Job(opened(queue), work).run(max_iterations=1, wait_time_seconds=0)


def test_a_job_is_begun_with_its_claim_and_ends_with_its_result() -> None:
    queue = Queue(a_claim({"n": 2}))
    run_one(queue, lambda request: request["n"] * 2)
    assert queue.asked == [ClaimRequest(types=("image",), begin=True)]
    assert queue.ended == [Done(KEY, 4)]


def test_a_message_names_its_claim() -> None:
    (message,) = opened(Queue(a_claim("x"))).receive(wait_time_seconds=0)
    assert (message.id, message.receipt_handle, message.delivery_count) == ("j1", "7", 2)
    assert message.body == MainLoopRequest[object](request="x")


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ValueError("bad"), FailureClass.JOB_ERROR), (MemoryError("full"), FailureClass.OUT_OF_MEMORY)],
)
def test_an_error_is_a_failure_and_the_queue_decides_about_the_next_try(error: Exception, kind: FailureClass) -> None:
    def fail(_: object) -> None:
        raise error

    queue = Queue(a_claim())
    run_one(queue, fail)
    (ending,) = queue.ended
    assert isinstance(ending, Failed)
    assert ending.failure.kind is kind
    assert str(error) in ending.failure.error


def test_a_nack_without_an_error_gives_the_job_back_and_a_burial_fails_it_for_good() -> None:
    queue = Queue(a_claim(), a_claim())
    mailbox = opened(queue)
    mailbox.receive(wait_time_seconds=0)[0].nack(visibility_timeout=0)
    mailbox.receive(wait_time_seconds=0)[0].reject(ValueError("bad"))
    given_back, rejected = queue.ended
    assert given_back == GivenBack(KEY, "its loop gave it back")
    assert isinstance(rejected, Failed)
    assert rejected.failure.kind is FailureClass.USER_ERROR


def test_a_result_that_cannot_be_taken_fails_the_job() -> None:
    queue = Queue(a_claim())
    queue.refused = {Done: ("the result is too large", False)}
    run_one(queue, lambda _: "x")
    failure = Failure(kind=FailureClass.USER_ERROR, error="the result is too large")
    assert queue.ended == [Done(KEY, "x"), Failed(KEY, failure)]


def test_an_end_that_comes_too_late_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    queue = Queue(a_claim())
    queue.refused = {Done: ("it has moved on", True)}
    run_one(queue, lambda _: "x")
    assert queue.ended == [Done(KEY, "x")]
    assert "is no longer ours" in caplog.text


def test_an_end_is_told_again_when_it_may_not_have_arrived() -> None:
    queue = Queue(a_claim())
    (message,) = opened(queue).receive(wait_time_seconds=0)
    queue.errors = [StoreUnavailable("away")] * 4
    message.ack("x")
    assert queue.ended == [Done(KEY, "x")]
    queue.errors = [StoreUnavailable("away")] * 5
    with pytest.raises(StoreUnavailable):
        message.ack("x")


def test_a_claim_whose_answer_was_lost_is_given_back_before_the_next() -> None:
    queue = Queue(a_claim())
    queue.errors = [StoreUnavailable("away")]
    mailbox = opened(queue)
    assert mailbox.receive(wait_time_seconds=0) == []
    queue.holding = [lost := ClaimKey(JobId("unheard"), 3)]
    assert len(mailbox.receive(wait_time_seconds=0)) == 1
    mailbox.receive(wait_time_seconds=0)
    assert queue.ended == [GivenBack(lost, "the answer that brought it was lost")]


def test_what_is_worked_on_here_is_not_given_back_when_another_answer_is_lost() -> None:
    queue = Queue(a_claim())
    mailbox = opened(queue)
    mailbox.receive(wait_time_seconds=0)
    queue.errors, queue.holding = [StoreUnavailable("away")], [KEY]
    for _ in range(2):
        mailbox.receive(wait_time_seconds=0)
    assert queue.ended == []


def test_a_loop_tells_the_end_of_its_message_for_as_long_as_it_takes() -> None:
    """J12"""
    queue = Queue(a_claim())

    def work(_: Any) -> str:
        queue.errors = [StoreUnavailable("away")] * 40
        return "x"

    run_one(queue, work)
    assert queue.ended == [Done(KEY, "x")]


def test_a_worker_that_is_no_longer_wanted_ends_its_loop() -> None:
    queue = Queue(a_claim())
    queue.errors = [NotFound("no such worker")]
    Job(opened(queue), lambda _: None).run()
    assert queue.ended == []


def test_beats_keep_a_message_only_while_somebody_answers_for_it() -> None:
    """The claim is short, the visibility long; without an extension the beats leave it out."""
    clock, queue = HandClock(), Queue(a_claim())
    mailbox = opened(queue, clock=clock)
    (message,) = mailbox.receive(visibility_timeout=60, wait_time_seconds=0)
    clock.advance(59)
    mailbox.beat()
    message.extend(60)
    clock.advance(59)
    mailbox.beat()
    clock.advance(1)
    mailbox.beat()
    assert [heartbeat.keys for heartbeat in queue.pulses] == [(KEY,), (KEY,), ()]
    with pytest.raises(StaleWrite, match="held too long"):
        message.extend(60)


def test_the_beats_come_by_themselves_whatever_happens_and_end_with_the_mailbox() -> None:
    queue = Queue(a_claim())
    mailbox = WorkQueueMailbox(queue, beat_interval=0.01)
    mailbox.receive(wait_time_seconds=0)
    queue.errors = [OSError("no name for this")]
    eventually(lambda: [heartbeat.keys for heartbeat in queue.pulses][:2] == [(KEY,), (KEY,)])
    mailbox.close()
    assert queue.left


@pytest.mark.parametrize("how", ["lost", "dismissed", "silence"])
def test_work_stops_when_its_claim_may_be_anothers(how: str) -> None:
    """W5"""
    clock, queue = HandClock(), Queue(a_claim())
    mailbox = opened(queue, clock=clock)
    (message,) = mailbox.receive(wait_time_seconds=0)
    match how:
        case "lost":
            queue.reply = HeartbeatReply(expires_at=SOON, lost={KEY: "claimed again"})
        case "dismissed":
            queue.errors = [StaleWrite("gone")]
        case _:
            queue.errors = [StoreUnavailable("away")]
            clock.advance(26)
    mailbox.beat()
    with pytest.raises(StaleWrite):
        message.extend(60)
    assert mailbox.closed is (how == "dismissed")


def test_a_cancelled_job_is_given_back_by_the_next_extension() -> None:
    queue = Queue(a_claim())
    queue.reply = HeartbeatReply(expires_at=SOON, cancel=frozenset({KEY}))
    mailbox = opened(queue)
    (message,) = mailbox.receive(wait_time_seconds=0)
    mailbox.beat()
    with pytest.raises(StaleWrite, match="cancelled"):
        message.extend(60)
    assert queue.ended == [GivenBack(KEY, "it was cancelled")]


def test_a_draining_worker_takes_nothing_more() -> None:
    queue = Queue(a_claim())
    queue.reply = HeartbeatReply(expires_at=SOON, drain=True)
    mailbox = opened(queue)
    mailbox.beat()
    assert mailbox.closed
    assert mailbox.receive(wait_time_seconds=600) == []
    assert queue.asked == []


def test_jobs_are_not_sent_through_a_worker() -> None:
    with pytest.raises(InvalidRequest, match="submit it as a job"):
        opened(Queue()).send(MainLoopRequest(request="x"))
