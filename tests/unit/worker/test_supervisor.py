"""The supervisor: stops, ends, lost answers, drains and partings, on a clock that the test moves."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from herdsman.errors import (
    ClaimsHeld,
    HerdsmanError,
    OutcomeUnknown,
    StaleWrite,
    StoreUnavailable,
    TooLarge,
    TooMany,
    Unreachable,
)
from herdsman.fleet.phases.health import LOADS_HANDLERS
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.model import Claim, ClaimKey, FailureClass, JobPolicy
from herdsman.jobs.protocol import ClaimRequest, Progress
from herdsman.states import JobStatus
from herdsman.worker.handler_process import Answer, Exit
from herdsman.worker.job_log import LogBook
from herdsman.worker.registry import HandlerSpec
from herdsman.worker.stop_rules import DeadMan, ExitReason
from tests.unit.worker.bench import Bench, FakeChild, done, silent


def executed(bench: Bench) -> list[tuple[str, int]]:
    """What handlers were given, job and token."""
    orders = [word for child in bench.children for word in child.sent if "jobs" in word]
    return [(job["job_id"], job["token"]) for order in orders for job in order["jobs"]]


def away_until(
    bench: Bench,
    back: float,
    when_back: Callable[[], object] = lambda: None,
    each: Callable[[], object] = lambda: None,
) -> None:
    """From the first end or beat on nothing is accepted before that second; then `when_back` comes first."""
    returned = list[bool]()

    def before(word: str) -> None:
        each()
        if word not in ("beat", "finish") and not returned:
            return
        if bench.clock.monotonic() < back:
            raise StoreUnavailable("restarting")
        if not returned:
            returned.append(True)
            when_back()

    bench.queue.before = before


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def test_a_result_is_delivered_and_progress_goes_out_with_the_beat() -> None:
    def play(child: FakeChild, order: Mapping[str, Any]) -> None:
        child.answer(order, {"progress": 0.5, "note": "half"})
        child.answer(order, {"nonsense of a kind": 1})
        bench.each_tick = lambda: beat_and_end(child, order)

    def beat_and_end(child: FakeChild, order: Mapping[str, Any]) -> None:
        assert bench.beat()
        reported.append(bench.job(job_id).progress)
        done(child, order)

    bench, reported = Bench(play), list[Progress | None]()
    job_id = bench.submit()
    bench.work()
    job = bench.job(job_id)
    assert (job.state, job.result) == (JobStatus.DONE, "ok")
    assert reported[0] == Progress(done=0.5, note="half")


def test_the_terminal_says_what_becomes_of_the_worker() -> None:
    """Once for each change, and never after the first job."""
    bench = Bench()
    for waits_for in ("it loads", "a GPU is required", "a GPU is required", None, None):
        bench.queue.not_active = LOADS_HANDLERS if waits_for == "it loads" else waits_for
        bench.keeper.beat()
    assert bench.said == ["not active yet: a GPU is required", "active: waiting for jobs"]


def test_a_job_that_comes_before_the_news_brings_it() -> None:
    bench = Bench()
    bench.queue.not_active = "the next control cycle makes it active"
    bench.keeper.beat()
    bench.submit()
    bench.work()
    said = [line for line in bench.said if "claimed" in line or "active" in line]
    assert said[0] == "not active yet: the next control cycle makes it active"
    assert said[1] == "active: waiting for jobs"
    assert "claimed" in said[2]


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ({"failure": "user_error", "error": "no such model"}, FailureClass.USER_ERROR),
        ({"failure": "out_of_memory", "error": "full"}, FailureClass.OUT_OF_MEMORY),
        ({"failure": "infrastructure", "error": "away"}, FailureClass.INFRASTRUCTURE),
        ({"failure": "worker_lost", "error": "a lie"}, FailureClass.JOB_ERROR),
        ({"failure": "cancelled", "error": "nobody asked"}, FailureClass.JOB_ERROR),
    ],
)
def test_a_failure_has_the_class_that_a_handler_can_know_about(word: Answer, kind: FailureClass) -> None:
    bench = Bench(lambda child, order: child.answer(order, word))
    job_id = bench.submit()
    bench.work()
    failure = bench.job(job_id).failure
    assert failure is not None
    assert failure.kind is kind


@pytest.mark.parametrize(
    ("how", "kind"),
    [(Exit(-11), FailureClass.JOB_ERROR), (Exit(-9, out_of_memory=True), FailureClass.OUT_OF_MEMORY)],
)
def test_a_process_that_ends_without_a_word_is_replaced(how: Exit, kind: FailureClass) -> None:
    def play(child: FakeChild, order: Mapping[str, Any]) -> None:
        del order
        child.exit = how

    bench = Bench(play)
    job_id = bench.submit()
    bench.work()
    failure = bench.job(job_id).failure
    assert failure is not None
    assert failure.kind is kind
    bench.play = done
    other = bench.submit("demo")
    bench.work()
    assert bench.job(other).state is JobStatus.DONE
    assert len(bench.children) == 2


def test_a_word_of_an_earlier_order_says_nothing_about_this_one() -> None:
    def play(child: FakeChild, order: Mapping[str, Any]) -> None:
        child.answers.append({"run": order["run"] - 1, "job": order["jobs"][0]["job_id"], "result": "old"})
        child.answer(order, {"result": "new"})

    bench = Bench(play)
    job_id = bench.submit()
    bench.work()
    assert bench.job(job_id).result == "new"


def test_a_cancelled_job_is_told_then_killed_then_cancelled() -> None:
    bench = Bench(silent)
    job_id = bench.submit()
    bench.each_tick = lambda: (bench.jobs.cancel(job_id), bench.beat())
    bench.work()
    assert {"run": 1, "cancel": job_id, "reason": "CANCELLED"} in bench.child.sent
    assert bench.child.killed_at == pytest.approx(30, abs=0.5)
    assert bench.job(job_id).state is JobStatus.CANCELLED


def test_a_job_past_its_timeout_fails_as_such() -> None:
    bench = Bench(silent)
    job_id = bench.submit(timeout=seconds(10))
    bench.work()
    failure = bench.job(job_id).failure
    assert failure is not None
    assert failure.kind is FailureClass.TIMEOUT
    assert bench.child.killed_at == pytest.approx(40, abs=0.5)


def test_a_job_that_shows_no_progress_is_stopped_and_one_that_does_is_not() -> None:
    bench = Bench(silent)
    job_id = bench.submit("slow")
    bench.work()
    failure = bench.job(job_id).failure
    assert failure is not None
    assert (failure.kind, failure.error) == (FailureClass.TIMEOUT, "the job showed no progress for too long")

    def lively(child: FakeChild, order: Mapping[str, Any]) -> None:
        def tick() -> None:
            bench.beat()
            child.answer(order, {"result": 1} if bench.clock.monotonic() > began + 60 else {"log": "on it"})

        bench.each_tick = tick

    began, bench.play = bench.clock.monotonic(), lively
    other = bench.submit("slow", job_id=JobId("lively"))
    bench.work()
    assert bench.job(other).state is JobStatus.DONE


def test_without_an_accepted_beat_the_job_is_killed_before_its_claim_runs_out() -> None:
    """W5"""
    bench = Bench(silent)
    job_id = bench.submit()

    away_until(bench, 28)
    bench.work()
    assert bench.child.killed_at == pytest.approx(25, abs=0.5)
    assert (bench.job(job_id).state, bench.job(job_id).spent) == (JobStatus.PENDING, 0), "it was given back"


def test_a_process_is_told_until_when_its_claim_holds_and_that_it_holds_none() -> None:
    """W8"""

    def play(child: FakeChild, order: Mapping[str, Any]) -> None:
        bench.each_tick = lambda: bench.beat() and bench.clock.monotonic() > 0.35 and done(child, order)

    bench = Bench(play)
    bench.submit()
    bench.work()
    said = [word["until"] for word in bench.child.sent if "until" in word]
    assert said == [pytest.approx(each) for each in (25.0, 25.1, 25.2, 25.3)] + [None]
    assert "until" in bench.child.sent[0], "before the job itself"


def test_a_job_whose_process_ended_itself_at_its_fence_goes_back_unharmed() -> None:
    """W8: whatever the beats say by the time that the supervisor goes on."""

    def play(child: FakeChild, order: Mapping[str, Any]) -> None:
        del order
        child.exit = Exit(-9, fenced=True)

    bench = Bench(play)
    job_id = bench.submit()
    bench.work()
    assert (bench.job(job_id).state, bench.job(job_id).spent) == (JobStatus.PENDING, 0)
    assert f"job {job_id} is stopped: no heartbeat was accepted for too long" in bench.said


def test_a_claim_that_went_to_another_is_killed_at_once_and_nobody_is_told() -> None:
    """J3"""
    bench = Bench(silent)
    job_id = bench.submit()

    def taken() -> None:
        bench.jobs.lose(job_id)
        bench.beat()

    bench.each_tick = taken
    bench.work()
    assert bench.child.killed_at == pytest.approx(0.1, abs=0.05)
    assert "finish" not in bench.queue.words


def test_memory_over_the_limit_kills_at_once() -> None:
    bench = Bench(silent)
    bench.first = {"ready": [{"type": "demo", "memory_limit_mb": 100}]}
    job_id = bench.submit()

    def grow() -> None:
        bench.child.memory = 101
        bench.beat()

    bench.each_tick = grow
    bench.work()
    failure = bench.job(job_id).failure
    assert failure is not None
    assert failure.kind is FailureClass.OUT_OF_MEMORY


def test_a_job_of_an_unknown_type_is_given_back_without_an_order() -> None:
    """J1: it waits for somebody who knows it."""
    bench = Bench()
    bench.warm.get_ready(timedelta(0))
    bench.warm.get_ready(timedelta(0))
    job_id = bench.submit()
    claims, asked_at = bench.supervisor.claim()
    bench.warm.specs = {kind: spec for kind, spec in bench.warm.specs.items() if kind != "demo"}
    bench.supervisor.work(claims, asked_at)
    assert bench.job(job_id).state is JobStatus.PENDING
    assert any("no handler for type 'demo'; here are: many, slow" in each for each in bench.said)


def test_a_process_that_died_while_it_waited_harms_no_job() -> None:
    bench = Bench()
    bench.warm.get_ready(timedelta(0))
    bench.warm.get_ready(timedelta(0))
    job_id = bench.submit()
    claims, asked_at = bench.supervisor.claim()
    bench.child.exit = Exit(-9)
    bench.supervisor.work(claims, asked_at)
    assert (bench.job(job_id).state, bench.job(job_id).spent) == (JobStatus.PENDING, 0)
    bench.work()
    assert bench.job(job_id).state is JobStatus.DONE


def test_a_result_that_is_refused_is_the_job_s_own_fault() -> None:
    bench = Bench(lambda child, order: child.answer(order, {"result": float("nan")}))
    job_id = bench.submit()
    bench.work()
    assert bench.job(job_id).state is JobStatus.DEAD_LETTER
    assert bench.job(job_id).failure is not None


def test_a_batch_whose_endings_are_too_large_together_is_told_in_parts() -> None:
    bench = Bench()
    ids = [bench.submit("many") for _ in range(4)]
    whole = bench.queue.finish

    def narrow(endings: Any, then: Any = None) -> Any:
        if len(endings) > 1:
            raise TooLarge("the request is 2 bytes over its limit")
        return whole(endings, then)

    bench.queue.finish = narrow  # type: ignore[method-assign]
    bench.work()
    assert all(bench.job(each).state is JobStatus.DONE for each in ids)


def test_a_job_that_comes_again_while_a_batch_fills_runs_under_its_newer_claim_alone() -> None:
    """The worker stood still, its claim expired, and the rest of the batch brings the same job once more."""
    bench = Bench()
    ids = [bench.submit("many") for _ in range(2)]
    first, other = bench.queue.claim(ClaimRequest(types=("many",), most={"many": 2}))
    newer = replace(first, key=ClaimKey(first.key.job_id, first.key.token + 1))
    spec = HandlerSpec(type="many", batch=4, linger_ms=10)

    def rest(ask: ClaimRequest, wait: timedelta = timedelta(0)) -> Any:
        del ask, wait
        return [newer]

    bench.queue.claim = rest  # type: ignore[method-assign]
    assert [claim.key for claim in bench.supervisor.fill_up([first, other], spec)] == [newer.key, other.key]
    assert {first.key.job_id, other.key.job_id} == set(ids)


def test_the_end_of_a_job_is_told_again_until_the_database_is_back() -> None:
    bench = Bench()
    outage = iter(["finish"] * 3)

    def fail(word: str) -> None:
        if word == "finish" and next(outage, None):
            raise StoreUnavailable("restarting")

    bench.queue.before = fail
    job_id = bench.submit()
    bench.work()
    assert bench.job(job_id).state is JobStatus.DONE


@pytest.mark.parametrize(("outage", "result"), [(3.0, "a"), (1200.0, "b"), (40.0, "large" * 300_000)])
def test_an_end_is_kept_and_told_for_as_long_as_its_claim_may_be_ours(outage: float, result: str) -> None:
    """J12: nobody took the job meanwhile, however long the database was away."""
    bench = Bench(lambda child, order: child.answer(order, {"result": result}))
    job_id = bench.submit()
    bench.jobs.policy = replace(bench.jobs.policy, claim_ttl=seconds(3600), max_result_bytes=8_000_000)
    away_until(bench, outage)
    bench.work()
    job = bench.job(job_id)
    assert (job.state, job.token, job.result) == (JobStatus.DONE, 1, result)
    assert executed(bench) == [(job_id, 1)]


def test_an_end_whose_claim_was_lost_to_another_is_let_go() -> None:
    """J12: the other half; and what the next claim brings is an execution of its own."""
    bench = Bench()
    job_id = bench.submit()
    away_until(bench, 60, lambda: bench.jobs.take(WorkerId("other"), ClaimRequest()))
    bench.work()
    assert f"job {job_id} was taken away before its end could be reported" in " ".join(bench.said)
    assert (bench.job(job_id).worker_id, bench.job(job_id).token) == ("other", 2)
    assert executed(bench) == [(job_id, 1)]


def test_a_worker_that_drains_tells_the_end_first_and_one_asked_twice_says_what_is_lost() -> None:
    for asked, state in ((1, JobStatus.DONE), (2, JobStatus.RUNNING)):
        bench = Bench()
        job_id = bench.submit()
        bench.jobs.policy = replace(bench.jobs.policy, claim_ttl=seconds(3600))

        signals = iter([bench.supervisor.drain] * asked)

        def later(bench: Bench = bench, signals: Iterator[Callable[[], None]] = signals) -> None:
            if bench.clock.monotonic() > 30:
                next(signals, lambda: None)()

        away_until(bench, 300, each=later)
        assert bench.supervisor.run().how is ExitReason.DRAINED
        assert bench.job(job_id).state is state
        said = f"the end of job {job_id} was not reported"
        assert any(said in each for each in bench.said) == (asked == 2)


@pytest.mark.parametrize("lost", ["claim", "finish"])
@pytest.mark.parametrize("kind", ["demo", "many"])
def test_a_claim_whose_answer_was_lost_goes_back_and_is_claimed_anew(lost: str, kind: str) -> None:
    """J11: it counts as begun, so it comes again under a new token only, and costs no attempt."""
    bench = Bench()
    ids = [bench.submit(kind) for _ in range(8)]
    lose = iter([lost])

    def cut(word: str) -> None:
        if word == lost and next(lose, None):
            raise OutcomeUnknown("the connection broke")

    bench.queue.after = cut
    bench.work()
    bench.work()
    for job_id in ids:
        assert (bench.job(job_id).state, bench.job(job_id).spent) == (JobStatus.DONE, 1)
    assert len(executed(bench)) == len(set(executed(bench))) == 8


def test_a_lost_claim_is_looked_for_until_no_request_can_be_under_way() -> None:
    """The request that seemed lost may be carried out after we have asked what we hold."""
    bench = Bench()
    first = bench.submit()
    late = iter(["claim"])

    def cut(word: str) -> None:
        if word == "claim" and next(late, None):
            raise OutcomeUnknown("the connection broke")

    bench.queue.before = cut
    bench.work()
    assert bench.job(first).token == 0

    def carried_out(word: str) -> None:
        if word == "claim":
            bench.queue.claim_late(ClaimRequest(begin=True))

    bench.queue.before = carried_out
    bench.work()
    bench.queue.before = lambda _: None
    bench.work()
    assert (bench.job(first).state, bench.job(first).token) == (JobStatus.DONE, 2)


def test_a_claim_that_was_begun_here_is_not_run_again_whatever_the_queue_says() -> None:
    """J11, on the worker's own side."""
    bench = Bench()
    job_id = bench.submit()
    usual, claims = bench.queue.claim, list[Claim]()

    def twice(ask: ClaimRequest, wait: timedelta = timedelta(0)) -> Any:
        claims.extend(usual(ask, wait) if not claims else ())
        return claims

    bench.queue.claim = twice  # type: ignore[method-assign]
    bench.work()
    bench.supervisor.work(claims, bench.clock.monotonic())
    assert executed(bench) == [(job_id, 1)]
    assert bench.job(job_id).state is JobStatus.DONE


