"""A guess about the end of a job: plain numbers in, plain numbers out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.explain.eta import Guess, Line, quantile, rest_of, spread, start_of

TEN = (10.0,) * 20
MIXED = (5.0, 10.0, 15.0, 20.0, 100.0)


@pytest.mark.parametrize(("share", "value"), [(0, 1), (0.5, 2.5), (1, 4), (0.8, 3.4)])
def test_a_quantile_lies_between_its_neighbours(share: float, value: float) -> None:
    assert quantile([4, 1, 3, 2], share) == pytest.approx(value)


def test_with_a_free_worker_it_starts_at_once() -> None:
    assert start_of(Line(ahead=1, workers=4, free=2), TEN, ()) == Guess(0, 0)


def test_a_free_worker_needs_no_history() -> None:
    assert start_of(Line(ahead=0, workers=1, free=1), (), ()) == Guess(0, 0)


def test_the_jobs_before_it_are_shared_out_among_the_workers() -> None:
    """Seven before it, none free: eight must end, two at a time, ten seconds each."""
    assert start_of(Line(ahead=7, workers=2), TEN, ()) == Guess(40, 40)
    assert start_of(Line(ahead=7, workers=4), TEN, ()) == Guess(20, 20)


def test_times_that_differ_make_the_later_guess_later() -> None:
    guess = start_of(Line(ahead=8, workers=1), MIXED, ())
    assert guess is not None
    assert guess.p50 == pytest.approx(9 * 30)
    assert guess.p50 < guess.p80 < 9 * 100


def test_without_a_worker_it_waits_for_one_to_start() -> None:
    assert start_of(Line(ahead=0, workers=0), TEN, (30.0, 30.0)) == Guess(30, 30)
    assert start_of(Line(ahead=2, workers=0, coming=1), TEN, (30.0,)) == Guess(50, 50)
    assert start_of(Line(ahead=2, workers=0, coming=3), TEN, (30.0,)) == Guess(30, 30)


def test_what_nobody_has_seen_is_not_guessed() -> None:
    assert start_of(Line(ahead=0, workers=0), TEN, ()) is None
    assert start_of(Line(ahead=3, workers=1), (), ()) is None


def test_it_never_starts_before_its_time() -> None:
    assert start_of(Line(ahead=0, workers=1, free=1, delay=90), TEN, ()) == Guess(90, 90)
    assert start_of(Line(ahead=20, workers=1, delay=90), TEN, ()) == Guess(210, 210)


def test_it_ends_as_long_after_its_start_as_others_take() -> None:
    assert spread(TEN).after(Guess(40, 50)) == Guess(50, 60)
    assert spread(MIXED) == Guess(15, pytest.approx(36))  # pyright: ignore[reportArgumentType]


def test_a_running_job_is_measured_by_its_own_progress() -> None:
    assert rest_of(30, 0.75, TEN) == Guess(10, 10)
    slow = rest_of(30, 0.75, MIXED)
    assert slow is not None
    assert slow.p50 == 10
    assert slow.p80 == pytest.approx(10 * 36 / 15)
    assert rest_of(30, 0.75, ()) == Guess(10, 15)


def test_without_progress_it_is_compared_with_those_that_took_longer() -> None:
    assert rest_of(12, None, MIXED) == spread([3, 8, 88])
    assert rest_of(12, 0.001, MIXED) == spread([3, 8, 88])
    assert rest_of(200, None, MIXED) is None


@given(
    st.builds(
        Line,
        ahead=st.integers(0, 1000),
        workers=st.integers(0, 50),
        free=st.just(0),
        coming=st.integers(0, 5),
        delay=st.floats(0, 1000),
    ),
    st.lists(st.floats(0, 10_000), max_size=20),
    st.lists(st.floats(0, 10_000), max_size=20),
)
def test_the_careful_guess_is_never_before_the_usual_one_and_a_longer_line_never_shortens_the_wait(
    line: Line, took: list[float], boots: list[float]
) -> None:
    start = start_of(line, took, boots)
    if start is None:
        return
    assert 0 <= start.p50 <= start.p80 + 1e-6
    longer = Line(ahead=line.ahead + 1, workers=line.workers, free=line.free, coming=line.coming, delay=line.delay)
    later = start_of(longer, took, boots)
    assert later is None or later.p50 >= start.p50 - 1e-6
