"""Leases that come with claims: a worker with a job has its GPUs, whoever gives or ends the job (L4, L5)."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.errors import Conflict
from herdsman.fleet.model import GpuReport
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.model import Claim
from herdsman.jobs.sweep import end_overdue_leases, expire_claims
from herdsman.jobs.worker_commands import complete_job, fail_job, release_job
from herdsman.leases import sql as leases_sql
from herdsman.leases.commands import keep_lease, list_leases, release_lease
from herdsman.leases.rules import Lease, LeasePolicy
from herdsman.leases.sql import Room
from herdsman.states import LeaseStatus
from tests.support.builders import BROKEN, a_job, a_worker, claimed, scalar, sql
from tests.support.databases import MovingClock
from tests.support.gpus import TOTAL, a_device, a_gpu_worker, a_lease, a_node, refused, told
from tests.support.worker_calls import beat

SECOND = timedelta(seconds=1)
CARD = "GPU-n1-0"


def rooms(services: Services, *workers: WorkerId) -> Mapping[WorkerId, Room]:
    return services.database.transact(lambda tx: leases_sql.rooms(tx, workers, LeasePolicy()))


def occupied(services: Services, claim: Claim, memory_mb: int | None = None) -> None:
    """As the claim does it; a claim that did so already loses nothing by it."""
    services.database.transact(
        lambda tx: leases_sql.occupy(
            tx,
            claim.worker_id,
            agent="ann",
            gpus=leases_sql.rooms(tx, [claim.worker_id], LeasePolicy())[claim.worker_id].gpus,
            memory_mb=memory_mb,
            job_id=claim.key.job_id,
            expires_at=claim.expires_at,
        )
    )


def a_held_job(services: Services, worker: WorkerId, memory_mb: int | None = None) -> Claim:
    a_job(services, agent="ann", gpu_memory_mb=memory_mb)
    claim = claimed(services, worker)
    occupied(services, claim, memory_mb)
    return claim


def live(services: Services) -> list[Lease]:
    return list(list_leases(services, agent=None, ended=False, after=None, limit=50).leases)


def ended(services: Services) -> list[tuple[LeaseStatus, str]]:
    found = list_leases(services, agent=None, ended=True, after=None, limit=50).leases
    return [(each.status, each.reason) for each in found if each.status is not LeaseStatus.ACTIVE]


def test_a_worker_with_a_job_has_all_of_its_gpus(services: Services) -> None:
    worker = a_gpu_worker(services, gpus=2)
    claim = a_held_job(services, worker)
    found = live(services)
    assert [(each.exclusive, each.memory_mb, each.worker_id) for each in found] == [(True, TOTAL, worker)] * 2
    assert {each.metadata["job_id"] for each in found} == {claim.key.job_id}
    assert refused(services, 100) == "held_alone"


@pytest.mark.parametrize("how", ["done", "failed", "given back", "raw SQL"])
def test_l4_a_lease_ends_with_the_claim_whoever_ends_it(services: Services, how: str) -> None:
    worker = a_gpu_worker(services)
    claim = a_held_job(services, worker)
    match how:
        case "done":
            complete_job(services, claim.key, None)
        case "failed":
            fail_job(services, claim.key, BROKEN)
        case "given back":
            release_job(services, claim.key, "the machine is taken back")
        case _:
            sql(
                services.database,
                "UPDATE job_states SET status = 'cancelled', worker_id = NULL,"
                " claim_expires_at = NULL, version = version + 1, finished_at = updated_at",
            )
    assert live(services) == []
    assert ended(services) == [(LeaseStatus.RELEASED, "job_ended")]
    assert scalar(services.database, "SELECT COUNT(*) FROM orchestrator_audit WHERE event_type = 'lease.released'") == 1


def test_a_lease_of_a_silent_worker_expires_with_its_claim(services: Services, clock: MovingClock) -> None:
    worker = a_gpu_worker(services)
    a_held_job(services, worker)
    clock.advance(31 * SECOND)
    assert end_overdue_leases(services) == 0, "the claim decides, not the time of the lease"
    assert expire_claims(services) == 1
    assert ended(services) == [(LeaseStatus.EXPIRED, "claim_expired")]


def test_c_24_the_beat_of_a_worker_renews_its_leases_with_its_claims(services: Services, clock: MovingClock) -> None:
    worker = a_gpu_worker(services)
    claim = a_held_job(services, worker)
    (before,) = live(services)
    clock.advance(20 * SECOND)
    beat(services, worker, claim.key)
    (after,) = live(services)
    assert after.expires_at - before.expires_at >= 20 * SECOND


def test_a_second_job_of_a_batch_takes_no_second_lease(services: Services) -> None:
    worker = a_gpu_worker(services)
    claim = a_held_job(services, worker, 4000)
    occupied(services, claim, 2000)
    assert [each.memory_mb for each in live(services)] == [4000]
    occupied(services, claim, 6000)
    assert [each.memory_mb for each in live(services)] == [6000]


def test_a_worker_does_not_stand_in_its_own_way(services: Services) -> None:
    worker = a_gpu_worker(services)
    claim = a_held_job(services, worker)
    assert rooms(services, worker)[worker] == Room((CARD,), whole=True, free_mb=TOTAL)
    complete_job(services, claim.key, None)
    assert rooms(services, worker)[worker].whole, "its supervisor has reaped the job's processes"
    assert refused(services) == "unproven", "for others somebody has to look first"
    told(services, worker)
    assert a_lease(services)


def test_a_lease_of_others_narrows_the_room_of_a_worker(services: Services) -> None:
    worker = a_gpu_worker(services)
    lease = a_lease(services, 10_000)
    assert rooms(services, worker)[worker] == Room((CARD,), whole=False, free_mb=TOTAL - 10_000)
    release_lease(services, lease.token, who="ann")
    assert rooms(services, worker)[worker].free_mb == 0
    told(services, worker)
    assert rooms(services, worker)[worker].whole


def test_outsiders_narrow_the_room_of_a_worker_and_its_own_memory_does_not(services: Services) -> None:
    worker = a_gpu_worker(services)
    told(services, worker, own_mb=20_000)
    assert rooms(services, worker)[worker].whole
    beat(
        services,
        worker,
        None,
        GpuReport(
            ready=True,
            seen=True,
            vram_total_mb=1,
            vram_used_mb=0,
            devices=(a_device(used_mb=20_000, own_mb=1000),),
            node="n1",
        ),
    )
    assert rooms(services, worker)[worker] == Room((CARD,), whole=False, free_mb=TOTAL - 19_000)


def test_a_worker_without_gpus_needs_no_lease(services: Services) -> None:
    worker = a_worker(services)
    a_node(services)
    assert rooms(services, worker) == {}


def test_two_workers_on_one_card_have_it_in_turn(services: Services) -> None:
    one, two = a_gpu_worker(services, "one"), a_gpu_worker(services, "two")
    a_held_job(services, one)
    assert not rooms(services, two)[two].whole
    assert rooms(services, one)[one].whole


def test_a_lease_of_a_claim_is_not_released_or_kept_by_hand(services: Services) -> None:
    worker = a_gpu_worker(services)
    a_held_job(services, worker)
    (lease,) = live(services)
    with pytest.raises(Conflict, match="claim of worker"):
        release_lease(services, lease.token, who="eve")
    with pytest.raises(Conflict, match="worker's heartbeat"):
        keep_lease(services, lease.token)


def test_l4_a_lease_without_a_claim_is_swept_once_its_time_is_over(services: Services, clock: MovingClock) -> None:
    """Two jobs that end in the same moment may each see the other's claim, and leave the lease to this."""
    worker = a_gpu_worker(services)
    now = services.database.read(lambda tx: tx.now())
    services.database.transact(
        lambda tx: leases_sql.occupy(
            tx,
            worker,
            agent="ann",
            gpus=leases_sql.rooms(tx, [worker], LeasePolicy())[worker].gpus,
            memory_mb=None,
            job_id=JobId("gone"),
            expires_at=now + 30 * SECOND,
        )
    )
    clock.advance(29 * SECOND)
    assert end_overdue_leases(services) == 0
    clock.advance(2 * SECOND)
    assert end_overdue_leases(services) == 1
