"""A threshold from what the work took."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from herdsman.loops import AdaptiveThreshold


def test_without_history_it_is_patient() -> None:
    threshold = AdaptiveThreshold(floor=10, ceiling=720, fewest=3)
    threshold.note(1)
    threshold.note(1)
    assert threshold.seconds() == 720
    threshold.note(1)
    assert threshold.seconds() == 10


def test_it_is_a_multiple_of_what_most_took() -> None:
    threshold = AdaptiveThreshold(floor=1, ceiling=1000, share=0.9, factor=3, fewest=1)
    for took in (*range(1, 10), 900):
        threshold.note(float(took))
    assert threshold.seconds() == 27


def test_old_times_are_forgotten() -> None:
    threshold = AdaptiveThreshold(floor=1, ceiling=1000, factor=2, keep=5, fewest=1)
    for took in (400.0, 5.0, 5.0, 5.0, 5.0, 5.0):
        threshold.note(took)
    assert threshold.seconds() == 10


@given(some.lists(some.floats(0, 1e6), max_size=50))
def test_it_never_leaves_its_bounds(times: list[float]) -> None:
    threshold = AdaptiveThreshold(floor=30, ceiling=600, fewest=1)
    for took in times:
        threshold.note(took)
    assert 30 <= threshold.seconds() <= 600


@given(some.lists(some.floats(0, 1e6), min_size=1), some.floats(0.01, 1))
def test_it_covers_its_share(values: list[float], share: float) -> None:
    threshold = AdaptiveThreshold(floor=1e-9, ceiling=1e9, share=share, factor=1, fewest=1)
    for value in values:
        threshold.note(value)
    found = threshold.seconds()
    assert found in values or found == 1e-9
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6


@pytest.mark.parametrize(
    "wrong",
    [{"floor": 0}, {"floor": 9, "ceiling": 8}, {"share": 0}, {"factor": 0.5}, {"fewest": 9, "keep": 8}],
)
def test_bounds_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"is .* and"):
        AdaptiveThreshold(**wrong)  # pyright: ignore[reportArgumentType]
