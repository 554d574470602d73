"""Claims that are taken ahead: in queue order, given back without a trace, and charged to nobody who did not begin."""

from datetime import timedelta
from typing import Any

import pytest

from herdsman.context import Services
from herdsman.errors import InvalidRequest
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.assign import claim_for, held_claims
from herdsman.jobs.commands import find_attempts, find_job
from herdsman.jobs.model import Claim, ClaimKey, Failure, FailureClass, Job
from herdsman.jobs.protocol import MOST_AT_ONCE, ClaimRequest, Done, GivenBack, WorkerHeartbeat
from herdsman.jobs.sweep import expire_claims
from herdsman.jobs.worker_commands import finish_jobs, lose_claim, record_heartbeat
from herdsman.leases.commands import list_leases
from herdsman.states import JobStatus, Reason
from tests.support.builders import a_job, a_worker, replayed
from tests.support.databases import MovingClock
from tests.support.gpus import a_gpu_worker

pytestmark = pytest.mark.usefixtures("stopped_clock")
ME = WorkerId("w1")
SECOND = timedelta(seconds=1)


def some_jobs(services: Services, count: int, **wanted: Any) -> list[JobId]:
    """In this order, though they are submitted in one moment."""
    ranks = [max(0, 60 - number) for number in range(count)]
    return [a_job(services, job_id=JobId(f"j{number}"), priority=rank, **wanted) for number, rank in enumerate(ranks)]


def take(services: Services, ask: ClaimRequest) -> list[Claim]:
    return claim_for(services, {ME: ask})


def first(services: Services, *, begin: bool = True) -> Claim:
    return take(services, ClaimRequest(begin=begin, incarnation="i"))[0]


def more(services: Services, count: int = 9, **wanted: object) -> list[Claim]:
    asked = {"ahead": {"demo": count}, "held": 1, "slot": 1, "incarnation": "i", **wanted}
    return take(services, ClaimRequest(**asked))  # type: ignore[arg-type]


def names(claims: list[Claim]) -> list[str]:
    return [claim.key.job_id for claim in claims]


def jobs(services: Services, *ids: str) -> list[Job]:
    return [find_job(services, JobId(each)) for each in ids]


def test_jobs_are_taken_ahead_in_queue_order_and_are_not_begun(services: Services) -> None:
    a_worker(services, ME)
    some_jobs(services, 5)
    one, rest = first(services), more(services, 3)
    assert names([one, *rest]) == ["j0", "j1", "j2", "j3"]
    found = jobs(services, "j0", "j1", "j2", "j3", "j4")
    assert [job.status for job in found] == [JobStatus.RUNNING, *[JobStatus.CLAIMED] * 3, JobStatus.PENDING]
    assert [claim.place for claim in rest] == [job.place for job in found[1:4]]


def test_the_first_job_and_those_behind_it_may_come_together(services: Services) -> None:
    a_worker(services, ME)
    some_jobs(services, 3)
    claims = take(services, ClaimRequest(begin=True, ahead={"demo": 9}, incarnation="i"))
    assert [job.status for job in jobs(services, *names(claims))] == [JobStatus.RUNNING, *[JobStatus.CLAIMED] * 2]


def test_a_job_that_may_not_be_held_ends_the_row_whatever_comes_behind_it(services: Services) -> None:
    """Its place in the queue is kept: nobody overtakes it because it needs free hands."""
    a_worker(services, ME)
    some_jobs(services, 2)
    a_job(services, type="batched", job_id=JobId("other"), priority=2)
    a_job(services, job_id=JobId("late"))
    first(services)
    assert names(more(services)) == ["j1"]
    assert more(services, slot=2) == []


def test_only_what_is_more_urgent_is_given_where_enough_waits(services: Services) -> None:
    a_worker(services, ME)
    some_jobs(services, 3)
    first(services)
    (held,) = more(services, 1)
    assert more(services, 1, slot=2, urgent_before=held.place) == []
    a_job(services, job_id=JobId("urgent"), priority=70)
    assert names(more(services, 1, slot=2, urgent_before=held.place)) == ["urgent"]


def test_l1_17_a_claim_whose_answer_was_lost_stops_further_ones_and_is_handed_out_to_nobody(services: Services) -> None:
    """J11: who took it ahead may have begun it."""
    a_worker(services, ME)
    some_jobs(services, 6)
    first(services)
    (lost,) = more(services, 1)
    assert more(services, 2) == [], "the worker says that this slot is free, and a claim is in it"
    assert take(services, ClaimRequest(resume=True)) == []
    assert lost.key in held_claims(services, ME, "i")
    assert held_claims(services, ME, "another process") == []


def test_a_worker_never_holds_more_than_it_may(services: Services) -> None:
    a_worker(services, ME)
    some_jobs(services, MOST_AT_ONCE + 20)
    first(services)
    assert len(more(services, MOST_AT_ONCE)) == MOST_AT_ONCE - 1
    assert more(services, 5, slot=MOST_AT_ONCE) == []
    with pytest.raises(InvalidRequest):
        more(services, MOST_AT_ONCE + 1)


def test_j14_a_claim_that_was_not_begun_goes_back_to_its_place_and_counts_no_attempt(services: Services) -> None:
    a_worker(services, ME)
    some_jobs(services, 3)
    place = find_job(services, JobId("j1")).place
    first(services)
    ahead = more(services)
    finish_jobs(services, ME, [GivenBack(claim.key, "it drains", begun=False) for claim in ahead])
    for job in jobs(services, "j1", "j2"):
        assert (job.status, job.reason, job.attempts, job.interruptions) == (JobStatus.PENDING, Reason.NOT_BEGUN, 0, 0)
        assert replayed(services, job.job_id) == JobStatus.PENDING
    assert find_job(services, JobId("j1")).place == place
    assert more(services, slot=5) == [], "it waits for free hands now, so that it does not go back and forth"
    finish_jobs(services, ME, [Done(ClaimKey(JobId("j0"), 1), None)])
    again = first(services)
    assert (again.key, again.attempt) == (ClaimKey(JobId("j1"), 2), 1), "no token twice"


