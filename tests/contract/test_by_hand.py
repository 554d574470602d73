"""What a person does to the fleet follows the rules of the loop, and its fence."""

from datetime import timedelta

import pytest

from herdsman.errors import CapacityUnavailable, Conflict, NotFound, StaleWrite
from herdsman.fleet import snapshot_sql
from herdsman.fleet.cost import cost
from herdsman.fleet.manual import compare, repair, spawn_worker, terminate_worker
from herdsman.fleet.phases.instances import Kind
from herdsman.ids import DEFAULT_POOL, WorkerId
from herdsman.jobs.assign import claim_job
from herdsman.jobs.commands import find_job
from herdsman.states import JobState, WorkerState
from herdsman.testing.fakes.runpod import Fault
from tests.support.builders import a_job, sql
from tests.support.control_loop import Herd
from tests.support.databases import every_database, one_database

pytestmark = one_database


def alive(herd: Herd) -> list[WorkerId]:
    return [WorkerId(pod.name.rpartition("--")[2]) for pod in herd.fake.ledger.alive]


def state(herd: Herd, worker: WorkerId) -> WorkerState:
    seen = herd.services.database.read(snapshot_sql.read_workers)
    return next(each.state for each in seen if each.id == worker)


def test_a_fleet_that_fits_has_nothing_to_audit(herd: Herd) -> None:
    replica = herd.replica()
    herd.cycle(replica)
    assert compare(replica).found == ()
    assert compare(replica).doubts == ""


def test_a_stray_is_seen_left_alone_and_then_ended_when_asked(herd: Herd) -> None:
    replica = herd.replica()
    herd.fake.faults.turn_on(Fault.CREATED_TWICE, times=1)
    herd.cycle(replica)
    foreign = herd.fake.add_foreign("gpu--other--w1")
    audited = compare(replica)
    assert [each.kind for each in audited.left] == [Kind.DUPLICATE]
    assert audited.left[0].cost_per_hour > 0
    assert repair(replica, ()).left == audited.left, "nobody has agreed to it"
    assert len(alive(herd)) == 3
    mended = repair(replica, [each.instance for each in audited.left if each.instance])
    assert [each.kind for each in mended.found] == [Kind.DUPLICATE]
    assert mended.left == ()
    assert len(alive(herd)) == 2
    assert next(pod for pod in herd.fake.ledger.pods if pod.id == foreign).alive


def test_a_worker_without_an_instance_is_left_to_the_rules_of_the_loop(herd: Herd) -> None:
    """It is not called terminated before its instance is known to be gone."""
    replica = herd.replica()
    herd.cycle(replica)
    herd.cycle(replica)
    herd.fake.vanish(herd.fake.ledger.alive[0].id)
    assert [each.kind for each in repair(replica, ()).left] == [Kind.MISSING]
    herd.with_policy(heartbeat_timeout=timedelta(seconds=5))
    for _ in range(4):
        herd.moving.advance(timedelta(minutes=1))
        herd.hands_of_time.advance(timedelta(minutes=1))
        repair(herd.replica(), ())
    assert compare(herd.replica()).left == ()
    assert len(alive(herd)) == 1, "an audit spawns nothing"


@every_database
def test_an_audit_mends_nothing_while_another_leads(herd: Herd) -> None:
    one, two = herd.replica("one"), herd.replica("two")
    herd.fake.faults.turn_on(Fault.CREATED_TWICE, times=1)
    herd.cycle(one, later=timedelta(seconds=1))
    with pytest.raises(Conflict, match="another replica leads"):
        repair(two, ())
    assert len(alive(herd)) == 3


def test_a_listing_that_is_cut_concludes_nothing(herd: Herd) -> None:
    replica = herd.replica()
    herd.cycle(replica)
    herd.fake.faults.turn_on(Fault.STORM_500, only=frozenset({"list"}))
    assert "could not be listed" in repair(replica, ()).doubts
    assert len(alive(herd)) == 2


