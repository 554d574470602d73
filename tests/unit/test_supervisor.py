"""The supervisor with a queue, a clock and a job that the test plays."""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from herdsman.core.errors import HerdsmanError, StaleWrite, StoreUnavailable, TooLarge
from herdsman.core.gpu import GpuReport
from herdsman.core.model import Beat, Claim, ClaimKey, Failure, JobId, WorkerId
from herdsman.core.retry import FailureClass
from herdsman.core.states import JobState
from herdsman.worker.child import Answer
from herdsman.worker.keeper import Heard, Keeper
from herdsman.worker.supervisor import TICK, Supervisor
from herdsman.worker.watch import Leaving, Limits, Stop, must_stop

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = ClaimKey(JobId("j1"), 1)
LIMITS = Limits(
    self_fence=timedelta(seconds=25), drain_grace=timedelta(seconds=600), stop_grace=timedelta(seconds=30)
)


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, duration: timedelta) -> None:
        self.now += duration.total_seconds()


class FakeQueue:
    def __init__(self, *claims: Claim) -> None:
        self.claims = deque(claims)
        self.words: list[str] = []
        self.answer = Beat(expires_at=NOON, cancel=False, drain=False)
        self.refusal: HerdsmanError | None = None
        self.too_large = False
        self.beats: list[ClaimKey | None] = []

    def claim(self, types: Sequence[str]) -> Claim | None:
        assert types == ("demo",), "a worker asks for what it can run"
        self._check()
        return self.claims.popleft() if self.claims else None

    def start(self, key: ClaimKey) -> None:
        self._say(f"start {key.job_id}")

    def beat(self, key: ClaimKey | None, report: GpuReport | None = None) -> Beat:
        del report
        self._check()
        self.beats.append(key)
        return self.answer

    def progress(self, key: ClaimKey, done: float, note: str | None = None) -> None:
        self._say(f"progress {key.job_id} {done} {note}")

    def complete(self, key: ClaimKey, result: object) -> JobState:
        if self.too_large:
            raise TooLarge("result is 9 bytes")
        return self._say(f"complete {key.job_id} {result}", JobState.DONE)

    def fail(self, key: ClaimKey, failure: Failure) -> JobState:
        return self._say(f"fail {key.job_id} {failure.kind}", JobState.FAILED)

    def release(self, key: ClaimKey, why: str) -> JobState:
        return self._say(f"release {key.job_id}: {why}", JobState.PENDING)

    def leave(self) -> None:
        self._say("leave")

    def _say(self, word: str, state: JobState = JobState.RUNNING) -> JobState:
        self._check()
        self.words.append(word)
        return state

    def _check(self) -> None:
        if self.refusal is not None:
            raise self.refusal