def test_a_worker_that_drains_finishes_its_job_and_leaves() -> None:

    def play(child: FakeChild, order: Mapping[str, Any]) -> None:
        bench.supervisor.drain()
        done(child, order)

    bench = Bench(play)
    first, second = bench.submit(), bench.submit()
    assert bench.supervisor.run().how is ExitReason.DRAINED
    assert (bench.job(first).state, bench.job(second).state) == (JobStatus.DONE, JobStatus.PENDING)
    assert bench.queue.left
    assert bench.child.closed


def test_a_worker_whose_row_is_gone_kills_its_job_and_is_dismissed() -> None:
    """W2"""
    bench = Bench(silent)
    bench.submit()

    def gone() -> None:
        bench.queue.dismissed = True
        bench.beat()

    bench.each_tick = gone
    parted = bench.supervisor.run()
    assert parted.how is ExitReason.DISMISSED
    assert bench.child.killed_at is not None
    assert not bench.queue.left


def test_a_worker_that_nobody_owns_ends_itself_and_its_machine() -> None:
    """P6"""
    bench = Bench(deadman=DeadMan(max_lifetime=seconds(60)))
    parted = bench.supervisor.run()
    assert (parted.how.value, bench.ended_instance) == (3, 1)
    assert bench.queue.left


def test_a_longest_life_stops_a_job_that_goes_back_unharmed() -> None:
    bench = Bench(silent, deadman=DeadMan(max_lifetime=seconds(60)))
    job_id = bench.submit()
    assert bench.supervisor.run().how is ExitReason.UNOWNED
    assert (bench.job(job_id).state, bench.job(job_id).spent) == (JobStatus.PENDING, 0)


