"""What the views show is what the commands did, on every database."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import text

from herdsman.context import Services
from herdsman.db import views
from herdsman.db.checks import require_current
from herdsman.db.connection import Database, Tx, records
from herdsman.db.upgrade import upgrade
from herdsman.errors import StoreMisconfigured
from herdsman.fleet import history_sql, leader_sql
from herdsman.fleet import sql as fleet_sql
from herdsman.fleet.actions import ActionReason, Code
from herdsman.fleet.model import FleetPolicy, Instance, InstanceRef, InstanceStatus
from herdsman.ids import DEFAULT_POOL, WorkerId
from herdsman.jobs.worker_commands import complete_job, fail_job, start_job
from tests.docs.pages import page, table
from tests.support.builders import BROKEN, HOPELESS, a_job, a_worker, claimed
from tests.support.databases import Backend, MovingClock, opened
from tests.support.worker_calls import beat

PRICE = 0.5


def rows(services: Services, view: str) -> list[dict[str, Any]]:
    return services.database.read(lambda tx: records(tx, text(f"SELECT * FROM {view}")))


def status(services: Services) -> dict[str, Any]:
    (row,) = rows(services, "orchestrator_status")
    return row


def ago(clock: MovingClock, span: timedelta) -> None:
    """Views look at the database's own clock, so a test acts in the past and comes back."""
    clock.advance(-span)


def a_rented_worker(services: Services, name: str) -> WorkerId:
    intent = fleet_sql.Intent(worker_id=WorkerId(name), instance_name=name, pool=DEFAULT_POOL, provider="fake")
    instance = Instance(
        ref=InstanceRef(name), name=name, status=InstanceStatus.RUNNING, cost_per_hour=Decimal(str(PRICE))
    )

    def write(tx: Tx) -> None:
        assert fleet_sql.intend(tx, intent, FleetPolicy()) == ""
        fleet_sql.attach(tx, intent.worker_id, instance)
        fleet_sql.promote(tx, intent.worker_id, ActionReason(Code.READY, "ready"))

    services.database.transact(write)
    return intent.worker_id


def test_an_empty_database_has_a_status_of_zeros(services: Services) -> None:
    shown = status(services)
    counts = [name for name in shown if name.startswith(("jobs_", "workers_")) or name == "queue_depth"]
    assert {int(shown[name]) for name in counts} == {0}
    assert float(shown["cost_per_hour"]) == 0
    assert [shown[name] for name in ("oldest_waiting_s", "oldest_heartbeat_s", "leader", "last_cycle_s")] == [None] * 4
    assert rows(services, "active_workers_health") == []
    assert rows(services, "worker_performance") == []


def test_the_status_counts_the_queue_the_rate_and_the_failures(services: Services, clock: MovingClock) -> None:
    worker = a_worker(services)
    ago(clock, timedelta(hours=2))
    a_job(services, job_id="long-ago")
    complete_job(services, claimed(services, worker).key)
    clock.advance(timedelta(minutes=90))
    for number in range(3):
        a_job(services, job_id=f"new-{number}")
    complete_job(services, claimed(services, worker).key)
    fail_job(services, claimed(services, worker).key, HOPELESS)
    fail_job(services, claimed(services, worker).key, BROKEN)
    a_job(services, job_id="waits")
    a_job(services, job_id="later", delay=timedelta(days=1))
    clock.advance(timedelta(minutes=30))
    shown = status(services)
    assert {
        name: int(shown[name])
        for name in ("queue_depth", "jobs_scheduled", "jobs_retrying", "jobs_held", "workers_active")
    } == {"queue_depth": 1, "jobs_scheduled": 1, "jobs_retrying": 1, "jobs_held": 0, "workers_active": 1}
    assert (int(shown["jobs_done_per_hour"]), int(shown["jobs_failed_per_hour"])) == (1, 1)
    assert shown["last_job_error"] == HOPELESS.error
    assert float(shown["oldest_waiting_s"]) == pytest.approx(1800, abs=30)


