"""The herd at a glance, on every database: what is counted, what is remembered, and what it says in words."""

from datetime import timedelta

import pytest

from herdsman import __version__
from herdsman.context import Services
from herdsman.errors import InvalidRequest, NotFound
from herdsman.fleet import history_sql, workers_sql
from herdsman.fleet.commands import (
    NOT_RECORDED,
    Overviews,
    find_decision,
    list_decisions,
    living_workers,
    move_worker,
    register_worker,
)
from herdsman.fleet.model import GpuDevice, GpuReport
from herdsman.fleet.wire import OverviewOut
from herdsman.ids import WorkerId
from herdsman.jobs.worker_commands import report_progress
from herdsman.limits import commands as limits_commands
from herdsman.ports import SystemClock
from herdsman.states import JobStatus, Reason, WorkerStatus
from herdsman.testing.fakes.runpod import Fault
from tests.support.builders import a_claim, a_job, a_worker, an_ended_job
from tests.support.control_loop import FleetHarness
from tests.support.databases import MovingClock, every_database, one_database

pytestmark = one_database


def overview(services: Services) -> OverviewOut:
    return Overviews(services, SystemClock()).get()


def test_an_empty_database_has_an_overview(services: Services) -> None:
    found = overview(services)
    assert (found.version, found.leader, found.oldest_job, found.running) == (__version__, None, None, 0)
    assert found.jobs == {state.value: 0 for state in JobStatus}
    assert found.workers == {state.value: 0 for state in WorkerStatus if state is not WorkerStatus.TERMINATED}
    assert (found.queue, found.holds, found.last_decisions, found.series.at) == ((), (), (), ())
    assert (found.cost_per_hour, found.cost_today, found.recovered.jobs) == (0, 0, 0)


def test_queues_are_told_by_type_and_pool_with_the_longest_wait(services: Services, clock: MovingClock) -> None:
    first = a_job(services, type="image", pool="a")
    clock.advance(timedelta(seconds=40))
    for _ in range(2):
        a_job(services, type="image", pool="b")
    clock.advance(timedelta(seconds=20))
    a_job(services, type="demo", delay=timedelta(hours=1))
    found = overview(services)
    told = [(each.type, each.pool, each.queued) for each in found.queue]
    assert told == [("image", "b", 2), ("image", "a", 1)]
    assert [each.oldest_s for each in found.queue] == pytest.approx([20, 60], abs=10)
    assert (found.oldest_job, found.oldest_wait_s) == (first, pytest.approx(60, abs=10))
    assert (found.jobs["pending"], found.jobs["scheduled"]) == (3, 1)


@every_database
def test_what_is_stopped_is_told_in_words(services: Services) -> None:
    limits_commands.pause(services, "type:image", reason="a bad model", duration=None, who="operator:ann")
    (said,) = overview(services).holds
    assert said == "type image is paused by operator:ann (a bad model); go on with: herdsman resume --type image"
    limits_commands.resume(services, "type:image")
    limits_commands.drain(services, reason="a move")
    (said,) = overview(services).holds
    assert said == "everything is drained by admin (a move); go on with: herdsman resume"


def test_the_last_hour_and_the_decisions_come_from_the_cycles(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=1, max_workers=1)
    replica = harness.replica()
    for number in range(4):
        a_job(harness.services, type="image" if number else "demo")
        harness.cycle(replica)
    replica.leadership.resign()
    assert overview(harness.services).leader is None
    term = replica.leadership.campaign()
    assert term is not None
    found = overview(harness.services)
    assert found.leader is not None
    assert (found.leader.who, found.leader.epoch) == ("one", term.epoch)
    series = found.series
    assert (series.by, len(series.at)) == ("type", 4)
    assert series.queued == {"image": (0, 1, 2, 3), "demo": (1, 1, 1, 1)}
    assert series.total == (1, 2, 3, 4)
    assert series.active[-1] == 1
    assert series.running == (0, 0, 0, 0)
    assert series.at == tuple(sorted(series.at))
    spawned = next(each for each in found.last_decisions if each.action == "SpawnWorker")
    assert (spawned.pool, spawned.done) == ("default", True)
    assert spawned.words.startswith("started a worker in pool default: ")
    promoted = next(each for each in found.last_decisions if each.action == "PromoteWorker")
    assert promoted.pool == "default"
    assert found.cost_per_hour == pytest.approx(0.49)
    assert found.cost_today > 0


def test_what_waits_for_a_pool_that_nobody_keeps_is_part_of_the_queue(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=0, max_workers=0)
    a_job(harness.services, pool="other")
    a_job(harness.services)
    harness.cycle(harness.replica())
    assert overview(harness.services).series.total == (2,)


@every_database
def test_a_decision_that_is_the_same_again_is_told_once(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=1)
    harness.fake.faults.turn_on(Fault.NO_CAPACITY)
    replica = harness.replica()
    for _ in range(4):
        harness.cycle(replica, later=timedelta(seconds=5))
    told = {each.code: each.times for each in overview(harness.services).last_decisions}
    assert told["PROVIDER_WAITS"] == 3