class FakeChild:
    """Answers as the test says; runs until its end, or until it is stopped."""

    def __init__(
        self,
        clock: FakeClock,
        *,
        ends_after: float = 1e9,
        answers: Sequence[Answer] = (),
        obeys: bool = True,
        each_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.clock = clock
        self.ends_at = clock.now + ends_after
        self.answers = list(answers)
        self.obeys = obeys
        self.each_tick = each_tick
        self.signals: list[tuple[str, float]] = []

    def listen(self, wait_s: float) -> Sequence[Answer]:
        self.clock.now += wait_s
        self.each_tick()
        said, self.answers = self.answers, []
        return said

    def ended(self) -> bool:
        return self.clock.now >= self.ends_at

    def ask_to_stop(self) -> None:
        self.signals.append(("term", self.clock.now))
        if self.obeys:
            self.ends_at = self.clock.now

    def kill(self) -> None:
        self.signals.append(("kill", self.clock.now))
        self.ends_at = self.clock.now

    def close(self) -> str:
        return "ended with status 1"


def a_claim(**wanted: Any) -> Claim:
    usual: dict[str, Any] = {
        "key": KEY,
        "worker_id": WorkerId("w1"),
        "type": "demo",
        "payload": {},
        "attempt": 1,
        "timeout": None,
        "expires_at": NOON,
        "service_job_id": None,
    }
    return Claim(**usual | wanted)


class Bench:
    """One supervisor; its keeper beats when the test says so, not from a thread."""

    def __init__(self, **claim: Any) -> None:
        self.clock = FakeClock()
        self.queue = FakeQueue()
        self.said: list[str] = []
        self.keeper = Keeper(self.queue, self.clock, timedelta(seconds=5), lambda: None, self.said.append)
        self.claim = a_claim(**claim)
        self.children: list[FakeChild] = []

    def work(self, child: FakeChild) -> Supervisor:
        self.children.append(child)
        supervisor = Supervisor(
            queue=self.queue,
            keeper=self.keeper,
            clock=self.clock,
            limits=LIMITS,
            poll=timedelta(seconds=1),
            types=("demo",),
            launch=lambda _claim: child,
            say=self.said.append,
        )
        supervisor.work(self.claim, self.clock.now)
        return supervisor

    def beat_every_tick(self) -> None:
        self.keeper.beat()


def test_a_result_is_delivered_and_progress_goes_out_with_the_beat() -> None:
    bench = Bench()
    answers: list[Answer] = [{"progress": 0.5, "note": "half"}, {"result": {"ok": 1}}, {"nonsense": 1}]
    bench.work(FakeChild(bench.clock, ends_after=1, answers=answers, each_tick=bench.beat_every_tick))
    assert bench.queue.words == ["start j1", "progress j1 0.5 half", "complete j1 {'ok': 1}"]
    assert set(bench.queue.beats) == {KEY}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"failure": "user_error", "error": "no such model"}, FailureClass.USER_ERROR),
        ({"failure": "out_of_memory", "error": "full"}, FailureClass.OUT_OF_MEMORY),
        ({"failure": "worker_lost", "error": "a lie"}, FailureClass.JOB_ERROR),
        ({"progress": float("nan")}, FailureClass.JOB_ERROR),
    ],
)
def test_a_failure_has_the_class_that_the_handler_can_know_about(answer: Answer, kind: str) -> None:
    bench = Bench()
    bench.work(FakeChild(bench.clock, ends_after=1, answers=[answer], each_tick=bench.beat_every_tick))
    assert bench.queue.words == ["start j1", f"fail j1 {kind}"]


def test_a_job_of_an_unknown_type_is_given_back_without_a_process() -> None:
    """J1: it waits for somebody who knows it."""
    bench = Bench(type="other")
    bench.work(FakeChild(bench.clock))
    assert bench.queue.words == ["release j1: no handler for type 'other'; here are: demo"]
    assert "no handler for type 'other'; here are: demo" in bench.said[-1]


def test_a_cancelled_job_is_asked_to_stop_then_killed_then_given_back() -> None:
    bench = Bench()
    bench.queue.answer = Beat(expires_at=NOON, cancel=True, drain=False)
    child = FakeChild(bench.clock, obeys=False, each_tick=bench.beat_every_tick)
    bench.work(child)
    assert [word for word, _ in child.signals] == ["term", "kill"]
    assert child.signals[1][1] - child.signals[0][1] == pytest.approx(30, abs=0.2)
    assert bench.queue.words == ["start j1", "release j1: it was cancelled"]


def test_a_job_past_its_timeout_fails_as_such() -> None:
    bench = Bench(timeout=timedelta(seconds=10))
    child = FakeChild(bench.clock, each_tick=bench.beat_every_tick)
    bench.work(child)
    assert child.signals[0] == ("term", pytest.approx(10, abs=0.2))
    assert bench.queue.words[-1] == "fail j1 timeout"


def test_without_an_accepted_beat_the_job_is_killed_before_its_claim_runs_out() -> None:
    """W5"""
    bench = Bench()

    def cut_off() -> None:
        bench.queue.refusal = StoreUnavailable("no route")
        bench.keeper.beat()

    child = FakeChild(bench.clock, obeys=False, each_tick=cut_off)
    bench.work(child)
    assert [word for word, _ in child.signals] == ["term", "kill"]
    assert child.signals[1][1] == pytest.approx(25, abs=0.2)
    assert bench.queue.words == ["start j1"]
    assert "has an end that could not be told" in bench.said[-1]


