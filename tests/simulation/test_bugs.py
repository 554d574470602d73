"""A simulation that finds nothing proves nothing: planted bugs are found. `make bugs` plants all of them."""

import shutil
from pathlib import Path

import pytest

from tests.simulation.bugs import BUGS, Bug
from tests.simulation.hunting import ROOT, hunt

QUICK = ("one_attempt_more", "draining_worker_served", "epoch_stays")
"""Found by one of the first seeds."""
ENOUGH = 20


def test_every_bug_still_fits_the_code(tmp_path: Path) -> None:
    """Each alone: one whose text is gone would be found for the wrong reason, or not planted at all."""
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= ENOUGH
    for bug in BUGS:
        place = tmp_path / bug.name / "herdsman" / bug.file
        place.parent.mkdir(parents=True)
        shutil.copy(ROOT / "src" / "herdsman" / bug.file, place)
        bug.apply(tmp_path / bug.name)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in QUICK], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    assert hunt(bug, most=40).startswith("seed ")


@pytest.mark.timeout(600)
def test_without_a_bug_nothing_is_found() -> None:
    assert hunt(Bug("none", "nothing", "testing/simulation/runner.py", "def run_seed(", "def run_seed("), most=5) == ""
