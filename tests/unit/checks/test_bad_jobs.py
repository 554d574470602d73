"""What must be found in the history of jobs, by which checker and in which words; and what must not."""

from dataclasses import replace

import pytest

from herdsman.testing.simulation.checks import CHECKS, violations
from herdsman.testing.simulation.checks.history import History
from tests.unit.checks import bad_books, bad_ends, bad_rests, bad_turns
from tests.unit.checks.bad_turns import a_crowd
from tests.unit.checks.spoiling import Allowed, Bad, with_limits
from tests.unit.checks.telling import Telling, a_good_one

GOOD = a_good_one()
BAD: Bad = bad_ends.BAD | bad_books.BAD | bad_rests.BAD | bad_turns.BAD
ALLOWED: Allowed = bad_ends.ALLOWED | bad_books.ALLOWED | bad_rests.ALLOWED | bad_turns.ALLOWED


@pytest.mark.parametrize(("check", "name"), [(check, name) for check, those in BAD.items() for name in those])
def test_a_bad_history_is_rejected(check: str, name: str) -> None:
    spoil, sentence = BAD[check][name]
    bad = spoil(GOOD)
    found = list(CHECKS[check](bad))
    assert any(sentence in said for said in found), found
    assert f"{check}: {found[0]}" in violations(bad)


@pytest.mark.parametrize(("check", "name"), [(check, name) for check, those in ALLOWED.items() for name in those])
def test_what_cannot_be_helped_is_allowed(check: str, name: str) -> None:
    assert list(CHECKS[check](ALLOWED[check][name](GOOD))) == []


def test_while_faults_go_on_nothing_has_to_be_at_rest() -> None:
    tell = Telling()
    tell.spawn("w1")
    tell.submit("job")
    tell.claim("job", "w1")
    tell.lease("lease", 100)
    busy = replace(tell.history(), quiet=False)
    assert violations(busy) == []
    assert {said.partition(":")[0] for said in violations(replace(busy, quiet=True))} == {
        "lost",
        "conservation",
        "quiescence",
    }


@pytest.mark.parametrize(
    "history",
    [
        a_crowd(10),
        a_crowd(11, priority=2),
        a_crowd(11, pool="another"),
        replace(a_crowd(11), last_fault_at=9e9),
        with_limits(most_overtakes=None)(a_crowd(11)),
    ],
    ids=["few", "more urgent ones", "another pool", "during the faults", "no limit"],
)
def test_a_job_that_only_waits_does_not_starve(history: History) -> None:
    assert list(CHECKS["starvation"](history)) == []