def test_j14_a_claim_that_had_begun_is_an_interruption_whatever_the_worker_says(services: Services) -> None:
    a_worker(services, ME)
    some_jobs(services, 1)
    claim = first(services)
    finish_jobs(services, ME, [GivenBack(claim.key, "it drains", begun=False)])
    job = find_job(services, claim.key.job_id)
    assert (job.reason, job.attempts, job.interruptions) == (Reason.RELEASED, 1, 1)


def test_a_heartbeat_says_which_have_begun_and_an_end_how_long_it_ran(services: Services, clock: MovingClock) -> None:
    a_worker(services, ME)
    some_jobs(services, 3)
    one, (two, three) = first(services), more(services)
    clock.advance(10 * SECOND)
    record_heartbeat(services, ME, WorkerHeartbeat(keys=(one.key, two.key, three.key), begun=(two.key,)))
    assert [job.status for job in jobs(services, "j1", "j2")] == [JobStatus.RUNNING, JobStatus.CLAIMED]
    told = finish_jobs(services, ME, [Done(each.key, None, ran=3 * SECOND) for each in (two, three)]).told
    assert [each.status for each in told] == [JobStatus.DONE] * 2
    for job_id, ran in (("j1", 0 * SECOND), ("j2", 3 * SECOND)):
        job, (attempt,) = find_job(services, JobId(job_id)), find_attempts(services, JobId(job_id))
        assert job.finished_at is not None
        assert job.started_at == job.finished_at - ran == attempt.started_at


def test_a_job_began_no_earlier_than_it_was_claimed(services: Services) -> None:
    a_worker(services, ME)
    some_jobs(services, 2)
    first(services)
    (ahead,) = more(services)
    finish_jobs(services, ME, [Done(ahead.key, None, ran=timedelta(hours=1))])
    job = find_job(services, JobId("j1"))
    assert job.started_at == job.claimed_at


@pytest.mark.parametrize("how", ["sweep", "leader"])
@pytest.mark.parametrize("begun", [True, False])
def test_j5_of_a_lost_worker_only_the_job_that_may_have_begun_is_charged(
    services: Services, clock: MovingClock, how: str, begun: bool
) -> None:
    a_worker(services, ME)
    some_jobs(services, 5)
    one = first(services)
    clock.advance(SECOND)
    ahead = more(services, 3)
    if not begun:  # the first has ended, and the next may be at work
        finish_jobs(services, ME, [Done(one.key, None)])
    clock.advance(services.policy.claim_ttl)
    if how == "sweep":
        assert expire_claims(services) == (1 if begun else 0)
        clock.advance(SECOND)
        expire_claims(services)
    else:
        failure = Failure(kind=FailureClass.WORKER_LOST, error="gone")
        for claim in reversed([one, *ahead] if begun else ahead):
            services.database.transact(lambda tx, key=claim.key: lose_claim(tx, services, key, failure, "leader"))
    found = jobs(services, "j0", "j1", "j2", "j3")
    charged = [job.job_id for job in found if job.worker_losses]
    assert charged == (["j0"] if begun else ["j1"])
    for job in found[1:] if begun else found[2:]:
        assert (job.status, job.reason, job.attempts) == (JobStatus.PENDING, Reason.NOT_BEGUN, 0)
        assert replayed(services, job.job_id) == JobStatus.PENDING


def test_a_claim_that_its_worker_never_heard_of_runs_out_alone(services: Services, clock: MovingClock) -> None:
    a_worker(services, ME)
    some_jobs(services, 2)
    one, (lost,) = first(services), more(services)
    clock.advance(services.policy.claim_ttl / 2)
    record_heartbeat(services, ME, WorkerHeartbeat(keys=(one.key,)))
    clock.advance(services.policy.claim_ttl / 2 + SECOND)
    assert expire_claims(services) == 1
    assert find_job(services, one.key.job_id).status is JobStatus.RUNNING
    job = find_job(services, lost.key.job_id)
    assert (job.status, job.attempts, job.worker_losses) == (JobStatus.PENDING, 0, 0)


def test_l4_the_lease_of_a_worker_that_goes_on_stays(services: Services) -> None:
    """It is the same lease from the first job to the last."""
    a_gpu_worker(services, ME)
    some_jobs(services, 3)

    def live() -> list[str]:
        return [each.token for each in list_leases(services, agent=None, ended=False, after=None, limit=50).leases]

    held, slot, tokens = first(services), 1, list[str]()
    while True:
        tokens += live()
        ask = ClaimRequest(ahead={"demo": 1}, held=1, slot=slot, incarnation="i")
        claims = finish_jobs(services, ME, [Done(held.key, None)], ask).claims
        slot += 1
        if not claims:
            break
        (held,) = claims
    assert len(tokens) == 3
    assert len(set(tokens)) == 1
    assert live() == []


def test_a_job_that_needs_another_amount_of_the_gpu_waits_for_free_hands(services: Services) -> None:
    a_gpu_worker(services, ME)
    some_jobs(services, 2)
    a_job(services, job_id=JobId("part"), gpu_memory_mb=100)
    first(services)
    assert names(more(services)) == ["j1"]
