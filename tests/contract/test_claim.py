"""Giving jobs to workers: the right job to the right worker, and one at a time."""

from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.db.statements import MOST_LISTED
from herdsman.errors import InvalidRequest
from herdsman.fleet.commands import move_worker, register_worker
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.commands import find_attempts, find_job
from herdsman.jobs.model import ClaimKey
from herdsman.jobs.worker_commands import complete_job
from herdsman.states import JobStatus, Reason, WorkerStatus
from tests.support.builders import a_claim, a_job, a_worker, claimed, replayed
from tests.support.databases import NOON, MovingClock
from tests.support.worker_calls import claim_job, claim_jobs


def test_a_claim_says_what_to_do_and_until_when(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    a_job(services, job_id=JobId("j"), type="render", payload={"n": 1}, timeout=timedelta(minutes=2))
    claim = claimed(services, a_worker(services))
    assert claim.key == ClaimKey(JobId("j"), 1)
    assert (claim.worker_id, claim.type, claim.payload, claim.attempt) == ("w1", "render", {"n": 1}, 1)
    assert (claim.timeout, claim.expires_at) == (timedelta(minutes=2), NOON + services.policy.claim_ttl)
    assert claim.service_job_id is None


def test_jobs_go_to_the_oldest_of_those_that_wait_so_that_the_others_can_go(services: Services) -> None:
    """Ids begin with the time. Where jobs went round, no worker too many would ever be idle for long."""
    young, old, middle = (a_worker(services, name) for name in ("gpu-3", "gpu-1", "gpu-2"))
    for _ in range(3):
        a_job(services)
        (claim,) = claim_jobs(services, [young, old, middle])
        assert claim.worker_id == old
        complete_job(services, claim.key)


def test_a_claimed_job_names_its_worker_and_counts_the_attempt(services: Services, clock: MovingClock) -> None:
    """J5: counted when claiming"""
    clock.stop(at=NOON)
    claim = a_claim(services, timeout=timedelta(minutes=2))
    job = find_job(services, claim.key.job_id)
    assert (job.status, job.reason) == (JobStatus.CLAIMED, Reason.CLAIMED)
    assert (job.worker_id, job.last_worker_id, job.owner_pool) == ("w1", "w1", "default")
    assert (job.attempts, job.claim_token, job.version) == (1, 1, 2)
    assert (job.claimed_at, job.claim_expires_at) == (NOON, NOON + services.policy.claim_ttl)
    assert job.deadline_at == NOON + timedelta(minutes=2)
    assert replayed(services, job.job_id) == JobStatus.CLAIMED


def test_a_worker_holds_one_job_at_a_time(services: Services) -> None:
    claim = a_claim(services)
    a_job(services)
    assert claim_job(services, claim.worker_id) is None
    complete_job(services, claim.key)
    assert claim_job(services, claim.worker_id) is not None


def test_a_worker_named_twice_in_one_request_gets_one_job(services: Services) -> None:
    worker = a_worker(services)
    a_job(services)
    a_job(services)
    assert len(claim_jobs(services, [worker, worker, worker])) == 1


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [WorkerStatus.ACTIVE, WorkerStatus.TERMINATING],
        [WorkerStatus.ERROR],
        [WorkerStatus.ERROR, WorkerStatus.TERMINATED],
    ],
    ids=["spawning", "terminating", "error", "terminated"],
)
def test_only_an_active_worker_is_given_jobs(services: Services, steps: list[WorkerStatus]) -> None:
    a_job(services)
    worker = WorkerId("w1")
    register_worker(services, worker)
    for state in steps:
        move_worker(services, worker, state, Reason.READY)
    assert claim_job(services, worker) is None


def test_an_unknown_worker_is_given_nothing(services: Services) -> None:
    a_job(services)
    assert claim_job(services, WorkerId("nobody")) is None


