"""S0 and P1 to P5: a fleet at Runpod is grown, healed and shrunk, and nothing leaks."""

from datetime import timedelta
from decimal import Decimal

import pytest

from herdsman.fleet import stats_sql
from herdsman.ids import WorkerId
from herdsman.jobs.assign import claim_job
from herdsman.jobs.commands import find_job
from herdsman.jobs.worker_commands import complete_job
from herdsman.states import JobState
from herdsman.testing.fakes.runpod import Fault
from tests.support.builders import a_job, scalar
from tests.support.control_loop import Herd
from tests.support.databases import every_database, one_database

pytestmark = one_database


def names(herd: Herd) -> list[str]:
    return [pod.name for pod in herd.fake.ledger.alive]


def test_the_floor_is_kept_and_refilled(herd: Herd) -> None:
    replica = herd.replica()
    first = herd.cycle(replica).summary()
    assert first["actions"]["workers_spawned"] == 2  # type: ignore[index]
    herd.cycle(replica)
    assert len(herd.fake.ledger.alive) == 2
    herd.fake.vanish(herd.fake.ledger.alive[0].id)
    herd.with_policy(heartbeat_timeout=timedelta(seconds=5))
    replica = herd.replica()
    for _ in range(8):
        herd.cycle(replica)
    assert len(herd.fake.ledger.alive) == 2


def test_a_queue_grows_the_fleet_up_to_the_ceiling_and_no_further(herd: Herd) -> None:
    for number in range(100):
        a_job(herd.services, job_id=f"j{number}")
    replica = herd.replica()
    for _ in range(5):
        herd.cycle(replica)
    assert len(herd.fake.ledger.alive) == 10
    assert herd.fake.ledger.most_alive == 10


@every_database
def test_two_replicas_at_once_are_one_fleet(herd: Herd) -> None:
    """Only the leader acts."""
    one, two = herd.replica("one"), herd.replica("two")
    for _ in range(3):
        herd.cycle(one, later=timedelta(seconds=1))
        ran = herd.cycle(two, later=timedelta(seconds=1))
        assert ran.skipped == "another replica leads"
    assert herd.fake.ledger.most_alive == 2


@pytest.mark.parametrize(
    "fault", [Fault.CREATED_THEN_500, Fault.CREATED_THEN_CUT, Fault.CREATED_THEN_GARBAGE]
)
def test_a_lost_answer_is_found_again_by_name_and_never_asked_twice(herd: Herd, fault: Fault) -> None:
    """P2: created but unanswered counts as alive, and shows up in the next listing."""
    herd.fake.faults.turn_on(fault)
    replica = herd.replica()
    first = herd.cycle(replica)
    assert not first.complete
    assert len(names(herd)) == 2
    herd.fake.faults.turn_off(fault)
    for _ in range(4):
        herd.cycle(replica)
    assert len(names(herd)) == 2
    assert all(len(herd.fake.ledger.creates(name)) == 1 for name in names(herd))
    assert herd.fake.ledger.most_alive == 2


def test_an_instance_that_stays_invisible_for_a_while_is_not_made_again(herd: Herd) -> None:
    herd.fake.faults.turn_on(Fault.CREATED_THEN_500)
    herd.fake.faults.turn_on(Fault.LISTING_LAG, lasting=timedelta(minutes=3))
    replica = herd.replica()
    for _ in range(4):
        herd.cycle(replica)
    assert herd.fake.ledger.most_alive == 2
    herd.fake.faults.turn_off(Fault.CREATED_THEN_500)
    for _ in range(6):
        herd.cycle(replica)
    assert herd.fake.ledger.most_alive == 2


def test_no_capacity_waits_and_blames_no_worker(herd: Herd) -> None:
    herd.fake.faults.turn_on(Fault.NO_CAPACITY)
    replica = herd.replica()
    herd.cycle(replica, later=timedelta(seconds=5))
    asked = len(herd.fake.ledger.requests)
    second = herd.cycle(replica, later=timedelta(seconds=5))
    assert [step["code"] for step in second.steps()] == ["PROVIDER_WAITS"]
    assert sum(1 for each in herd.fake.ledger.requests[asked:] if each.operation == "create") == 0
    herd.fake.faults.turn_off(Fault.NO_CAPACITY)
    for _ in range(3):
        herd.cycle(replica)
    assert len(names(herd)) == 2


@every_database
def test_a_refused_key_stops_spawning_with_one_try(herd: Herd) -> None:
    herd.fake.faults.turn_on(Fault.UNAUTHORIZED, only=frozenset({"create"}))
    replica = herd.replica()
    for _ in range(3):
        herd.cycle(replica)
    assert [step["code"] for step in herd.cycle(replica).steps()] == ["PROVIDER_REJECTED"]
    assert sum(1 for each in herd.fake.ledger.requests if each.operation == "create") == 1


