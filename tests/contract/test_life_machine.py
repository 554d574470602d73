"""Any sequence of commands, sweeps, waits and power cuts leaves each database as the model says."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from herdsman.context import Services
from tests.contract.life import Life
from tests.support.amounts import SOAK
from tests.support.databases import MovingClock
from tests.support.power_cut import Fuse

FEW = settings(
    max_examples=60 if SOAK else 8,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    print_blob=True,
)
# Here a step costs a third of what it costs on a server.
MANY = settings(FEW, max_examples=600 if SOAK else 30, stateful_step_count=50)


@pytest.mark.timeout(600)  # a failure takes a while to be told in few steps
def test_every_life_goes_as_the_model_says(services: Services, clock: MovingClock, fuse: Fuse) -> None:
    """J1 J3 J5 J6 J7 J8 J9 A1"""

    class HereLife(Life):
        def __init__(self) -> None:
            super().__init__(services, clock, fuse)

    chosen = MANY if services.database.backend == "SQLite" else FEW
    run_state_machine_as_test(HereLife, settings=chosen)
