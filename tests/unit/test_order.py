"""Who is next: priority with aging, and the bound on how long anybody can be overtaken."""

import heapq
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from herdsman.ids import HIGHEST, LOWEST
from herdsman.jobs.rules import longest_overtaking, place

START = datetime(2026, 1, 1, tzinfo=UTC)
MOMENTS = st.timedeltas(timedelta(0), timedelta(days=400)).map(lambda after: START + after)
PRIORITIES = st.integers(LOWEST, HIGHEST)
STEPS = st.timedeltas(timedelta(milliseconds=1), timedelta(hours=1))
MICROSECOND = timedelta(microseconds=1)
ARRIVALS = st.lists(
    st.tuples(st.timedeltas(timedelta(0), timedelta(minutes=5)), st.integers(-5, 5), st.booleans()),
    max_size=60,
)


@given(MOMENTS, MOMENTS, PRIORITIES, STEPS)
def test_of_one_priority_the_first_to_be_due_goes_first(
    one: datetime, other: datetime, priority: int, step: timedelta
) -> None:
    assert (place(one, priority, step) < place(other, priority, step)) == (one < other)


@given(MOMENTS, PRIORITIES, PRIORITIES, STEPS)
def test_of_one_moment_the_higher_priority_goes_first(due: datetime, one: int, other: int, step: timedelta) -> None:
    assert (place(due, one, step) < place(due, other, step)) == (one > other)


@given(MOMENTS, PRIORITIES, PRIORITIES, STEPS)
def test_a_point_of_priority_is_worth_one_step(due: datetime, one: int, other: int, step: timedelta) -> None:
    assert place(due, one, step) == place(due + (other - one) * step, other, step)


@given(MOMENTS, PRIORITIES, PRIORITIES, STEPS)
def test_nobody_is_overtaken_by_one_that_came_later_than_the_bound(
    due: datetime, waiting: int, other: int, step: timedelta
) -> None:
    late = due + longest_overtaking(waiting, step) + MICROSECOND
    assert place(due, waiting, step) < place(late, other, step)


@given(MOMENTS, PRIORITIES.filter(lambda priority: priority < HIGHEST), STEPS)
def test_the_bound_is_the_best_that_can_be_said(due: datetime, waiting: int, step: timedelta) -> None:
    within = due + longest_overtaking(waiting, step) - MICROSECOND
    assert place(within, HIGHEST, step) < place(due, waiting, step)


@given(ARRIVALS, st.timedeltas(timedelta(seconds=1), timedelta(minutes=2)))
def test_in_a_whole_queue_no_job_waits_for_one_that_came_after_the_bound(
    arrivals: list[tuple[timedelta, int, bool]], step: timedelta
) -> None:
    """A server takes one whenever it is free; each job taken is checked against all that still wait."""
    now = START
    queue: list[tuple[int, int, datetime, int]] = []
    for number, (pause, priority, server_is_free) in enumerate(arrivals):
        now += pause
        heapq.heappush(queue, (place(now, priority, step), number, now, priority))
        if server_is_free:
            _, _, due, taken = heapq.heappop(queue)
            assert all(due - other_due <= (taken - other) * step for _, _, other_due, other in queue)


@given(MOMENTS, PRIORITIES, STEPS)
def test_a_place_fits_into_eight_bytes(due: datetime, priority: int, step: timedelta) -> None:
    assert -(2**63) <= place(due, priority, step) < 2**63
