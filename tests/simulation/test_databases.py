"""P11: another database beside the live one, with the same DEPLOYMENT_ID and the same account at the provider."""

from collections.abc import Callable

import pytest

from herdsman.testing.simulation import run
from herdsman.testing.simulation.database import WorldDatabase
from herdsman.testing.simulation.faults import Fault, Hazards
from herdsman.testing.simulation.run import run_seed
from herdsman.testing.simulation.scenarios import Scenario
from herdsman.testing.simulation.setup import Setting
from herdsman.testing.simulation.users import Demand

HOUR_S = 3600.0
STANDING = Scenario(
    name="standing",
    said="Two workers that are there all the time.",
    faults="none",
    setting=lambda _: Setting(orchestrators=1, demand=Demand(jobs=6), most_workers=2, min_workers=2),
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", [Fault.COPIED_DATABASE, Fault.FRESH_DATABASE])
def test_a_second_database_ends_nothing_of_the_first_within_an_hour(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "TROUBLE_S", (HOUR_S, HOUR_S))
    monkeypatch.setattr(run, "drawn", _only(fault))
    ran = run_seed(1, frozenset(), WorldDatabase(), scenario=STANDING)
    assert ran.violations == ()
    assert ran.lasted_s >= HOUR_S
    assert ran.notes["second_database_led"]
    assert "worker:lost" not in ran.notes


def _only(fault: Fault) -> Callable[..., Hazards]:
    return lambda *_: Hazards({fault: 1.0})
