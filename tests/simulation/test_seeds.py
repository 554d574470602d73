"""The control plane under all faults: nothing is lost, done twice, leased twice or forgotten, whatever the order."""

import os
from collections import Counter

import pytest

from herdsman.testing.simulation.coverage_goals import FREQUENT, GOALS, LONG_RUN, missing
from herdsman.testing.simulation.process_pool import sweep
from herdsman.testing.simulation.run import Order
from herdsman.testing.simulation.scenarios import SCENARIOS

SEEDS = int(os.environ.get("HERDSMAN_SIM_SEEDS", "48"))
CORES = len(os.sched_getaffinity(0))


def swept(order: Order) -> Counter[str]:
    """In how many seeds each situation occurred; fails with the replay of each seed that violates something."""
    notes, wrong = Counter[str](), list[str]()
    for ran in sweep(order, CORES):
        notes.update(ran.notes.keys())
        wrong += [f"{order.replay(ran.seed)}\n  {said}" for said in ran.violations]
    assert not wrong, "\n".join(wrong)
    return notes


# A seed takes a part of a second; a machine that is busy with other tests takes many times that.
@pytest.mark.timeout(600 + 10 * SEEDS)
def test_no_seed_violates_anything_and_what_is_rare_has_occurred() -> None:
    assert missing(swept(Order(seeds=range(SEEDS))), SEEDS) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "all"])
def test_every_scenario_has_its_trouble_and_violates_nothing(name: str) -> None:
    scenario = SCENARIOS[name]
    notes = swept(Order(seeds=range(4), scenario=name, faults=scenario.faults))
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
