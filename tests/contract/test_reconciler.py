"""S0 and P1 to P5: a fleet at Runpod is grown, healed and shrunk, and nothing leaks."""

from datetime import timedelta
from decimal import Decimal

import pytest

from herdsman.errors import StoreUnavailable
from herdsman.fleet import reconcile, sql, stats_sql
from herdsman.fleet.decide import Plan, decide
from herdsman.fleet.snapshot import Snapshot
from herdsman.ids import WorkerId
from herdsman.jobs.commands import find_job
from herdsman.jobs.worker_commands import complete_job
from herdsman.states import JobStatus
from herdsman.testing.fakes.runpod import Fault
from tests.support.builders import a_job, scalar
from tests.support.control_loop import FleetHarness
from tests.support.databases import every_database, one_database
from tests.support.worker_calls import claim_job

pytestmark = one_database


def names(harness: FleetHarness) -> list[str]:
    return [pod.name for pod in harness.fake.ledger.alive]


def test_the_floor_is_kept_and_refilled(harness: FleetHarness) -> None:
    replica = harness.replica()
    first = harness.cycle(replica).summary()
    assert first["actions"]["workers_spawned"] == 2  # type: ignore[index]
    harness.cycle(replica)
    assert len(harness.fake.ledger.alive) == 2
    harness.fake.vanish(harness.fake.ledger.alive[0].id)
    harness.with_policy(heartbeat_timeout=timedelta(seconds=5))
    replica = harness.replica()
    for _ in range(8):
        harness.cycle(replica)
    assert len(harness.fake.ledger.alive) == 2


def test_a_queue_grows_the_fleet_up_to_the_ceiling_and_no_further(harness: FleetHarness) -> None:
    for number in range(100):
        a_job(harness.services, job_id=f"j{number}")
    replica = harness.replica()
    for _ in range(5):
        harness.cycle(replica)
    assert len(harness.fake.ledger.alive) == 10
    assert harness.fake.ledger.most_alive == 10


@every_database
def test_two_replicas_at_once_are_one_fleet(harness: FleetHarness) -> None:
    """Only the leader acts."""
    one, two = harness.replica("one"), harness.replica("two")
    for _ in range(3):
        harness.cycle(one, later=timedelta(seconds=1))
        ran = harness.cycle(two, later=timedelta(seconds=1))
        assert ran.skipped == "another replica leads"
    assert harness.fake.ledger.most_alive == 2


@pytest.mark.parametrize("fault", [Fault.CREATED_THEN_500, Fault.CREATED_THEN_CUT, Fault.CREATED_THEN_GARBAGE])
def test_a_lost_answer_is_found_again_by_name_and_never_asked_twice(harness: FleetHarness, fault: Fault) -> None:
    """P2: created but unanswered counts as alive, and shows up in the next listing."""
    harness.fake.faults.turn_on(fault)
    replica = harness.replica()
    first = harness.cycle(replica)
    assert not first.complete
    assert len(names(harness)) == 2
    harness.fake.faults.turn_off(fault)
    for _ in range(4):
        harness.cycle(replica)
    assert len(names(harness)) == 2
    assert all(len(harness.fake.ledger.creates(name)) == 1 for name in names(harness))
    assert harness.fake.ledger.most_alive == 2


def test_an_instance_that_stays_invisible_for_a_while_is_not_made_again(harness: FleetHarness) -> None:
    harness.fake.faults.turn_on(Fault.CREATED_THEN_500)
    harness.fake.faults.turn_on(Fault.LISTING_LAG, lasting=timedelta(minutes=3))
    replica = harness.replica()
    for _ in range(4):
        harness.cycle(replica)
    assert harness.fake.ledger.most_alive == 2
    harness.fake.faults.turn_off(Fault.CREATED_THEN_500)
    for _ in range(6):
        harness.cycle(replica)
    assert harness.fake.ledger.most_alive == 2


def test_no_capacity_waits_and_blames_no_worker(harness: FleetHarness) -> None:
    harness.fake.faults.turn_on(Fault.NO_CAPACITY)
    replica = harness.replica()
    harness.cycle(replica, later=timedelta(seconds=5))
    asked = len(harness.fake.ledger.requests)
    second = harness.cycle(replica, later=timedelta(seconds=5))
    assert [step["code"] for step in second.steps()] == ["PROVIDER_WAITS"]
    assert sum(1 for each in harness.fake.ledger.requests[asked:] if each.operation == "create") == 0
    harness.fake.faults.turn_off(Fault.NO_CAPACITY)
    for _ in range(3):
        harness.cycle(replica)
    assert len(names(harness)) == 2


