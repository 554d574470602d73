"""When a simulation has to be at rest: work takes its time, and waiting is limited."""

import pytest

from herdsman.testing.simulation import runner, users
from herdsman.testing.simulation.runner import PATIENCE_S, Ran, run_seed
from herdsman.testing.simulation.scenarios import Scenario
from herdsman.testing.simulation.setup import Setting
from herdsman.testing.simulation.sim_database import WorldDatabase
from herdsman.testing.simulation.users import Demand

LONG_S, JOBS = 40, 20


def _ran(*, workers: int) -> Ran:
    many = Scenario(
        said="Long jobs, one after the other.",
        faults="none",
        setting=lambda _: Setting(orchestrators=1, demand=Demand(jobs=JOBS), most_workers=workers),
    )
    return run_seed(1, frozenset(), WorldDatabase(), scenario=many)


@pytest.fixture(autouse=True)
def long_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "JOB_S", (LONG_S,))
    monkeypatch.setattr(users, "BATCH", users.SINGLE)  # one job at a time


def test_a_worker_that_is_at_work_all_the_time_has_as_long_as_its_jobs_take() -> None:
    ran = _ran(workers=1)
    assert ran.violations == ()
    assert ran.lasted_s > JOBS * LONG_S > PATIENCE_S


def test_jobs_that_nobody_works_on_are_found() -> None:
    ran = _ran(workers=0)
    assert ran.violations[0].startswith("unrest: ")
    assert ran.lasted_s < PATIENCE_S + max(runner.TROUBLE_S) + 2 * runner.LOOK_S


def test_work_without_an_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each job took no time: whoever is still at work does something again and again."""
    monkeypatch.setattr(runner, "JOB_S", (0,))
    ran = _ran(workers=1)
    assert ran.violations[0].startswith("unrest: ")
    assert ran.lasted_s < PATIENCE_S + max(runner.TROUBLE_S) + 2 * runner.LOOK_S