def test_a_claim_that_went_to_another_is_killed_at_once_and_nobody_is_told() -> None:
    bench = Bench()

    def taken() -> None:
        bench.queue.refusal = StaleWrite("claim 1 may not keep job 'j1'")
        bench.keeper.beat()

    child = FakeChild(bench.clock, obeys=False, each_tick=taken)
    bench.work(child)
    assert child.signals[-1] == ("kill", pytest.approx(TICK.total_seconds()))
    assert bench.queue.words == ["start j1"]


def test_a_worker_that_drains_finishes_its_job_and_leaves() -> None:
    bench = Bench()
    bench.queue.claims.append(bench.claim)
    bench.queue.claims.append(a_claim(key=ClaimKey(JobId("j2"), 1)))
    child = FakeChild(bench.clock, ends_after=20, answers=[{"result": 1}], each_tick=bench.beat_every_tick)
    supervisor = Supervisor(
        queue=bench.queue,
        keeper=bench.keeper,
        clock=bench.clock,
        limits=LIMITS,
        poll=timedelta(seconds=1),
        types=("demo",),
        launch=lambda _claim: _drained(supervisor, child),
        say=bench.said.append,
    )
    assert supervisor.run() is None
    assert bench.queue.words == ["start j1", "complete j1 1", "leave"]
    assert child.signals == []


def _drained(supervisor: Supervisor, child: FakeChild) -> FakeChild:
    supervisor.drain()
    return child


def test_asked_twice_it_gives_the_job_back() -> None:
    bench = Bench()
    supervisor_asked = Leaving(since=0.0, at_once=True)
    heard = Heard(bench.clock.monotonic())
    assert (
        must_stop(now=1, heard=heard, leaving=supervisor_asked, limits=LIMITS, deadline=None) is Stop.DRAINED
    )
    once = Leaving(since=0.0)
    beaten = Heard(599.0)
    assert must_stop(now=599, heard=beaten, leaving=once, limits=LIMITS, deadline=None) is None
    assert must_stop(now=600, heard=beaten, leaving=once, limits=LIMITS, deadline=None) is Stop.DRAINED


def test_a_result_that_is_refused_is_the_job_s_own_fault() -> None:
    bench = Bench()
    bench.queue.too_large = True
    answers: list[Answer] = [{"result": "x" * 9}]
    bench.work(FakeChild(bench.clock, ends_after=1, answers=answers, each_tick=bench.beat_every_tick))
    assert bench.queue.words == ["start j1", "fail j1 user_error"]


def test_the_end_of_a_job_is_told_again_until_the_database_is_back() -> None:
    bench = Bench()
    outage = iter([StoreUnavailable("restarting")] * 3)

    def complete(_key: ClaimKey, _result: object) -> JobState:
        error = next(outage, None)
        if error is not None:
            raise error
        return JobState.DONE

    bench.queue.complete = complete  # type: ignore[method-assign]
    answers: list[Answer] = [{"result": 1}]
    bench.work(FakeChild(bench.clock, ends_after=1, answers=answers, each_tick=bench.beat_every_tick))
    assert bench.said[-1] == "job j1 is done"


def test_a_worker_whose_row_is_gone_is_dismissed() -> None:
    """W2"""
    bench = Bench()
    bench.queue.refusal = StaleWrite("worker 'w1' is terminated: stop its handler and exit")
    bench.keeper.beat()
    assert bench.keeper.heard.dismissed == str(bench.queue.refusal)


def test_a_late_answer_about_an_earlier_claim_says_nothing_about_this_one() -> None:
    bench = Bench()
    later = ClaimKey(JobId("j2"), 7)

    def slow_beat(_key: ClaimKey | None, _report: GpuReport | None = None) -> Beat:
        bench.keeper.hold(later, 3.0)  # it went on while the answer was on its way
        if bench.queue.refusal is not None:
            raise bench.queue.refusal
        return Beat(expires_at=NOON, cancel=True, drain=False)

    bench.queue.beat = slow_beat  # type: ignore[method-assign]
    for bench.queue.refusal in (None, StaleWrite("old news")):
        bench.keeper.hold(KEY, 0.0)
        bench.keeper.beat()
        assert bench.keeper.heard == Heard(3.0)
