"""Jobs are given out as GPUs allow it, and the lease comes with the claim or not at all (L1, L5)."""

from collections.abc import Sequence
from typing import Any

import pytest

from herdsman.context import Services
from herdsman.fleet.model import GpuReport
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.assign import claim_for
from herdsman.jobs.model import Claim
from herdsman.jobs.protocol import ClaimRequest
from herdsman.jobs.worker_commands import complete_job
from herdsman.leases import sql as leases_sql
from herdsman.leases.commands import list_leases, release_lease
from herdsman.leases.rules import Lease, LeaseMode, LeasePolicy
from tests.support.builders import a_job, a_worker, scalar
from tests.support.gpus import a_gpu_worker, a_lease, told
from tests.support.worker_calls import beat


def asked(services: Services, *workers: WorkerId, **wanted: Any) -> Sequence[Claim]:
    return claim_for(services, {worker: ClaimRequest(**wanted) for worker in workers})


def live(services: Services) -> Sequence[Lease]:
    return list_leases(services, agent=None, ended=False, after=None, limit=50).leases


def test_a_claim_brings_its_lease_and_the_end_takes_it_back(services: Services) -> None:
    worker = a_gpu_worker(services)
    a_job(services, agent="ann")
    (claim,) = asked(services, worker)
    (lease,) = live(services)
    assert (lease.worker_id, lease.agent, lease.exclusive) == (worker, "ann", True)
    assert lease.metadata["job_id"] == claim.key.job_id
    complete_job(services, claim.key)
    assert live(services) == ()


def test_two_workers_on_one_gpu_never_run_at_the_same_time(services: Services) -> None:
    """Both ask in one transaction, and both would find the GPU free."""
    one, two = a_gpu_worker(services, "w1"), a_gpu_worker(services, "w2")
    told(services, one)
    a_job(services)
    a_job(services)
    (claim,) = asked(services, one, two)
    assert asked(services, one, two) == []
    complete_job(services, claim.key)
    told(services, one)
    told(services, two)
    assert len(asked(services, one, two)) == 1


def test_jobs_that_say_what_they_need_share_a_gpu(services: Services) -> None:
    one, two = a_gpu_worker(services, "w1"), a_gpu_worker(services, "w2")
    a_job(services, gpu_memory_mb=8000)
    a_job(services, gpu_memory_mb=8000)
    assert len(asked(services, one)) == 1
    assert len(asked(services, two)) == 1
    assert sum(lease.memory_mb for lease in live(services)) == 16_000


def test_a_job_for_which_there_is_no_room_waits_and_a_smaller_one_goes(services: Services) -> None:
    worker = a_gpu_worker(services)
    a_lease(services, 20_000)
    a_job(services, job_id=JobId("whole"))
    a_job(services, job_id=JobId("large"), gpu_memory_mb=8000)
    a_job(services, job_id=JobId("small"), gpu_memory_mb=2000)
    assert [claim.key.job_id for claim in asked(services, worker)] == ["small"]


def test_a_job_that_needs_gpu_memory_waits_for_a_worker_that_has_a_gpu(services: Services) -> None:
    bare = a_worker(services, "bare")
    beat(services, bare, report=GpuReport(ready=True, seen=False))
    a_job(services, job_id=JobId("gpu"), gpu_memory_mb=2000)
    a_job(services, job_id=JobId("cpu-will-do"), gpu_memory_mb=2000, allow_cpu=True)
    a_job(services, job_id=JobId("any"))
    given = [asked(services, bare), asked(services, bare, types=("demo",))]
    for claim in (claim for claims in given for claim in claims):
        complete_job(services, claim.key)
    given += [asked(services, bare), asked(services, bare)]
    assert [claim.key.job_id for claims in given for claim in claims] == ["cpu-will-do", "any"]
    assert [claim.key.job_id for claim in asked(services, a_gpu_worker(services))] == ["gpu"]


def test_a_batch_without_a_gpu_leaves_out_what_needs_one(services: Services) -> None:
    bare = a_worker(services, "bare")
    beat(services, bare, report=GpuReport(ready=True, seen=False))
    a_job(services, job_id=JobId("one"))
    a_job(services, job_id=JobId("gpu"), gpu_memory_mb=2000)
    a_job(services, job_id=JobId("two"))
    claims = asked(services, bare, types=("demo",), most={"demo": 3})
    assert sorted(claim.key.job_id for claim in claims) == ["one", "two"]


def test_a_worker_whose_gpu_somebody_holds_gets_nothing_until_it_is_given_back(
    services: Services,
) -> None:
    worker = a_gpu_worker(services)
    lease = a_lease(services, 8000, exclusive=True)
    a_job(services)
    assert asked(services, worker) == []
    release_lease(services, lease.token, who="ann")
    told(services, worker)
    assert len(asked(services, worker)) == 1


def test_a_worker_without_a_gpu_needs_no_lease(services: Services) -> None:
    a_job(services)
    assert len(asked(services, a_worker(services))) == 1
    assert live(services) == ()


@pytest.mark.parametrize("mode", [LeaseMode.OFF, LeaseMode.SHADOW])
def test_only_mode_on_holds_jobs_back(services: Services, mode: LeaseMode) -> None:
    worker = a_gpu_worker(services)
    a_lease(services, 8000, exclusive=True)
    relaxed = Services(services.database, services.policy, services.new_job_id, LeasePolicy(mode=mode))
    a_job(relaxed)
    assert len(asked(relaxed, worker)) == 1


def test_l5_a_claim_whose_lease_cannot_be_written_is_no_claim(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = a_gpu_worker(services)
    job = a_job(services)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the process dies here")

    monkeypatch.setattr(leases_sql, "occupy", broken)
    with pytest.raises(RuntimeError):
        asked(services, worker)
    query = "SELECT status FROM orchestrator_jobs WHERE job_id = :job"
    assert scalar(services.database, query, job=job) == "pending"
    assert scalar(services.database, "SELECT COUNT(*) FROM orchestrator_leases") == 0


def test_a_batch_has_one_lease(services: Services) -> None:
    worker = a_gpu_worker(services)
    for _ in range(4):
        a_job(services)
    claims = asked(services, worker, types=("demo",), most={"demo": 4})
    assert (len(claims), len(live(services))) == (4, 1)
    for claim in claims[:3]:
        complete_job(services, claim.key)
    assert len(live(services)) == 1
    complete_job(services, claims[3].key)
    assert live(services) == ()