def test_a_handler_that_cannot_be_loaded_ends_the_worker() -> None:
    bench = Bench()
    bench.first = {"broken": "the handler 'x' cannot be imported"}
    bench.each_tick = lambda: setattr(bench.child, "exit", Exit(1))
    parted = bench.supervisor.run()
    assert (parted.how, parted.reason) == (ExitReason.BROKEN, "the handler 'x' cannot be imported")


def test_a_process_that_was_ready_once_is_started_again_but_not_for_ever() -> None:
    bench = Bench()
    bench.warm.get_ready(timedelta(0))
    assert bench.warm.get_ready(timedelta(0))
    for _ in range(30):
        if bench.children and not bench.child.closed:
            bench.child.exit = Exit(-11)
        bench.warm.get_ready(timedelta(0))
    assert bench.warm.fault == "the handler's process was ended by signal 11 (SIGSEGV) while no job ran"
    assert len(bench.children) == 3


def test_a_process_that_is_never_ready_is_given_up() -> None:
    bench = Bench()
    bench.first = {"hello": 1}
    bench.each_tick = lambda: None
    parted = bench.supervisor.run()
    assert (parted.how, parted.reason) == (
        ExitReason.BROKEN,
        "the handler's process was not ready within 0:10:00",
    )


def test_the_answer_to_a_beat_that_left_a_claim_out_does_not_keep_it() -> None:
    bench = Bench()
    later = ClaimKey(JobId("later"), 1)
    usual = bench.queue.beat

    def slow(pulse: Any) -> Any:
        bench.keeper.hold({later: LogBook()}, 3.0)  # it went on while the answer was on its way
        bench.clock.advance(seconds(1))
        return usual(pulse)

    bench.clock.advance(seconds(9))
    bench.queue.beat = slow  # type: ignore[method-assign]
    bench.beat()
    assert bench.keeper.heard.kept_at == 3.0


