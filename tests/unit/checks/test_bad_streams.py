"""What must be found in what is left in streams, and in which words."""

import pytest

from herdsman.testing.simulation.checks import CHECKS, violations
from herdsman.testing.simulation.checks.history import Hints, History, JobRow, Move

DIED = Move(kind="job", id="a", seq=2, old="running", new="dead_letter")


def left(hints: Hints, *, died: int = 0, status: str = "dead_letter", quiet: bool = True) -> History:
    rows = (JobRow(id="a", status=status, version=2),)
    return History(rows=rows, moves=(DIED,) * died, hints=hints, quiet=quiet)


BAD = {
    "an entry": (left(Hints(left={"jobs": 2}), status="done"), "2 entries are left in jobs"),
    "a hold": (left(Hints(held={"jobs": 1}), status="done"), "1 entries of jobs are held"),
    "a death that nobody told": (left(Hints(), died=1), "job a is a dead letter, and nobody announced it"),
    "a death that was told twice": (
        left(Hints(letters={"a": 2}), died=1),
        "job a was announced as dead 2 times, and died 1 times",
    ),
    "a death that never was": (
        left(Hints(letters={"a": 1}), status="done"),
        "job a was announced as dead 1 times, and died 0 times",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_rejected(name: str) -> None:
    bad, sentence = BAD[name]
    assert any(sentence in said for said in CHECKS["streams"](bad))
    assert any(said.startswith("streams: ") for said in violations(bad))


@pytest.mark.parametrize(
    "history",
    [
        left(Hints(letters={"a": 1}), died=1),
        left(Hints(letters={"a": 1}), died=2),  # Redis forgot the first one
        left(Hints(left={"jobs": 2}, held={"jobs": 2}), quiet=False),
        History(),
    ],
    ids=["told", "forgotten", "troubled", "no streams"],
)
def test_a_good_one_is_not(history: History) -> None:
    assert list(CHECKS["streams"](history)) == []