def test_the_series_is_bounded_and_a_queue_too_long_to_count_is_told_by_pool(
    harness: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.with_policy(min_workers=0, max_workers=0)
    replica = harness.replica()
    a_job(harness.services, type="image")
    harness.cycle(replica, later=timedelta(seconds=5))
    monkeypatch.setattr(history_sql, "MOST_COUNTED", 0)
    for _ in range(130):
        harness.cycle(replica, later=timedelta(seconds=5))
    series = overview(harness.services).series
    assert (series.by, set(series.queued)) == ("pool", {"default"})
    assert 60 <= len(series.at) <= 120
    assert len(series.at) == len(series.total) == len(series.active) == len(series.queued["default"])


def test_cycles_older_than_an_hour_are_no_part_of_the_series(harness: FleetHarness) -> None:
    replica = harness.replica()
    harness.cycle(replica)
    harness.moving.advance(timedelta(hours=1))
    assert overview(harness.services).series.at == ()


@every_database
def test_decisions_are_paged_newest_first(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=1, max_workers=1)
    replica = harness.replica()
    for _ in range(5):
        harness.cycle(replica)
    first = list_decisions(harness.services, after=None, limit=2)
    rest = list_decisions(harness.services, after=first.next, limit=200)
    numbers = [each.cycle for each in (*first.cycles, *rest.cycles)]
    assert numbers == sorted(numbers, reverse=True)
    assert (len(numbers), len(first.cycles), rest.next) == (5, 2, None)
    oldest = rest.cycles[-1]
    assert (oldest.epoch, oldest.queued, oldest.active) == (1, 0, 0)
    assert oldest.summary == "workers spawned 1"
    assert rest.cycles[0].summary == "nothing to do"


def test_decisions_of_a_pool_and_those_that_acted_are_found(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=1, max_workers=1)
    replica = harness.replica()
    for _ in range(4):
        harness.cycle(replica)
    acted = list_decisions(harness.services, after=None, limit=10, acted=True)
    assert [each.actions[0].action for each in acted.cycles] == ["PromoteWorker", "SpawnWorker"]
    assert len(list_decisions(harness.services, after=None, limit=10, pool="default", acted=True).cycles) == 2
    assert list_decisions(harness.services, after=None, limit=10, pool="other").cycles == ()
    with pytest.raises(InvalidRequest, match="not one that we gave out"):
        list_decisions(harness.services, after="nonsense", limit=10)


def test_a_decision_tells_what_it_saw_and_what_would_have_changed_it(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=1, max_workers=2)
    replica = harness.replica()
    for number in range(2):
        a_job(harness.services, job_id=f"j{number}")
    for _ in range(4):
        harness.cycle(replica)
    number = list_decisions(harness.services, after=None, limit=1).cycles[0].cycle
    found = find_decision(harness.services, number)
    (pool,) = found.pools
    assert (pool.pool, pool.queued, pool.workers, found.note) == ("default", 2, {"active": 1}, "")
    assert pool.would == ("The next worker is added at 4 queued; 2 queued",)
    assert found.inputs["pools"]["default"]["max_workers"] == 2
    harness.with_policy(max_workers=1)
    harness.cycle(harness.replica())
    newest = list_decisions(harness.services, after=None, limit=1).cycles[0].cycle
    would = find_decision(harness.services, newest).pools[0].would
    assert any(said.startswith("blocked by MAX_ACTIVE_GPUS=1") for said in would)


def test_a_cycle_of_an_older_version_says_that_it_recorded_less(services: Services) -> None:
    summary: dict[str, object] = {"actions": {}, "status": {"queued_tasks": 3}}
    services.database.transact(lambda tx: history_sql.record_cycle(tx, 1, tx.now(), summary, []))
    (row,) = list_decisions(services, after=None, limit=10).cycles
    found = find_decision(services, row.cycle)
    assert (found.queued, found.pools, found.note) == (3, (), NOT_RECORDED)
    series = overview(services).series
    assert (series.by, series.total, series.running) == ("pool", (3,), (None,))


@every_database
def test_a_cycle_that_is_not_there_is_not_found(services: Services) -> None:
    with pytest.raises(NotFound, match="no cycle 7"):
        find_decision(services, 7)


@every_database
def test_the_herd_is_told_with_its_jobs_and_gpus(services: Services) -> None:
    claim = a_claim(services, "w1", type="image")
    report_progress(services, claim.key, 0.5, "half")
    a_worker(services, "w2", pool="other")
    device = GpuDevice(index=0, uuid="GPU-1", name="Tesla", total_mb=1000, used_mb=250, utilisation=50)
    report = GpuReport(seen=True, ready=True, vram_total_mb=1000, vram_used_mb=250, devices=(device,))
    services.database.transact(lambda tx: workers_sql.record_heartbeats(tx, claim.worker_id, report))
    found = living_workers(services)
    one, two = found.workers
    assert ((one.worker_id, one.pool), (two.worker_id, two.pool)) == (("w1", "default"), ("w2", "other"))
    (held,) = one.jobs
    assert (held.job_id, held.type, held.progress, held.progress_note) == (
        claim.key.job_id,
        "image",
        0.5,
        "half",
    )
    (bar,) = one.gpus
    assert (bar.used_mb, bar.total_mb, bar.busy_pct) == (250, 1000, 50)
    assert (two.jobs, two.gpus, found.more) == ((), (), 0)


def test_odd_metadata_is_no_gpu(services: Services) -> None:
    for number, gpus in enumerate([7, "x", [1, {"uuid": 3}], {"a": 1}]):
        register_worker(services, WorkerId(f"w{number}"), metadata={"gpus": gpus})
    assert [each.gpus for each in living_workers(services).workers] == [()] * 4


def test_workers_that_are_gone_are_no_part_of_the_herd(services: Services) -> None:
    an_ended_job(services, JobStatus.DONE, "w1")
    move_worker(services, WorkerId("w1"), WorkerStatus.ERROR, Reason.LOST)
    move_worker(services, WorkerId("w1"), WorkerStatus.TERMINATED, Reason.STOPPED)
    assert living_workers(services).workers == ()
