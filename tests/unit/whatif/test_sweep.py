"""Replays beside each other: which are worth their money, and what is advised."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.errors import InvalidRequest
from herdsman.fleet.model import FleetPolicy
from herdsman.whatif.outcome import (
    MOST_REPLAYS,
    Outcome,
    advice,
    assignments,
    combinations,
    values,
    worthwhile,
)
from herdsman.whatif.picture import page, write_html, write_png
from herdsman.whatif.replay import Setup, replay
from herdsman.whatif.trace import made

SOME = replay(made("some", [(0, 10), (5, 10)]), Setup(policy=FleetPolicy()))


def outcome(name: str, hours: float, wait: float) -> Outcome:
    return replace(SOME, name=name, gpu_hours=hours, wait_p95_s=wait)


CHEAP, GOOD, BAD, QUICK = (
    outcome("cheap", 10, 300),
    outcome("good", 20, 100),
    outcome("bad", 30, 150),
    outcome("quick", 40, 10),
)


def test_ranges_and_lists_are_written_out() -> None:
    assert values("X", "0..4") == ["0", "1", "2", "3", "4"]
    assert values("X", "0..10:5") == ["0", "5", "10"]
    assert values("X", "a, b") == ["a", "b"]
    assert combinations(["A=1,2", "B=0..1"]) == [
        {"A": "1", "B": "0"},
        {"A": "1", "B": "1"},
        {"A": "2", "B": "0"},
        {"A": "2", "B": "1"},
    ]
    assert combinations([]) == [{}]


@pytest.mark.parametrize("text", ["A", "=3", "A=", "A=4..1", "A=1..x", "A=1,,2", "A=0..4:0", "A=0..99999999999"])
def test_a_sweep_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--sweep"):
        combinations([text])


def test_too_many_replays_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="make 900 replays"):
        combinations(["A=1..30", "B=1..30"])


def test_what_is_set_is_a_name_and_a_value() -> None:
    assert assignments(["A=1", "B=x=y"], "--set") == {"A": "1", "B": "x=y"}


def test_only_those_are_worth_it_that_nobody_beats_twice() -> None:
    assert worthwhile([QUICK, BAD, GOOD, CHEAP]) == [CHEAP, GOOD, QUICK]
    assert worthwhile([replace(CHEAP, unfinished=1)]) == []


def test_the_cheapest_that_keeps_the_target_is_advised_with_its_evidence() -> None:
    found = advice([BAD, CHEAP, GOOD, QUICK], 120)
    assert found.best is GOOD
    assert found.said == (
        "good is the cheapest that keeps the target of 120s: 95 of 100 jobs wait at most 100s for 20.0 GPU-hours,"
        " which is 33% less than bad (150s, 30.0 GPU-hours)"
    )
    assert advice([CHEAP], 120).said.startswith("none keeps the target of 120s; cheap comes nearest")
    assert advice([replace(CHEAP, unfinished=1)], 120).best is None


def test_a_page_needs_nothing_else_and_trusts_no_name(tmp_path: Path) -> None:
    text = page([CHEAP, outcome("<script>", 3, 4)], "a & b", "said")
    assert "http" not in text.replace("http-equiv", "")
    assert "<script>" not in text
    assert text.count("<circle") == 2
    write_html(tmp_path / "it.html", [CHEAP], "t", "s")
    assert (tmp_path / "it.html").read_text().startswith("<!doctype html>")
    with pytest.raises(InvalidRequest, match="cannot be written"):
        write_html(tmp_path / "no" / "it.html", [CHEAP], "t", "s")


def test_a_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_png(tmp_path / "it.png", [CHEAP, GOOD, QUICK], "t")
    assert (tmp_path / "it.png").read_bytes().startswith(b"\x89PNG")


@given(st.lists(st.text(max_size=30) | st.from_regex(r"[A-Z]{1,3}=-?\d{0,6}\.\.-?\d{0,6}(:\d{0,3})?"), max_size=3))
def test_any_sweep_is_understood_or_refused(sweeps: list[str]) -> None:
    try:
        found = combinations(sweeps)
    except InvalidRequest as error:
        assert "--sweep" in str(error) or "sweeps" in str(error)
    else:
        assert 1 <= len(found) <= MOST_REPLAYS
