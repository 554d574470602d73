"""Taking jobs ahead: how many, when they go back, and what is told behind."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.errors import Unreachable
from herdsman.ids import JobId
from herdsman.jobs.protocol import ClaimRequest
from herdsman.states import JobStatus
from herdsman.worker.ahead import Durations, Prefetch, kept_ahead, take_ahead
from herdsman.worker.handler_process import Exit
from herdsman.worker.stop_rules import ExitReason
from tests.unit.worker.bench import Bench, FakeChild, done

USUAL = Prefetch()
SHORT, LONG = 0.001, 10.0


@pytest.mark.parametrize(
    ("expected", "left", "waiting", "wanted"),
    [
        ({"short": SHORT}, 0.0, [], {"short": 50}),
        ({"short": SHORT}, 0.0, [SHORT] * 30, {"short": 20}),
        ({"short": 0.0001}, 0.0, [], {"short": 63}),
        ({"short": 0.03}, 0.03, [], {"short": 1}),
        ({"short": 0.03}, 0.03, [0.03], {}),
        ({"long": LONG}, 5.0, [], {}),
        ({"long": LONG, "short": SHORT}, 0.4, [], {"long": 1, "short": 1}),
        ({"long": LONG}, 0.4, [LONG], {}),
        ({"long": LONG, "short": SHORT}, 0.0, [], {"long": 1, "short": 50}),
        ({}, 0.0, [], {}),
        ({"short": SHORT}, None, [], {}),
    ],
)
def test_a_worker_holds_what_it_works_off_in_a_moment_and_one_behind_a_longer_job(
    expected: Mapping[str, float], left: float | None, waiting: list[float], wanted: Mapping[str, int]
) -> None:
    assert take_ahead(expected, left=left, waiting=waiting, prefetch=USUAL) == wanted


@given(
    st.dictionaries(st.sampled_from("abc"), st.floats(0.0001, 100)),
    st.floats(0, 100),
    st.lists(st.floats(0.0001, 100), max_size=70),
    st.integers(1, 100),
)
def test_never_more_is_held_than_may_be(
    expected: dict[str, float], left: float, waiting: list[float], most: int
) -> None:
    found = take_ahead(expected, left=left, waiting=waiting, prefetch=Prefetch(most=most))
    assert all(0 < count <= max(0, most - 1 - len(waiting)) for count in found.values())
    assert most > 1 or found == {}


@pytest.mark.parametrize(
    ("lengths", "left", "late", "kept"),
    [
        ([SHORT] * 5, 0.0, 0.0, 5),
        ([SHORT] * 5, 0.0, 1.1, 0),
        ([LONG], 0.4, 0.0, 1),
        ([LONG, SHORT], 0.4, 0.0, 1),
        ([SHORT], 5.0, 0.0, 0),
    ],
)
def test_what_would_begin_too_late_goes_back(lengths: list[float], left: float, late: float, kept: int) -> None:
    assert kept_ahead(lengths, left=left, late=late, prefetch=USUAL) == kept


def test_nothing_is_known_of_a_type_before_a_few_of_its_jobs_have_ended() -> None:
    known = Durations(3)
    for seconds in (1.0, 1.0):
        known.note("a", seconds)
    assert known.of("a") is None
    known.note("a", 2.0)
    assert known.of("a") == pytest.approx(1.2)


def knowing(bench: Bench, seconds: float = 0.001) -> Bench:
    """A worker that knows how long its jobs take."""
    for _ in range(3):
        bench.supervisor._durations.note("demo", seconds)  # pyright: ignore[reportPrivateUsage]
    return bench


def until_held(bench: Bench, count: int, then: Callable[[], object]) -> Callable[[], object]:
    """Each tick: once the worker holds so many, `then` happens."""

    def tick() -> None:
        bench.beat()
        if len(bench.jobs.held_by(bench.queue.worker_id)) >= count:
            then()

    return tick


def stay(bench: Bench, job_id: JobId, then: Callable[[FakeChild, Mapping[str, Any]], object]) -> None:
    """This one job goes on until `then` ends it; all others are done at once."""

    def play(child: FakeChild, order: Mapping[str, Any]) -> None:
        if order["jobs"][0]["job_id"] == job_id:
            bench.each_tick = lambda: (bench.beat(), then(child, order))
        else:
            done(child, order)

    bench.play = play
    for child in bench.children:
        child.play = play


def nothing(_child: FakeChild, _order: Mapping[str, Any]) -> None:
    """Goes on."""


def states(bench: Bench, ids: list[JobId]) -> list[JobStatus]:
    return [bench.job(each).state for each in ids]


def test_short_jobs_are_taken_together_and_each_is_done_once() -> None:
    bench = knowing(Bench())
    ids = [bench.submit() for _ in range(50)]
    bench.work()
    assert set(states(bench, ids)) == {JobStatus.DONE}
    assert {bench.job(each).row.attempts for each in ids} == {1}
    assert len(bench.queue.words) < 30, "not one request for each job"
    orders = [word for word in bench.child.sent if "jobs" in word]
    assert len(orders) == len({word["jobs"][0]["job_id"] for word in orders}) == 50


def test_strictly_one_in_hand_where_a_setting_says_so() -> None:
    bench = knowing(Bench())
    bench.supervisor.prefetch = Prefetch(most=1)
    most = list[int]()
    for _ in range(6):
        bench.submit()
    bench.queue.after = lambda _: most.append(len(bench.jobs.held_by(bench.queue.worker_id)))
    bench.work()
    assert max(most) == 1


def test_of_a_type_that_may_not_be_held_none_is_taken_ahead() -> None:
    bench = knowing(Bench())
    bench.first = {"ready": [{"type": "demo", "prefetch": 1}]}
    most = list[int]()
    for _ in range(6):
        bench.submit()
    bench.queue.after = lambda _: most.append(len(bench.jobs.held_by(bench.queue.worker_id)))
    bench.work()
    assert max(most) == 1


def behind_a_long_one(bench: Bench, then: Callable[[FakeChild, Mapping[str, Any]], object]) -> list[JobId]:
    """The second job turns out long, and the others were taken ahead of its end."""
    ids = [bench.submit() for _ in range(6)]
    stay(bench, ids[1], then)
    return ids


@pytest.mark.parametrize("why", ["long", "drain", "swap", "disk", "unfit"])
def test_j14_claims_not_begun_go_back_within_a_second_and_count_no_attempt(why: str) -> None:
    bench = knowing(Bench())
    gone_at, asked_at = list[float](), list[float]()

    def look(child: FakeChild, order: Mapping[str, Any]) -> None:
        now = bench.clock.monotonic()
        if not asked_at:
            asked_at.append(now)
            match why:
                case "drain":
                    bench.supervisor.drain()
                case "swap":
                    bench.keeper.heard = replace(bench.keeper.heard, load=LOAD)
                case "disk":
                    bench.supervisor.short = lambda: "the disk is full"
                case "unfit":
                    bench.supervisor.unfit = lambda: {"demo": "its service is away"}
                case _:
                    pass
        if len(bench.jobs.held_by(bench.queue.worker_id)) == 1:
            gone_at.append(now)
            bench.supervisor.drain()
            done(child, order)

    from herdsman.jobs.protocol import Load  # noqa: PLC0415

    LOAD = Load(revision=1, model="org/other")  # noqa: N806
    ids = behind_a_long_one(bench, look)
    parted = bench.supervisor.run()
    assert parted.how is ExitReason.DRAINED
    assert states(bench, ids) == [JobStatus.DONE] * 2 + [JobStatus.PENDING] * 4
    assert gone_at[0] - asked_at[0] <= (1.3 if why == "long" else 0.3)
    for each in ids[2:]:
        job = bench.job(each).row
        assert (job.attempts, job.interruptions) == (0, 0)
        assert job.place == min(job.place, bench.job(ids[0]).row.place + 10**6), "it kept its place"


def test_a_job_that_is_cancelled_before_it_begins_is_never_run() -> None:
    bench = knowing(Bench())

    def cancel(child: FakeChild, order: Mapping[str, Any]) -> None:
        bench.jobs.cancel(ids[2])
        if bench.job(ids[2]).state is JobStatus.CANCELLED:
            done(child, order)

    ids = behind_a_long_one(bench, cancel)
    bench.work()
    assert states(bench, ids)[2] is JobStatus.CANCELLED
    assert all(
        job["job_id"] != ids[2] for child in bench.children for word in child.sent for job in word.get("jobs", ())
    )


def test_when_the_process_ends_only_the_job_that_had_begun_is_charged() -> None:
    def crash(child: FakeChild, _order: Mapping[str, Any]) -> None:
        child.exit = Exit(-11)
        stay(bench, JobId("none"), nothing)

    bench = knowing(Bench())
    ids = behind_a_long_one(bench, crash)
    bench.work()
    assert bench.job(ids[1]).state is JobStatus.FAILED
    assert {bench.job(each).spent for each in ids[2:]} == {0}
    bench.work()
    assert {bench.job(each).row.attempts for each in ids[2:]} == {1}


def test_a_more_urgent_job_goes_before_one_that_was_taken_ahead() -> None:
    """Behind a long job one is ready; what comes meanwhile and is more urgent is run first."""
    bench = knowing(Bench(), 0.8)
    began = list[float]()

    def submit(child: FakeChild, order: Mapping[str, Any]) -> None:
        now = bench.clock.monotonic()
        began.append(now)
        if len(bench.jobs.held_by(bench.queue.worker_id)) == 2 and len(urgent) == 0:
            urgent.append(bench.submit(priority=50))
        if now - began[0] >= 0.8:
            done(child, order)

    urgent = list[JobId]()
    first, second = bench.submit(), bench.submit()
    stay(bench, first, submit)
    bench.work()
    order = [job["job_id"] for word in bench.child.sent for job in word.get("jobs", ())]
    begun = [each for number, each in enumerate(order) if each not in order[number + 1 :]]
    assert begun == [first, *urgent, second]
    assert {bench.job(each).row.attempts for each in (first, second, *urgent)} == {1}


def test_j12_ends_that_cannot_be_told_are_kept_while_the_next_jobs_run() -> None:
    bench = knowing(Bench())
    away = [True]

    def cut(word: str) -> None:
        if word == "finish" and away[0] and bench.job(ids[-1]).token:
            if bench.clock.monotonic() > 3:
                away[0] = False
            raise Unreachable("nobody answers")

    ids = [bench.submit() for _ in range(20)]
    bench.queue.before = cut
    bench.work()
    bench.work()
    assert set(states(bench, ids)) == {JobStatus.DONE}
    assert {bench.job(each).spent for each in ids} == {1}


def test_a_job_that_was_taken_ahead_and_lasts_is_shown_as_running() -> None:
    bench = knowing(Bench())
    shown = list[JobStatus]()

    def look(child: FakeChild, order: Mapping[str, Any]) -> None:
        shown.append(bench.job(ids[1]).state)
        if shown[-1] is JobStatus.RUNNING or len(shown) > 20:
            done(child, order)

    ids = behind_a_long_one(bench, look)
    bench.work()
    assert shown[-1] is JobStatus.RUNNING
    assert ClaimRequest().ahead == {}
    assert bench.job(ids[2]).row.started_at is not None, "how long it ran says when it began"
    assert timedelta(0) <= bench.job(ids[1]).row.finished_at - bench.job(ids[1]).row.started_at  # type: ignore[operator]
