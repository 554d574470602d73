"""Streams in the simulation: whatever Redis does, jobs are those of the database (S1-S4, X8)."""

from collections import Counter
from dataclasses import replace

import pytest

from herdsman.redis import sql, stream_loops
from herdsman.redis.bus import Ingest
from herdsman.redis.streams import DeadLetter, Entry, Known, Verdict, judge
from herdsman.testing.simulation import runner
from herdsman.testing.simulation.faults import Fault
from herdsman.testing.simulation.runner import Ran, run_seed
from herdsman.testing.simulation.sim_database import WorldDatabase

BUS = frozenset(
    {
        Fault.BUS_AWAY,
        Fault.BUS_FLUSHED,
        Fault.BUS_UNANSWERED,
        Fault.STREAM_DELETED,
        Fault.ENTRY_LOST,
        Fault.ENTRY_DOUBLED,
        Fault.ENTRY_FORGED,
    }
)
DYING = frozenset({Fault.FAILING_HANDLER, Fault.HANGING_HANDLER})
MOST = 40
"""So many seeds are enough to find a bug that is there."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def database() -> WorldDatabase:
    return WorldDatabase()


@pytest.fixture(autouse=True)
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "STREAMED", 1.0)


def found_in(database: WorldDatabase, faults: frozenset[Fault]) -> str:
    """What is wrong in the first world in which something is."""
    for seed in range(MOST):
        found = run_seed(seed, faults, database).violations
        if found:
            return "\n".join(found)
    return ""


def occurred(rans: list[Ran]) -> Counter[str]:
    return sum((Counter(ran.notes) for ran in rans), Counter[str]())


def test_nothing_that_redis_does_breaks_a_promise(database: WorldDatabase) -> None:
    rans = [run_seed(seed, BUS, database) for seed in range(20)]
    assert {ran.seed: ran.violations for ran in rans if ran.violations} == {}
    notes = occurred(rans)
    assert all(notes[f"fault:{fault}"] for fault in BUS), notes
    assert all(notes[rare] for rare in ("woken_early", "added_by_hand", "added_again")), notes


def test_nor_does_it_together_with_everything_else(database: WorldDatabase) -> None:
    rans = [run_seed(seed, frozenset(Fault) - {Fault.CLOCK_JUMP}, database) for seed in range(100, 112)]
    assert {ran.seed: ran.violations for ran in rans if ran.violations} == {}


def test_a_seed_with_streams_tells_one_story(database: WorldDatabase) -> None:
    assert len({run_seed(7, frozenset(Fault), database).hash for _ in range(2)}) == 1


def test_entries_that_are_never_settled_are_found(database: WorldDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """S4."""

    def keeping(known: Known | None) -> Verdict:
        verdict = judge(known)
        return Verdict.KEEP if verdict is Verdict.SETTLE else verdict

    monkeypatch.setattr(stream_loops, "judge", keeping)
    assert "entries are left in" in found_in(database, frozenset())


def test_an_acknowledgement_before_the_commit_is_found(
    database: WorldDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J1: what is acknowledged is promised."""
    submit = Ingest._submit  # pyright: ignore[reportPrivateUsage]

    def hasty(self: Ingest, entry: Entry) -> None:
        if "job_id" in entry.fields:
            self.context.redis.settle(entry.stream, [entry.id])
        submit(self, entry)

    monkeypatch.setattr(Ingest, "_submit", hasty)
    faults = frozenset({Fault.CUT_BEFORE, Fault.ROLLED_BACK, Fault.CRASH})
    assert "and has no row" in found_in(database, faults)


def test_a_death_that_is_announced_again_and_again_is_found(
    database: WorldDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = stream_loops.letter

    def forgetful(row: Known, entry: Entry | None = None) -> DeadLetter:
        """The resync has no entry for what it announces."""
        found = letter(row, entry)
        return found if entry is not None else replace(found, version=None)

    monkeypatch.setattr(stream_loops, "letter", forgetful)
    assert "was announced as dead" in found_in(database, DYING)


def test_a_death_that_redis_forgot_and_nobody_repeats_is_found(
    database: WorldDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1."""

    def nothing(*_given: object) -> list[object]:
        """Redis is believed to remember."""
        return []

    monkeypatch.setattr(sql, "recent_dead", nothing)
    assert "and nobody announced it" in found_in(database, DYING | {Fault.BUS_FLUSHED})