def test_a_worker_is_given_jobs_of_its_own_pool_only(services: Services) -> None:
    a_job(services, job_id=JobId("small"), pool="small")
    big = a_job(services, pool="big")
    worker = a_worker(services, pool="big")
    claim = claimed(services, worker)
    assert claim.key.job_id == big
    complete_job(services, claim.key)
    assert claim_job(services, worker) is None
    assert find_job(services, JobId("small")).status is JobStatus.PENDING


def test_many_workers_of_many_pools_are_served_at_once(services: Services) -> None:
    pools = {"w1": "a", "w2": "b", "w3": "a", "w4": "c"}
    workers = [a_worker(services, name, pool=pool) for name, pool in pools.items()]
    jobs = {a_job(services, pool=pool): pool for pool in ("a", "b", "b")}
    claims = claim_jobs(services, [*workers, WorkerId("nobody")])
    assert {claim.key.job_id for claim in claims} < jobs.keys()
    assert all(jobs[claim.key.job_id] == pools[claim.worker_id] for claim in claims)
    assert len(claims) == 2  # one of pool a; one of pool b, which has one worker for its two jobs


def test_a_claim_of_many_takes_the_next_in_line(services: Services) -> None:
    ids = [a_job(services) for _ in range(5)]
    workers = [a_worker(services, f"w{number}") for number in range(3)]
    claims = claim_jobs(services, workers)
    assert [claim.key.job_id for claim in claims] == ids[:3]
    assert all(len(find_attempts(services, claim.key.job_id)) == 1 for claim in claims)


def test_a_busy_worker_does_not_keep_the_others_from_their_jobs(services: Services) -> None:
    busy = a_claim(services).worker_id
    free = a_worker(services, "w2")
    job_id = a_job(services)
    assert [claim.key.job_id for claim in claim_jobs(services, [busy, free])] == [job_id]


def test_nobody_asking_gets_nothing_and_too_many_are_refused(services: Services) -> None:
    assert claim_jobs(services, []) == []
    with pytest.raises(InvalidRequest, match="1025 workers asked at once, the limit is 1024"):
        claim_jobs(services, [WorkerId(f"w{number}") for number in range(MOST_LISTED + 1)])


def test_the_largest_crowd_of_workers_can_ask_at_once(services: Services) -> None:
    a_job(services)
    workers = [a_worker(services), *(WorkerId(f"nobody{number}") for number in range(MOST_LISTED - 1))]
    assert len(claim_jobs(services, workers)) == 1


def test_a_draining_worker_keeps_the_job_at_hand_and_gets_no_other(services: Services) -> None:
    claim = a_claim(services)
    a_job(services)
    move_worker(services, claim.worker_id, WorkerStatus.TERMINATING, Reason.DRAINED)
    complete_job(services, claim.key)
    assert claim_job(services, claim.worker_id) is None


def test_any_kind_of_json_can_be_the_payload_of_a_claim(services: Services) -> None:
    worker = a_worker(services)
    payloads: tuple[object, ...] = (
        1,
        0.5,
        -7,
        "5",
        "true",
        "",
        True,
        None,
        [],
        {},
        [1, ["2"]],
        2**53 - 1,
        1e300,
    )
    for payload in payloads:
        a_job(services, payload=payload)
        claim = claimed(services, worker)
        complete_job(services, claim.key, payload)
        job = find_job(services, claim.key.job_id)
        assert claim.payload == job.payload == job.result == payload
        assert type(claim.payload) is type(job.payload) is type(payload)


def test_j1_a_job_of_a_type_that_nobody_knows_waits(services: Services) -> None:
    """A worker is given what it can run, and what it cannot run is not failed but goes on waiting."""
    odd = a_job(services, type="odd")
    known = a_job(services, type="demo")
    worker = a_worker(services)
    claim = claim_job(services, worker, ["demo", "render"])
    assert claim is not None
    assert claim.key.job_id == known
    complete_job(services, claim.key)
    assert claim_job(services, worker, ["demo", "render"]) is None
    assert find_job(services, odd).status is JobStatus.PENDING
    assert claim_job(services, worker) is not None
