"""What a person does to the fleet follows the rules of the loop, and its fence."""

from datetime import timedelta

import pytest

from herdsman.errors import CapacityUnavailable, Conflict, NotFound, StaleWrite
from herdsman.fleet import snapshot_sql
from herdsman.fleet.cost import cost
from herdsman.fleet.phases.instances import Kind
from herdsman.fleet.reconcile import compare, repair, spawn_worker, terminate_worker
from herdsman.ids import DEFAULT_POOL, WorkerId
from herdsman.jobs.commands import find_job
from herdsman.states import JobStatus, WorkerStatus
from herdsman.testing.fakes.runpod import Fault
from tests.support.builders import a_job, sql
from tests.support.control_loop import FleetHarness
from tests.support.databases import every_database, one_database
from tests.support.worker_calls import claim_job

pytestmark = one_database


def alive(harness: FleetHarness) -> list[WorkerId]:
    return [WorkerId(pod.name.rpartition("--")[2]) for pod in harness.fake.ledger.alive]


def state(harness: FleetHarness, worker: WorkerId) -> WorkerStatus:
    seen = harness.services.database.read(snapshot_sql.read_workers)
    return next(each.status for each in seen if each.id == worker)


def test_a_fleet_that_fits_has_nothing_to_audit(harness: FleetHarness) -> None:
    replica = harness.replica()
    harness.cycle(replica)
    assert compare(replica).found == ()
    assert compare(replica).doubts == ""


def test_a_stray_is_seen_left_alone_and_then_ended_when_asked(harness: FleetHarness) -> None:
    replica = harness.replica()
    harness.fake.faults.turn_on(Fault.CREATED_TWICE, times=1)
    harness.cycle(replica)
    foreign = harness.fake.add_foreign("gpu--other--w1")
    audited = compare(replica)
    assert [each.kind for each in audited.left] == [Kind.DUPLICATE]
    assert audited.left[0].cost_per_hour > 0
    assert repair(replica, ()).left == audited.left, "nobody has agreed to it"
    assert len(alive(harness)) == 3
    mended = repair(replica, [each.instance for each in audited.left if each.instance])
    assert [each.kind for each in mended.found] == [Kind.DUPLICATE]
    assert mended.left == ()
    assert len(alive(harness)) == 2
    assert next(pod for pod in harness.fake.ledger.pods if pod.id == foreign).alive


def test_a_worker_without_an_instance_is_left_to_the_rules_of_the_loop(harness: FleetHarness) -> None:
    """It is not called terminated before its instance is known to be gone."""
    replica = harness.replica()
    harness.cycle(replica)
    harness.cycle(replica)
    harness.fake.vanish(harness.fake.ledger.alive[0].id)
    assert [each.kind for each in repair(replica, ()).left] == [Kind.MISSING]
    harness.with_policy(heartbeat_timeout=timedelta(seconds=5))
    for _ in range(4):
        harness.moving.advance(timedelta(minutes=1))
        harness.hands_of_time.advance(timedelta(minutes=1))
        repair(harness.replica(), ())
    assert compare(harness.replica()).left == ()
    assert len(alive(harness)) == 1, "an audit spawns nothing"


@every_database
def test_an_audit_mends_nothing_while_another_leads(harness: FleetHarness) -> None:
    one, two = harness.replica("one"), harness.replica("two")
    harness.fake.faults.turn_on(Fault.CREATED_TWICE, times=1)
    harness.cycle(one, later=timedelta(seconds=1))
    with pytest.raises(Conflict, match="another replica leads"):
        repair(two, ())
    assert len(alive(harness)) == 3


def test_a_listing_that_is_cut_concludes_nothing(harness: FleetHarness) -> None:
    replica = harness.replica()
    harness.cycle(replica)
    harness.fake.faults.turn_on(Fault.STORM_500, only=frozenset({"list"}))
    assert "could not be listed" in repair(replica, ()).doubts
    assert len(alive(harness)) == 2


def test_an_empty_table_is_doubted_and_nothing_is_ended(harness: FleetHarness) -> None:
    harness.cycle(harness.replica())
    forget(harness)
    audited = repair(harness.replica(), ())
    assert "the table of workers is empty" in audited.doubts
    assert audited.done is None
    assert len(alive(harness)) == 2


def forget(harness: FleetHarness) -> None:
    """As after somebody pointed us at another database."""
    for table in ("workers", "orchestrator_instances"):
        sql(harness.services.database, f"DELETE FROM {table}")


def test_one_worker_is_spawned_by_hand_within_the_ceiling(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=0, max_workers=1)
    replica = harness.replica()
    said = spawn_worker(replica, DEFAULT_POOL)
    assert said.split(" ")[0] in alive(harness)
    with pytest.raises(CapacityUnavailable, match="1 workers alive already"):
        spawn_worker(replica, DEFAULT_POOL)
    assert replica.leadership.term is None, "leadership is given back"


@every_database
def test_no_worker_is_spawned_by_hand_while_another_leads(harness: FleetHarness) -> None:
    harness.replica("one").leadership.campaign()
    with pytest.raises(Conflict):
        spawn_worker(harness.replica("two"), DEFAULT_POOL)
    assert alive(harness) == []


@every_database
def test_a_worker_let_go_by_hand_is_ended_and_confirmed_by_the_loop(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=0)
    replica = harness.replica()
    spawn_worker(replica, DEFAULT_POOL)
    (worker,) = alive(harness)
    harness.cycle(replica)
    assert state(harness, worker) is WorkerStatus.ACTIVE
    done = terminate_worker(replica, worker, with_job=False)
    assert [step["action"] for step in done.steps()] == ["EndInstance"]
    assert state(harness, worker) is WorkerStatus.TERMINATING
    for _ in range(3):
        harness.cycle(replica)
    assert state(harness, worker) is WorkerStatus.TERMINATED
    assert alive(harness) == []
    with pytest.raises(NotFound):
        terminate_worker(replica, worker, with_job=False)


@every_database
def test_a_worker_with_a_job_is_only_let_go_by_force_and_its_job_goes_back(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=1)
    replica = harness.replica()
    harness.cycle(replica)
    harness.cycle(replica)
    (worker,) = alive(harness)
    job_id = a_job(harness.services)
    assert claim_job(harness.services, worker) is not None
    with pytest.raises(StaleWrite, match="use --force"):
        terminate_worker(replica, worker, with_job=False)
    terminate_worker(replica, worker, with_job=True)
    assert find_job(harness.services, job_id).status is JobStatus.PENDING
    assert state(harness, worker) is WorkerStatus.ERROR
    assert alive(harness) == []


def test_the_bill_equals_that_of_runpod_however_it_is_grouped(harness: FleetHarness) -> None:
    """Over a whole life, with a worker that fails and one that takes its place."""
    harness.with_policy(stuck_timeout=timedelta(minutes=20))
    replica = harness.replica()
    a_job(harness.services, type="image")
    for number in range(80):
        harness.cycle(replica)
        if number == 3:
            assert claim_job(harness.services, alive(harness)[0]) is not None
    assert len(harness.fake.ledger.pods) == 3
    found = cost(harness.services, days=2)
    assert found.total_usd == pytest.approx(float(harness.fake.ledger.cost), rel=0.02)
    for lines in (found.by_day, found.by_pool, found.by_type):
        assert sum(line.total_usd for line in lines) == pytest.approx(found.total_usd)
        assert sum(line.busy_usd for line in lines) == pytest.approx(0.49 * 20 / 60, rel=0.05)
    assert found.per_hour_usd == pytest.approx(2 * 0.49)
