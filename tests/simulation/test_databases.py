"""P11: another database beside the live one, with the same DEPLOYMENT_ID and the same account at the provider."""

from collections.abc import Callable

import pytest

from herdsman.testing.simulation import runner, setup
from herdsman.testing.simulation.faults import Fault, Hazards
from herdsman.testing.simulation.runner import run_seed
from herdsman.testing.simulation.scenarios import SCENARIOS, Scenario
from herdsman.testing.simulation.setup import Setting
from herdsman.testing.simulation.sim_database import WorldDatabase
from herdsman.testing.simulation.users import Demand, Users

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


FORGETFUL = Scenario(
    said="Jobs that only a person ends, at a provider whose key only a person repairs.",
    faults="none",
    setting=lambda _: Setting(orchestrators=1, demand=Demand(jobs=2, unserved=1), most_workers=1),
)


@pytest.mark.parametrize("others", [(), (Fault.REJECTED,)])
def test_what_people_did_is_done_again_after_a_late_restore(
    others: tuple[Fault, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backup is older than the end of the faults, when they repair and tidy up, and it is restored later than that."""
    monkeypatch.setattr(runner, "drawn", _only(Fault.RESTORED_DATABASE, *others))
    monkeypatch.setattr(setup, "BACKUP_AGE_S", (120.0, 120.0))
    monkeypatch.setattr(runner, "AWAKE_S", 200.0)  # no world is over before that

    def found() -> list[str]:
        rans = [run_seed(seed, frozenset(), WorldDatabase(), scenario=FORGETFUL) for seed in range(4)]
        return [said for ran in rans for said in ran.violations]

    assert found() == []
    # Where nobody does it again, nothing comes to rest: that is still found.
    monkeypatch.setattr(Users, "repeat", _nothing)
    assert any(said.startswith("unrest: ") for said in found())


def _nothing(_: Users) -> None:
    pass


def _only(*faults: Fault) -> Callable[..., Hazards]:
    return lambda *_: Hazards(dict.fromkeys(faults, 1.0))