@pytest.mark.parametrize("fault", [Fault.STORM_500, Fault.STORM_429, Fault.HTML_502, Fault.LISTING_CUT])
def test_who_cannot_list_destroys_and_creates_nothing(herd: Herd, fault: Fault) -> None:
    replica = herd.replica()
    herd.cycle(replica)
    herd.cycle(replica)
    before = names(herd)
    herd.fake.faults.turn_on(
        fault, only=frozenset({"list"}) if fault is not Fault.LISTING_CUT else frozenset()
    )
    for _ in range(3):
        assert "could not be listed" in str(herd.cycle(replica).summary()["skipped"])
    assert names(herd) == before


def test_what_belongs_to_nobody_is_ended_and_what_is_not_ours_is_left_alone(herd: Herd) -> None:
    """P3"""
    replica = herd.replica()
    herd.cycle(replica)
    foreign = herd.fake.add_foreign("gpu--other--w1")
    herd.fake.faults.turn_on(Fault.CREATED_TWICE, times=1)
    a_job(herd.services)
    herd.with_policy(min_workers=3)
    replica = herd.replica()
    for _ in range(6):
        herd.cycle(replica)
    assert len(names(herd)) == 3
    assert next(pod for pod in herd.fake.ledger.pods if pod.id == foreign).alive


def test_a_delete_without_effect_is_asked_for_again(herd: Herd) -> None:
    """P5: a worker is terminated only when its instance is seen to be gone."""
    herd.with_policy(min_workers=0, idle_timeout=timedelta(seconds=10))
    for number in range(1):
        a_job(herd.services, job_id=f"only-{number}")
    replica = herd.replica()
    herd.cycle(replica)
    herd.cycle(replica)
    worker = WorkerId(names(herd)[0].rpartition("--")[2])
    claim = claim_job(herd.services, worker)
    assert claim is not None
    herd.fake.faults.turn_on(Fault.DELETE_IGNORED, times=1)
    complete_job(herd.services, claim.key)
    for _ in range(10):
        herd.cycle(replica)
    assert names(herd) == []
    deletes = [each for each in herd.fake.ledger.requests if each.operation == "delete"]
    assert len(deletes) >= 2


def test_the_job_of_a_lost_worker_is_queued_again_once(herd: Herd) -> None:
    herd.with_policy(min_workers=1, stuck_timeout=timedelta(seconds=40))
    job_id = a_job(herd.services)
    replica = herd.replica()
    herd.cycle(replica)
    herd.cycle(replica)
    worker = WorkerId(names(herd)[0].rpartition("--")[2])
    assert claim_job(herd.services, worker) is not None
    for _ in range(4):
        herd.cycle(replica)
    assert find_job(herd.services, job_id).state is JobState.PENDING
    assert find_job(herd.services, job_id).worker_losses == 1
    assert worker not in {name.rpartition("--")[2] for name in names(herd)}
    assert len(names(herd)) == 1


def test_the_bill_equals_our_ledger(herd: Herd) -> None:
    replica = herd.replica()
    for _ in range(10):
        herd.cycle(replica)
    stays = herd.services.database.read(
        lambda tx: (tx.now(), stats_sql.instance_stays(tx, tx.now() - timedelta(days=1)))
    )
    ours = sum(stay.cost(stay.started_at, stays[0]) for stay in stays[1])
    assert float(ours) == pytest.approx(float(herd.fake.ledger.cost), rel=0.02)


@every_database
def test_the_wait_for_capacity_is_short_again_after_a_success(herd: Herd) -> None:
    """Otherwise the shortages of a month would add up to the longest wait for each later one."""
    herd.fake.faults.turn_on(Fault.NO_CAPACITY)
    replica = herd.replica()
    for _ in range(3):
        herd.cycle(replica, later=timedelta(minutes=5))
    waits = "SELECT waits FROM orchestrator_fleets"
    assert scalar(herd.services.database, waits) == 3
    herd.fake.faults.turn_off(Fault.NO_CAPACITY)
    herd.cycle(replica)
    assert len(names(herd)) == 2
    assert scalar(herd.services.database, waits) == 0


@every_database
def test_no_more_workers_are_created_within_an_hour_than_allowed(herd: Herd) -> None:
    """P9: looked at in the transaction that takes the place, so a loop that spawns and loses cannot go wild."""
    herd.with_policy(max_creates_per_hour=3, min_workers=5)
    replica = herd.replica()
    for _ in range(3):
        herd.cycle(replica)
    assert len(herd.fake.ledger.pods) == 3


def test_a_fleet_that_costs_enough_is_not_grown(herd: Herd) -> None:
    """P9"""
    herd.with_policy(max_cost_per_hour=Decimal("0.6"), min_workers=5)
    replica = herd.replica()
    for _ in range(3):
        herd.cycle(replica)
    price = herd.fake.ledger.cost
    assert 0 < len(herd.fake.ledger.alive) < 5, price
