"""What a forecast and a replay rest on, read from every database."""

from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.errors import InvalidRequest
from herdsman.fleet import snapshot_sql, stats_sql
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.scaling import RECENT
from herdsman.ids import DEFAULT_POOL, WorkerId
from herdsman.jobs.worker_commands import complete_job, fail_job, start_job
from herdsman.whatif.replay import Setup, replay
from herdsman.whatif.replay_cycles import read_history
from tests.support.builders import HOPELESS, a_job, a_worker, claimed
from tests.support.databases import MovingClock

DAY = timedelta(days=1)


def run(services: Services, clock: MovingClock, worker: WorkerId, seconds: float) -> None:
    claim = claimed(services, worker)
    start_job(services, claim.key)
    clock.advance(timedelta(seconds=seconds))
    complete_job(services, claim.key, {})


def test_arrivals_run_times_and_yesterday_are_counted(services: Services, clock: MovingClock) -> None:
    worker = a_worker(services, "w1")
    for _ in range(3):
        a_job(services)
    clock.advance(DAY - timedelta(minutes=2))
    a_job(services)
    clock.advance(timedelta(minutes=6))
    a_job(services, pool="other")
    for seconds in (40, 50):
        run(services, clock, worker, seconds)
    known = services.database.read(lambda tx: stats_sql.observed_demand(tx, DEFAULT_POOL))
    assert known.arrivals == (*(0,) * (RECENT - 2), 1, 0)
    assert known.day_before == (3, 0)
    assert sorted(known.service_s) == pytest.approx([40, 50], abs=1)
    waited = DAY.total_seconds() + 4 * 60
    assert sorted(known.waits_s) == pytest.approx([waited, waited + 40], abs=1)
    assert known.failing == 0


def test_only_a_policy_that_forecasts_is_told(services: Services) -> None:
    a_job(services)

    def seen(scaling: str) -> object:
        rules = {DEFAULT_POOL: FleetPolicy(scaling=scaling)}
        return services.database.read(lambda tx: snapshot_sql.read_pools(tx, rules))[0].demand

    assert seen("threshold") is None
    assert seen("adaptive") is not None


def test_the_jobs_of_a_database_are_replayed(services: Services, clock: MovingClock) -> None:
    worker = a_worker(services, "w1")
    for seconds in (10, 20):
        a_job(services)
        clock.advance(timedelta(seconds=100))
        run(services, clock, worker, seconds)
    a_job(services)
    failed = claimed(services, worker)
    clock.advance(timedelta(seconds=5))
    fail_job(services, failed.key, HOPELESS)
    found, _ = read_history(services.database, DEFAULT_POOL, DAY)
    assert list(found.arrival_s) == pytest.approx([0, 110, 230], abs=1)
    assert list(found.service_s) == pytest.approx([10, 20, 5], abs=1)
    assert replay(found, Setup(policy=FleetPolicy())).unfinished == 0


def test_a_long_history_is_read_in_pages(
    services: Services, clock: MovingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats_sql, "PAGE", 2)
    worker = a_worker(services, "w1")
    for _ in range(5):
        a_job(services)
        run(services, clock, worker, 1)
    assert len(read_history(services.database, DEFAULT_POOL, DAY)[0]) == 5


def test_a_database_without_history_says_so(services: Services) -> None:
    with pytest.raises(InvalidRequest, match="no job of pool default has ended within the last 1 days"):
        read_history(services.database, DEFAULT_POOL, DAY)
