"""Spans of time as a person says them."""

import pytest

from herdsman.text import spoken


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0.0 s"),
        (0.44, "0.4 s"),
        (42.4, "42 s"),
        (59.6, "1 min 0 s"),
        (425, "7 min 5 s"),
        (3599.7, "1 h 0 min"),
        (11_400, "3 h 10 min"),
    ],
)
def test_a_span_is_said_in_two_units_at_most(seconds: float, said: str) -> None:
    assert spoken(seconds) == said