def test_the_status_knows_failed_workers_the_leader_and_what_an_hour_costs(services: Services) -> None:
    for name in ("one", "two", "three"):
        a_rented_worker(services, name)
    services.database.transact(lambda tx: fleet_sql.fail(tx, WorkerId("one"), ActionReason(Code.GPU_BROKEN, "Xid 79")))
    services.database.transact(lambda tx: fleet_sql.mark_terminated(tx, WorkerId("one")))
    services.database.transact(
        lambda tx: leader_sql.take_leadership(tx, leader_sql.Candidate(holder="me", ttl=timedelta(seconds=60)))
    )
    services.database.transact(lambda tx: history_sql.record_cycle(tx, 1, tx.now(), {}, []))
    shown = status(services)
    assert (shown["leader"], shown["last_worker_error"]) == ("me", "Xid 79")
    assert (int(shown["workers_active"]), int(shown["workers_terminated"])) == (2, 1)
    assert int(shown["workers_failed_per_hour"]) == 1
    assert float(shown["cost_per_hour"]) == pytest.approx(2 * PRICE)
    assert float(shown["last_cycle_s"]) == pytest.approx(0, abs=30)


def test_the_health_of_a_worker_has_its_beat_its_memory_and_its_job(services: Services, clock: MovingClock) -> None:
    worker, silent = a_worker(services), a_worker(services, "silent")
    job_id = a_job(services)
    ago(clock, timedelta(minutes=10))
    beat(services, silent)
    clock.advance(timedelta(minutes=10))
    services.database.transact(lambda tx: fleet_sql.note(tx, worker, {"vram_total_mb": 24000, "vram_used_mb": 6000.0}))
    services.database.transact(lambda tx: fleet_sql.note(tx, silent, {"vram_total_mb": "much"}))
    claimed(services, worker)
    shown = {row["worker_id"]: row for row in rows(services, "active_workers_health")}
    assert shown[worker]["job_id"] == job_id
    assert [float(shown[worker][name]) for name in ("vram_total_mb", "vram_used_mb", "vram_percent")] == [
        24000,
        6000,
        25,
    ]
    assert shown[worker]["heartbeat_age_s"] is None
    assert float(shown[silent]["heartbeat_age_s"]) == pytest.approx(600, abs=30)
    assert (shown[silent]["vram_total_mb"], shown[silent]["vram_percent"], shown[silent]["job_id"]) == (
        None,
        None,
        None,
    )


def test_the_performance_of_a_worker_has_its_rate_its_time_and_its_cost(services: Services, clock: MovingClock) -> None:
    ago(clock, timedelta(hours=2))
    worker = a_rented_worker(services, "one")
    for number in range(4):
        a_job(services, job_id=f"j{number}", max_attempts=1)
        claim = claimed(services, worker)
        start_job(services, claim.key)
        clock.advance(timedelta(seconds=20))
        if number == 3:
            fail_job(services, claim.key, HOPELESS)
        else:
            complete_job(services, claim.key)
    clock.advance(timedelta(hours=2) - timedelta(seconds=80))
    (row,) = rows(services, "worker_performance")
    assert (int(row["jobs_done"]), int(row["jobs_failed"]), int(row["jobs_given_back"])) == (3, 1, 0)
    assert float(row["success_rate"]) == pytest.approx(0.75)
    assert float(row["mean_processing_s"]) == pytest.approx(20, abs=2)
    assert float(row["uptime_s"]) == pytest.approx(7200, abs=30)
    assert float(row["cost_estimate"]) == pytest.approx(2 * PRICE, rel=0.01)


def test_a_worker_that_is_long_gone_is_not_counted_any_more(services: Services, clock: MovingClock) -> None:
    ago(clock, timedelta(days=3))
    worker = a_rented_worker(services, "old")
    a_job(services)
    complete_job(services, claimed(services, worker).key)
    services.database.transact(lambda tx: fleet_sql.drain(tx, worker))
    services.database.transact(lambda tx: fleet_sql.mark_terminated(tx, worker))
    clock.advance(timedelta(days=3))
    assert rows(services, "worker_performance") == []


@pytest.mark.parametrize("view", views.VIEWS)
def test_the_columns_are_those_of_the_page(services: Services, view: str) -> None:
    found = services.database.read(lambda tx: list(tx.execute(text(f"SELECT * FROM {view}")).keys()))
    assert found == [row[0] for row in table(page("docs/reference/views.md").section(view))]


def test_a_view_that_is_gone_is_noticed_and_put_back(backend: Backend) -> None:
    url = backend.empty()
    with opened(url) as database:
        upgrade(database)
        _drop_one(database)
        with pytest.raises(StoreMisconfigured, match="lacks the views orchestrator_status"):
            require_current(database)
        upgrade(database)
        require_current(database)
    backend.drop(url)


def _drop_one(database: Database) -> None:
    with database.alone() as connection:
        connection.execute(text("DROP VIEW orchestrator_status"))
        connection.commit()