@every_database
def test_a_refused_key_stops_spawning_with_one_try(harness: FleetHarness) -> None:
    harness.fake.faults.turn_on(Fault.UNAUTHORIZED, only=frozenset({"create"}))
    replica = harness.replica()
    for _ in range(3):
        harness.cycle(replica)
    assert [step["code"] for step in harness.cycle(replica).steps()] == ["PROVIDER_REJECTED"]
    assert sum(1 for each in harness.fake.ledger.requests if each.operation == "create") == 1


@pytest.mark.parametrize("fault", [Fault.STORM_500, Fault.STORM_429, Fault.HTML_502, Fault.LISTING_CUT])
def test_who_cannot_list_destroys_and_creates_nothing(harness: FleetHarness, fault: Fault) -> None:
    replica = harness.replica()
    harness.cycle(replica)
    harness.cycle(replica)
    before = names(harness)
    harness.fake.faults.turn_on(fault, only=frozenset({"list"}) if fault is not Fault.LISTING_CUT else frozenset[str]())
    for _ in range(3):
        assert "could not be listed" in str(harness.cycle(replica).summary()["skipped"])
    assert names(harness) == before


def test_what_belongs_to_nobody_is_ended_and_what_is_not_ours_is_left_alone(harness: FleetHarness) -> None:
    """P3"""
    replica = harness.replica()
    harness.cycle(replica)
    foreign = harness.fake.add_foreign("gpu--other--w1")
    harness.fake.faults.turn_on(Fault.CREATED_TWICE, times=1)
    a_job(harness.services)
    harness.with_policy(min_workers=3)
    replica = harness.replica()
    for _ in range(6):
        harness.cycle(replica)
    assert len(names(harness)) == 3
    assert next(pod for pod in harness.fake.ledger.pods if pod.id == foreign).alive


def test_a_delete_without_effect_is_asked_for_again(harness: FleetHarness) -> None:
    """P5: a worker is terminated only when its instance is seen to be gone."""
    harness.with_policy(min_workers=0, idle_timeout=timedelta(seconds=10))
    for number in range(1):
        a_job(harness.services, job_id=f"only-{number}")
    replica = harness.replica()
    harness.cycle(replica)
    harness.cycle(replica)
    worker = WorkerId(names(harness)[0].rpartition("--")[2])
    claim = claim_job(harness.services, worker)
    assert claim is not None
    harness.fake.faults.turn_on(Fault.DELETE_IGNORED, times=1)
    complete_job(harness.services, claim.key)
    for _ in range(10):
        harness.cycle(replica)
    assert names(harness) == []
    deletes = [each for each in harness.fake.ledger.requests if each.operation == "delete"]
    assert len(deletes) >= 2


def test_the_job_of_a_lost_worker_is_queued_again_once(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=1, stuck_timeout=timedelta(seconds=40))
    job_id = a_job(harness.services)
    replica = harness.replica()
    harness.cycle(replica)
    harness.cycle(replica)
    worker = WorkerId(names(harness)[0].rpartition("--")[2])
    assert claim_job(harness.services, worker) is not None
    for _ in range(4):
        harness.cycle(replica)
    assert find_job(harness.services, job_id).status is JobStatus.PENDING
    assert find_job(harness.services, job_id).worker_losses == 1
    assert worker not in {name.rpartition("--")[2] for name in names(harness)}
    assert len(names(harness)) == 1