def test_a_broken_rule_of_the_queue_ends_in_dismissal() -> None:
    bench = Bench()

    def refuse(word: str) -> None:
        if word == "finish":
            raise StaleWrite("worker 'w1' is terminated")

    bench.queue.before = refuse
    bench.submit()
    assert bench.supervisor.run().how is ExitReason.DISMISSED


def test_the_last_lines_of_a_job_arrive_before_its_end() -> None:
    def play(child: FakeChild, order: Mapping[str, Any]) -> None:
        assert child.print is not None
        child.print([f"line {number}" for number in range(2_500)])
        done(child, order)

    bench = Bench(play)
    job_id = bench.submit()
    bench.work()
    assert len(bench.job(job_id).logs[1]) == 2_500
    assert "beat" not in bench.queue.words[bench.queue.words.index("finish") :]


def test_the_lines_of_a_lost_claim_are_not_sent_for_ever() -> None:
    def play(child: FakeChild, order: Mapping[str, Any]) -> None:
        assert child.print is not None
        child.print(["never to arrive"])
        bench.jobs.lose(order["jobs"][0]["job_id"])
        done(child, order)

    bench = Bench(play)
    bench.submit()
    bench.work()
    assert bench.queue.words.count("beat") == 1
    assert "was taken away before its end could be reported" in bench.said[-1]


