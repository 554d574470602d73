"""The comparison of policies: what it counts as kept, and that it always has something to show."""

from argparse import Namespace
from pathlib import Path

import pytest

from bench import shapes
from bench.policies import _given, measured, table  # pyright: ignore[reportPrivateUsage]
from bench.shapes import Case
from bench.standing import standing
from herdsman.whatif.machines import Boots
from tests.support.traces import steady


def test_a_run_names_every_policy_and_counts_who_keeps_the_target() -> None:
    case = Case(steady(30, hours=2, service_s=60), 1, 10)
    found = measured(case, target=120, boots=Boots(mean_s=60))
    names = [each.name for each in found.outcomes]
    for wanted in ("threshold", "adaptive", "KEDA-style", "Runpod queue delay", "Runpod request count"):
        assert wanted in names
    assert names[-3:] == ["Ray-Serve-style", "SkyPilot-style", "clairvoyant bound"]
    assert not any(each.unfinished for each in found.outcomes)
    text = table(found)
    assert all(f"| {name}" in text for name in names)
    together = standing("Traces", [found.outcomes], 120)
    adaptive = next(each for each in found.outcomes if each.name == "adaptive")
    assert f"| adaptive | {int(adaptive.wait_p95_s <= 120)} |" in together
    assert "clairvoyant" not in together


def test_traces_that_are_not_there_are_skipped_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(_given(Namespace(traces=tmp_path, trace=None))) == []
    assert f"SKIPPED: there are no traces in {tmp_path}" in capsys.readouterr().out


def test_a_trace_of_ones_own_is_taken_alone(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("arrival_s,service_s\n0,10\n5,10\n")
    (found,) = _given(Namespace(traces=tmp_path, trace=[file], least=0, most=3))
    assert (len(found.trace), found.least, found.most) == (2, 0, 3)


def test_shapes_are_the_same_each_time_and_the_two_sets_are_not() -> None:
    first, again, other = next(shapes.unseen()), next(shapes.unseen()), next(shapes.tuning())
    assert first.trace.arrival_s == again.trace.arrival_s
    assert len(first.trace) != len(other.trace)


def test_a_start_that_fails_is_given_up_by_others_too() -> None:
    """Else they would pay for it to the end, and wait for it for ever."""
    case = Case(steady(20, hours=4, service_s=60), 1, 10)
    found = measured(case, target=120, boots=Boots(mean_s=60, failing=0.4))
    assert [each.name for each in found.outcomes if each.unfinished] == []
