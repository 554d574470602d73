"""Numbers and names of `herdsman top`."""

import pytest

from herdsman.cli.output import span
from herdsman.cli.top.command import ASCII, bar, blocks, clean, count, load, middle, trend


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-3, "0s"), (0.4, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (2 * 86400, "2d")],
)
def test_a_span_is_short(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


@pytest.mark.parametrize(("number", "shown"), [(0, "0"), (9999, "9,999"), (12_345, "12k"), (1_240_000, "1.2M")])
def test_a_count_stays_short(number: int, shown: str) -> None:
    assert count(number) == shown


def test_an_id_keeps_its_begin_and_its_end() -> None:
    assert middle("short", 5) == "short"
    assert middle("gpu-1767268800-0d4a7f10", 9) == "gpu-…7f10"
    assert middle("abcdef", 2) == "a…"


def test_nothing_that_a_terminal_obeys_is_left() -> None:
    assert clean("\x1b[31mred\x1b[0m\nand\x07 \x9b2Jmore\u202e") == "red and   2Jmore "
    assert clean("ein Schaf 羊") == "ein Schaf 羊"


@pytest.mark.parametrize(("fraction", "shown"), [(-1, "░░░░"), (0.5, "██░░"), (1, "████"), (7, "████")])
def test_a_bar_is_never_too_long(fraction: float, shown: str) -> None:
    assert bar(fraction, 4).plain == shown


def test_the_colour_warns_before_it_is_full() -> None:
    assert [load(each) for each in (0.5, 0.8, 0.95)] == ["green", "yellow", "red"]


def test_what_is_not_empty_is_seen() -> None:
    assert blocks([0, 0.001, 0.5, 1]) == " ▁▄█"


def test_a_trend_keeps_its_peaks_when_it_is_squeezed() -> None:
    assert trend([], 4) == trend([0, 0], 4) == ""
    assert trend([0, 4, 8], 4) == " ▄█"
    assert trend([0, 0, 9, 0, 0, 0, 0, 0], 4) == " █  "


def test_every_sign_has_another_one_in_ascii() -> None:
    drawn = bar(0.5, 4).plain + blocks([each / 8 for each in range(9)]) + "…▸"
    assert drawn.translate(ASCII).isascii()
