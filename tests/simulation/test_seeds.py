"""The control plane under all faults: nothing is lost, done twice, leased twice or forgotten, whatever the order."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

from herdsman.testing.simulation.faults import Fault
from herdsman.testing.simulation.runner import Order, Ran, Runner, sweep
from herdsman.testing.simulation.scenarios import SCENARIOS
from tests.support.amounts import SOAK

FREQUENT = [
    "added_again",
    "added_by_hand",
    "added_without_an_answer",
    "cancelled:cancelled",
    "job:attempts_exhausted",
    "job:cancel_requested",
    "job:claim_expired",
    "job:kills_workers",
    "job:out_of_memory_again",
    "job:timeout",
    "leader_changed",
    "lease:claim_expired",
    "lease:released",
    "poison",
    "repeated_by_a_person",
    "restarted_in_place",
    "stream:quarantined",
    "woken_early",
    "worker:drained",
    "worker:lost",
]
"""Situations that occur in at least 3 of 100 seeds, so that even a short run has them. A run without a violation proves
nothing about a situation that never occurred."""

RARE = [
    "cancelled:running",
    "checkpoint_found",
    "died_in_an_outage",
    "claims_held",
    "fenced",
    "job:recovered",
    "job:released",
    "job:requeued",
    "late_beat_refused",
    "lease:lease_expired",
    "lease_gone",
    "lease_not_released",
    "parted:dismissed",
    "parted:drained",
    "report_lost",
    "restore_recognised",
    "second_database_led",
    "stale_end_refused",
    "type_paused",
    "unserved_waited",
]
RARE_FAULTS = [
    "clock_jump",
    "end_ignored",
    "end_unanswered",
    "find_lies",
    "preempted",
    "provider_out",
    "rejected",
    "restored_database",
    "service_away",
    "service_forgets",
    "service_mute",
    "service_unanswered",
    "service_vanished",
    "spawn_late",
    "spawn_vanished",
    "database_out",
]
GOALS = (*FREQUENT, *RARE, *(f"fault:{each}" for each in sorted(Fault)))
LONG_RUN = 1_000
"""From so many seeds on, everything must have occurred."""


def missing(notes: Mapping[str, int], seeds: int = LONG_RUN) -> list[str]:
    """What never occurred in a run of so many seeds, and should have."""
    faults = (f"fault:{each}" for each in sorted(set(Fault) - set(RARE_FAULTS)))
    wanted = GOALS if seeds >= LONG_RUN else (*FREQUENT, *faults)
    return [situation for situation in wanted if not notes.get(situation)]


SEEDS = int(os.environ.get("HERDSMAN_SIM_SEEDS", "48"))
SEEDS_OF_A_SCENARIO = 20 if SOAK else 3
CORES = len(os.sched_getaffinity(0))


def swept(order: Order, runs: Iterable[Ran]) -> Counter[str]:
    """In how many seeds each situation occurred; fails with the replay of each seed that violates something."""
    notes, wrong = Counter[str](), list[str]()
    for ran in runs:
        notes.update(ran.notes.keys())
        wrong += [f"{order.replay(ran.seed)}\n  {said}" for said in ran.violations]
    assert not wrong, "\n".join(wrong)
    return notes


# A seed takes a part of a second; a machine that is busy with other tests takes many times that.
@pytest.mark.timeout(600 + 10 * SEEDS)
def test_no_seed_violates_anything_and_what_is_rare_has_occurred() -> None:
    order = Order(seeds=range(SEEDS))
    assert missing(swept(order, sweep(order, CORES)), SEEDS) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "all"])
def test_every_scenario_has_its_trouble_and_violates_nothing(name: str) -> None:
    scenario = SCENARIOS[name]
    order = Order(seeds=range(SEEDS_OF_A_SCENARIO), scenario=name, faults=scenario.faults)
    runner = Runner(order)  # in this process: to start two others takes as long as the seeds do
    notes = swept(order, map(runner.run, order.seeds))
    struck = {note.removeprefix("fault:") for note in notes if note.startswith("fault:")}
    assert struck
    assert struck <= set(scenario.faults.split(","))


def test_what_never_occurred_is_named() -> None:
    seen = Counter(GOALS)
    assert missing(seen) == []
    del seen["fault:find_lies"], seen["poison"]
    assert missing(seen) == ["poison", "fault:find_lies"]
    assert missing(seen, LONG_RUN - 1) == ["poison"]
    assert set(missing(Counter(), 10)) >= set(FREQUENT)