def test_an_empty_table_is_doubted_and_nothing_is_ended(herd: Herd) -> None:
    herd.cycle(herd.replica())
    forget(herd)
    audited = repair(herd.replica(), ())
    assert "the table of workers is empty" in audited.doubts
    assert audited.done is None
    assert len(alive(herd)) == 2


def forget(herd: Herd) -> None:
    """As after somebody pointed us at another database."""
    for table in ("workers", "orchestrator_instances"):
        sql(herd.services.database, f"DELETE FROM {table}")


def test_one_worker_is_spawned_by_hand_within_the_ceiling(herd: Herd) -> None:
    herd.with_policy(min_workers=0, max_workers=1)
    replica = herd.replica()
    said = spawn_worker(replica, DEFAULT_POOL)
    assert said.split(" ")[0] in alive(herd)
    with pytest.raises(CapacityUnavailable, match="1 workers alive already"):
        spawn_worker(replica, DEFAULT_POOL)
    assert replica.leadership.term is None, "leadership is given back"


@every_database
def test_no_worker_is_spawned_by_hand_while_another_leads(herd: Herd) -> None:
    herd.replica("one").leadership.campaign()
    with pytest.raises(Conflict):
        spawn_worker(herd.replica("two"), DEFAULT_POOL)
    assert alive(herd) == []


@every_database
def test_a_worker_let_go_by_hand_is_ended_and_confirmed_by_the_loop(herd: Herd) -> None:
    herd.with_policy(min_workers=0)
    replica = herd.replica()
    spawn_worker(replica, DEFAULT_POOL)
    (worker,) = alive(herd)
    herd.cycle(replica)
    assert state(herd, worker) is WorkerState.ACTIVE
    done = terminate_worker(replica, worker, with_job=False)
    assert [step["action"] for step in done.steps()] == ["EndInstance"]
    assert state(herd, worker) is WorkerState.TERMINATING
    for _ in range(3):
        herd.cycle(replica)
    assert state(herd, worker) is WorkerState.TERMINATED
    assert alive(herd) == []
    with pytest.raises(NotFound):
        terminate_worker(replica, worker, with_job=False)


@every_database
def test_a_worker_with_a_job_is_only_let_go_by_force_and_its_job_goes_back(herd: Herd) -> None:
    herd.with_policy(min_workers=1)
    replica = herd.replica()
    herd.cycle(replica)
    herd.cycle(replica)
    (worker,) = alive(herd)
    job_id = a_job(herd.services)
    assert claim_job(herd.services, worker) is not None
    with pytest.raises(StaleWrite, match="use --force"):
        terminate_worker(replica, worker, with_job=False)
    terminate_worker(replica, worker, with_job=True)
    assert find_job(herd.services, job_id).state is JobState.PENDING
    assert state(herd, worker) is WorkerState.ERROR
    assert alive(herd) == []


def test_the_bill_equals_that_of_runpod_however_it_is_grouped(herd: Herd) -> None:
    """Over a whole life, with a worker that fails and one that takes its place."""
    herd.with_policy(stuck_timeout=timedelta(minutes=20))
    replica = herd.replica()
    a_job(herd.services, type="image")
    for number in range(80):
        herd.cycle(replica)
        if number == 3:
            assert claim_job(herd.services, alive(herd)[0]) is not None
    assert len(herd.fake.ledger.pods) == 3
    found = cost(herd.services, days=2)
    assert found.total_usd == pytest.approx(float(herd.fake.ledger.cost), rel=0.02)
    for lines in (found.by_day, found.by_pool, found.by_type):
        assert sum(line.total_usd for line in lines) == pytest.approx(found.total_usd)
        assert sum(line.busy_usd for line in lines) == pytest.approx(0.49 * 20 / 60, rel=0.05)
    assert found.per_hour_usd == pytest.approx(2 * 0.49)
