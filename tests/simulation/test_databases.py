"""P11: another database beside the live one, with the same DEPLOYMENT_ID and the same account at the provider."""

from collections.abc import Callable

import pytest

from herdsman.testing.simulation import runner
from herdsman.testing.simulation.faults import Fault, Hazards
from herdsman.testing.simulation.runner import run_seed
from herdsman.testing.simulation.scenarios import SCENARIOS, Scenario
from herdsman.testing.simulation.setup import Setting
from herdsman.testing.simulation.sim_database import WorldDatabase
from herdsman.testing.simulation.users import Demand

HOUR_S = 3600.0
STANDING = Scenario(
    said="Two workers that are there all the time.",
    faults="none",
    setting=lambda _: Setting(orchestrators=1, demand=Demand(jobs=6), most_workers=2, min_workers=2),
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", [Fault.COPIED_DATABASE, Fault.FRESH_DATABASE])
def test_a_second_database_ends_nothing_of_the_first_within_an_hour(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "TROUBLE_S", (HOUR_S, HOUR_S))
    monkeypatch.setattr(runner, "drawn", _only(fault))
    ran = run_seed(1, frozenset(), WorldDatabase(), scenario=STANDING)
    assert ran.violations == ()
    assert ran.lasted_s >= HOUR_S
    assert ran.notes["second_database_led"]
    assert "worker:lost" not in ran.notes


def test_a_restored_database_says_so_and_is_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it must not do meanwhile, the check `restored` finds."""
    monkeypatch.setattr(runner, "drawn", _only(Fault.RESTORED_DATABASE))
    database = WorldDatabase()
    rans = [run_seed(seed, frozenset(), database, scenario=SCENARIOS["pools"]) for seed in range(12)]
    assert [ran.seed for ran in rans if ran.violations] == []
    assert any("restore_recognised" in ran.notes for ran in rans)


def _only(fault: Fault) -> Callable[..., Hazards]:
    return lambda *_: Hazards({fault: 1.0})