def test_a_worker_without_room_takes_no_jobs_and_goes_on_when_there_is_some() -> None:
    """A full disk may be emptied: nothing fails, and no job is tried in vain."""
    bench = Bench()
    full = "only 3 MB of disk are free, and jobs need 100: make room"

    def fill(child: FakeChild, order: Mapping[str, Any]) -> None:
        bench.supervisor.short = lambda: full
        done(child, order)

    bench.play = fill
    first, second = bench.submit(), bench.submit()
    bench.work()
    assert [bench.job(each).state for each in (first, second)] == [JobStatus.DONE, JobStatus.PENDING]
    looks = iter([full, full])
    bench.supervisor.short = lambda: next(looks, None)

    def leave(child: FakeChild, order: Mapping[str, Any]) -> None:
        bench.supervisor.drain()
        done(child, order)

    bench.play = leave
    for child in bench.children:
        child.play = leave
    assert bench.supervisor.run().how is ExitReason.DRAINED
    assert bench.said.count(f"no job is taken: {full}") == 1
    assert bench.job(second).state is JobStatus.DONE


def raising(error: HerdsmanError) -> Callable[[str], None]:
    def fault(_word: str) -> None:
        raise error

    return fault


def test_w5_a_worker_that_is_told_that_claims_are_held_goes_on() -> None:
    """An outage of six minutes: the job is done in one attempt."""

    def play(child: FakeChild, order: Mapping[str, Any]) -> None:
        began = bench.clock.monotonic()

        def outage() -> None:
            away = bench.clock.monotonic() - began < 360
            bench.queue.before = raising(ClaimsHeld("the database is away")) if away else lambda _: None
            bench.beat()
            if not away:
                done(child, order)

        bench.each_tick = outage

    bench = Bench(play)
    # As the database keeps claims that nobody could renew.
    bench.jobs.policy = JobPolicy(claim_ttl=timedelta(hours=1))
    job_id = bench.submit()
    bench.work()
    assert (bench.job(job_id).state, bench.child.killed_at) == (JobStatus.DONE, None)