@every_database
def test_a_worker_that_gets_a_job_before_it_is_drained_keeps_its_machine(
    harness: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8: its drain is refused, and the end of its machine was planned only for a worker that is drained."""
    harness.with_policy(min_workers=0, idle_timeout=timedelta(seconds=10))
    first = a_job(harness.services)
    replica = harness.replica()
    harness.cycle(replica)
    harness.cycle(replica, later=timedelta(seconds=1))
    worker = WorkerId(names(harness)[0].rpartition("--")[2])
    claim = claim_job(harness.services, worker)
    assert claim is not None
    complete_job(harness.services, claim.key)
    harness.cycle(replica, later=timedelta(minutes=5))

    def decide_and_claim(seen: Snapshot) -> Plan:
        plan = decide(seen)
        a_job(harness.services, job_id="late")
        assert claim_job(harness.services, worker) is not None
        return plan

    monkeypatch.setattr(reconcile, "decide", decide_and_claim)
    ran = harness.cycle(replica, later=timedelta(0))
    refused = {str(step["action"]): str(step["said"]) for step in ran.steps() if not step["done"]}
    assert "has got a job meanwhile" in refused["DrainIdleWorker"]
    assert refused["EndInstance"] == "an earlier step for this worker was not done"
    assert find_job(harness.services, first).status is JobStatus.DONE
    assert [name.rpartition("--")[2] for name in names(harness)] == [worker]


def test_a_dead_machine_whose_ref_was_not_written_down_frees_its_place_soon(
    harness: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P5: its ref is needed to ask the provider for it; without one its place is kept for the absence window."""
    harness.with_policy(min_workers=1, max_workers=1, absence_window=timedelta(minutes=10))
    harness.fake.faults.turn_on(Fault.CREATED_THEN_500)
    replica = harness.replica()
    harness.cycle(replica)
    harness.fake.faults.turn_off(Fault.CREATED_THEN_500)
    (dead,) = harness.fake.ledger.alive
    harness.fake.preempt(dead.id)
    with monkeypatch.context() as broken:

        def attach(*_: object) -> None:
            raise StoreUnavailable("the connection broke")

        broken.setattr(sql, "attach", attach)
        ran = harness.cycle(replica)
    steps = {str(step["action"]): step["done"] for step in ran.steps() if step["action"] != "Note"}
    assert steps == {"AttachInstance": False, "FailWorker": False, "EndInstance": False}
    worker = WorkerId(dead.name.rpartition("--")[2])
    state = f"SELECT status FROM workers WHERE id = '{worker}'"
    assert scalar(harness.services.database, state) == "spawning"
    for _ in range(4):
        harness.cycle(replica)
    assert scalar(harness.services.database, state) == "terminated"


def test_the_bill_equals_our_ledger(harness: FleetHarness) -> None:
    replica = harness.replica()
    for _ in range(10):
        harness.cycle(replica)
    stays = harness.services.database.read(
        lambda tx: (tx.now(), stats_sql.instance_stays(tx, tx.now() - timedelta(days=1)))
    )
    ours = sum(stay.cost(stay.started_at, stays[0]) for stay in stays[1])
    assert float(ours) == pytest.approx(float(harness.fake.ledger.cost), rel=0.02)


@every_database
def test_the_wait_for_capacity_is_short_again_after_a_success(harness: FleetHarness) -> None:
    """Otherwise the shortages of a month would add up to the longest wait for each later one."""
    harness.fake.faults.turn_on(Fault.NO_CAPACITY)
    replica = harness.replica()
    for _ in range(3):
        harness.cycle(replica, later=timedelta(minutes=5))
    waits = "SELECT waits FROM orchestrator_fleets"
    assert scalar(harness.services.database, waits) == 3
    harness.fake.faults.turn_off(Fault.NO_CAPACITY)
    harness.cycle(replica)
    assert len(names(harness)) == 2
    assert scalar(harness.services.database, waits) == 0


@every_database
def test_no_more_workers_are_created_within_an_hour_than_allowed(harness: FleetHarness) -> None:
    """P9: looked at in the transaction that takes the place, so a loop that spawns and loses cannot go wild."""
    harness.with_policy(max_creates_per_hour=3, min_workers=5)
    replica = harness.replica()
    for _ in range(3):
        harness.cycle(replica)
    assert len(harness.fake.ledger.pods) == 3


def test_a_fleet_that_costs_enough_is_not_grown(harness: FleetHarness) -> None:
    """P9"""
    harness.with_policy(max_cost_per_hour=Decimal("0.6"), min_workers=5)
    replica = harness.replica()
    for _ in range(3):
        harness.cycle(replica)
    price = harness.fake.ledger.cost
    assert 0 < len(harness.fake.ledger.alive) < 5, price
