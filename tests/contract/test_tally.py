"""What metrics count is the same on every database."""

from datetime import timedelta

from herdsman.context import Services
from herdsman.fleet import stats_sql
from herdsman.jobs.worker_commands import complete_job
from tests.support.builders import a_claim, a_job, a_worker, claimed
from tests.support.databases import NOON, MovingClock


def test_the_time_that_jobs_took_is_added_up_by_their_type(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    worker = a_worker(services)
    for kind, took in (("a", 3.0), ("a", 0.2), ("b", 4000.0)):
        a_job(services, type=kind)
        clock.advance(timedelta(seconds=took))
        complete_job(services, claimed(services, worker).key, None)
    end = services.database.read(lambda tx: tx.now())
    found = services.database.read(lambda tx: stats_sql.latency_totals(tx, NOON, end))
    assert [(each.type, each.count) for each in found] == [("a", 2), ("b", 1)]
    assert abs(found[0].seconds - 3.2) < 0.01
    assert found[0].within == (0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2)
    assert found[1].within[-1] == 0
    assert services.database.read(lambda tx: stats_sql.latency_totals(tx, end, end + timedelta(hours=1))) == []


def test_what_lives_and_waits_is_counted(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    a_claim(services, "w1")
    a_worker(services, "w2", pool="other")
    a_job(services)
    read = services.database.read
    assert (read(stats_sql.jobs_held), read(stats_sql.depths)) == (1, {"default": 1})
    assert read(stats_sql.workers_by_pool) == {"default": 1, "other": 1}
    assert read(stats_sql.claims_overdue) == 0
    gpus = read(lambda tx: stats_sql.read_gpus(tx, services.leasing))
    assert (gpus.leases, gpus.free, gpus.expired, gpus.quarantined, gpus.used_pct) == (0, 0, 0, 0, {})
    clock.advance(timedelta(minutes=5))
    assert read(stats_sql.claims_overdue) == 1