@pytest.mark.parametrize(
    "error", [StoreUnavailable("the database is away"), Unreachable("nobody answers"), TooMany("later")]
)
def test_w5_any_other_word_lets_a_worker_stop_its_job_in_time(error: HerdsmanError) -> None:
    """Another replica may have given it away by then."""
    bench = Bench(silent)
    bench.submit()
    began = bench.clock.monotonic()

    def broken(word: str) -> None:
        if bench.child.killed_at is None:
            raising(error)(word)

    def cut_off() -> None:
        bench.queue.before = broken
        bench.beat()

    bench.each_tick = cut_off
    bench.work()
    assert bench.child.killed_at is not None
    assert bench.child.killed_at - began <= 26


def test_w5_a_word_that_comes_too_late_revives_no_claim() -> None:
    """Who was stopped for a minute may have lost them before the outage began."""
    bench = Bench()
    bench.beat()
    bench.clock.sleep(timedelta(seconds=26))
    bench.queue.before = raising(ClaimsHeld("the database is away"))
    bench.beat()
    heard = bench.keeper.heard
    assert bench.clock.monotonic() - heard.kept_at >= 25
    assert heard.answered_at == bench.clock.monotonic()


def test_w5_what_was_said_of_other_claims_keeps_no_new_one() -> None:
    bench = Bench()
    bench.beat()
    asked_at = bench.clock.monotonic() - 30
    bench.queue.before = raising(ClaimsHeld("the database is away"))
    bench.beat()
    bench.keeper.hold({ClaimKey(JobId("late"), 1): LogBook()}, asked_at)
    assert bench.keeper.heard.kept_at == asked_at


@pytest.mark.parametrize(
    ("error", "how"),
    [(StoreUnavailable("away"), ExitReason.DRAINED), (Unreachable("gone"), ExitReason.UNOWNED)],
)
def test_p6_a_control_plane_whose_database_is_away_still_owns_its_workers(
    error: HerdsmanError, how: ExitReason
) -> None:
    bench = Bench(deadman=DeadMan(unowned_after=timedelta(seconds=900)))
    bench.queue.before = raising(error)
    for _ in range(200):
        bench.clock.sleep(timedelta(seconds=5))
        bench.beat()
    bench.supervisor.drain()
    assert bench.supervisor.run().how is how


def test_an_outage_is_said_once_and_its_end_once() -> None:
    bench = Bench()
    refused = Unreachable("POST http://far:1/x got no answer: ConnectError (refused); check that the server runs")
    bench.keeper.note_outage(refused, bench.clock.monotonic())
    bench.keeper.note_outage(refused, bench.clock.monotonic())
    began = bench.clock.monotonic()
    bench.clock.advance(timedelta(seconds=42))
    assert bench.keeper.beat()
    assert bench.said[:2] == [
        "lost the connection to the server: ConnectError (refused); retrying",
        "connected again after 42 s",
    ]
    bench.keeper.note_outage(refused, began)
    assert "lost the connection" not in "".join(bench.said[2:]), "sent before the last answer came"


def test_an_outage_says_until_when_the_job_at_hand_goes_on() -> None:
    bench = Bench()
    bench.keeper.hold({ClaimKey(JobId("j"), 1): LogBook()}, bench.clock.monotonic())
    bench.keeper.note_outage(StoreUnavailable("restarting"), bench.clock.monotonic())
    bench.keeper.note_connected(bench.clock.monotonic())
    bench.keeper.note_outage(ClaimsHeld("its database is away"), bench.clock.monotonic())
    first, _, second = bench.said
    assert re.fullmatch(
        r"the server accepts no requests: restarting; retrying, the running job goes on until \d\d:\d\d:\d\d",
        first,
    )
    assert second == "the server accepts no requests: its database is away; retrying", "nobody takes it away"
