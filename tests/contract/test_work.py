"""A worker's side of the queue in bulk: batches, endings with the next jobs, and what must not be possible."""

from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.db.errors import Duplicate
from herdsman.errors import InvalidRequest, NotFound, StaleWrite
from herdsman.fleet.commands import move_worker
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.assign import claim_for, held_claims
from herdsman.jobs.commands import cancel_job, find_attempts, find_job
from herdsman.jobs.model import ClaimKey
from herdsman.jobs.protocol import (
    MOST_AT_ONCE,
    ClaimRequest,
    Done,
    Failed,
    GivenBack,
    Progress,
    WorkerHeartbeat,
)
from herdsman.jobs.worker_commands import complete_job, finish_jobs, record_heartbeat, start_jobs
from herdsman.ports import SystemClock
from herdsman.states import JobStatus, Reason, WorkerStatus
from herdsman.testing.direct_queue import DirectQueue
from tests.support.builders import BROKEN, a_claim, a_job, a_worker, claimed, sql
from tests.support.worker_calls import claim_job

BATCHES = ClaimRequest(types=("demo", "embed"), most={"embed": 4})


def a_batch(services: Services, count: int = 4, worker: str = "w1", ask: ClaimRequest = BATCHES) -> list[ClaimKey]:
    for _ in range(count):
        a_job(services, type="embed")
    return [claim.key for claim in claim_for(services, {a_worker(services, worker): ask})]


def states(services: Services, keys: list[ClaimKey]) -> list[JobStatus]:
    return [find_job(services, key.job_id).status for key in keys]


def test_a_batch_is_of_one_type_and_no_larger_than_asked(services: Services) -> None:
    others = [a_job(services, type="demo", priority=-1) for _ in range(2)]
    keys = a_batch(services, 6)
    assert len(keys) == 4
    assert states(services, keys) == [JobStatus.CLAIMED] * 4
    assert all(find_job(services, other).status is JobStatus.PENDING for other in others)


def test_a_type_without_a_batch_comes_alone(services: Services) -> None:
    for _ in range(3):
        a_job(services)
    assert len(claim_for(services, {a_worker(services): BATCHES})) == 1


def test_a_worker_with_a_batch_gets_nothing_more(services: Services) -> None:
    """What it holds it must end first."""
    a_batch(services, 6)
    assert claim_for(services, {WorkerId("w1"): BATCHES}) == []


def test_a_slot_holds_one_job_whatever_is_written(services: Services) -> None:
    keys = a_batch(services, 2)
    with pytest.raises(Duplicate):
        sql(services.database, "UPDATE job_states SET slot = 0 WHERE job_id = :job", job=keys[1].job_id)


def test_two_workers_with_different_wishes_are_served_together(services: Services) -> None:
    a_job(services, type="demo")
    for _ in range(3):
        a_job(services, type="embed")
    one, two = a_worker(services, "w1"), a_worker(services, "w2")
    found = claim_for(
        services, {one: ClaimRequest(types=("demo",)), two: ClaimRequest(types=("embed",), most={"embed": 2})}
    )
    assert sorted((claim.worker_id, claim.type) for claim in found) == [
        ("w1", "demo"),
        ("w2", "embed"),
        ("w2", "embed"),
    ]


def test_a_claim_may_begin_its_jobs(services: Services) -> None:
    a_job(services, timeout=timedelta(minutes=1))
    (claim,) = claim_for(services, {a_worker(services): ClaimRequest(begin=True)})
    job = find_job(services, claim.key.job_id)
    assert job.status is JobStatus.RUNNING
    assert job.deadline_at is not None
    assert find_attempts(services, claim.key.job_id)[0].started_at is not None
    assert start_jobs(services, [claim.key], worker=claim.worker_id) == {}


def test_a_lost_answer_is_given_again_and_only_to_who_asks_for_it(services: Services) -> None:
    """The claim is the same one, so that it costs neither an attempt nor the wait for its expiry."""
    keys = a_batch(services)
    worker = WorkerId("w1")
    assert claim_for(services, {worker: BATCHES}) == []
    again = claim_for(services, {worker: ClaimRequest(types=BATCHES.types, most=BATCHES.most, resume=True)})
    assert [claim.key for claim in again] == keys
    assert [claim.attempt for claim in again] == [1] * 4


def test_a_claim_that_has_begun_is_never_given_again_under_its_token(services: Services) -> None:
    """J11: its worker may have begun it, whatever it says; what it never heard of it finds and gives back."""
    job_id = a_job(services)
    worker = a_worker(services)
    (lost,) = claim_for(services, {worker: ClaimRequest(begin=True)})
    asked = ClaimRequest(begin=True, resume=True)
    assert claim_for(services, {worker: asked}) == []
    assert finish_jobs(services, worker, [], asked).claims == []
    assert held_claims(services, worker) == [lost.key]
    assert held_claims(services, WorkerId("other")) == []
    finish_jobs(services, worker, [GivenBack(lost.key, "the answer that brought it was lost")])
    (again,) = claim_for(services, {worker: asked})
    assert (again.key.job_id, again.key.token) == (job_id, lost.key.token + 1)
    job = find_job(services, job_id)
    assert job.attempts - job.interruptions == 1, "it costs no attempt"


def test_what_another_process_of_the_same_name_has_begun_is_left_alone(services: Services) -> None:
    """J11: the second one neither takes it for an answer that it missed, nor begins it again."""
    worker = a_worker(services)
    first, second = (
        DirectQueue(services=services, worker_id=worker, clock=SystemClock(), poll=timedelta(0)) for _ in range(2)
    )
    a_job(services)
    (claim,) = first.claim(ClaimRequest(begin=True))
    assert (first.held(), second.held()) == ([claim.key], [])
    assert (first.start([claim.key]), list(second.start([claim.key]))) == ({}, [claim.key])
    (done,) = first.finish([Done(claim.key, 1)]).told
    assert done.status is JobStatus.DONE
    a_job(services)
    (waiting,) = first.claim(ClaimRequest())
    assert second.held() == [waiting.key], "nobody has begun it"
    assert second.start([waiting.key]) == {}
    assert (list(first.start([waiting.key])), first.held()) == ([waiting.key], [])


def test_a_cancelled_job_is_not_given_again(services: Services) -> None:
    claim = a_claim(services)
    cancel_job(services, claim.key.job_id)
    assert claim_for(services, {claim.worker_id: ClaimRequest(resume=True)}) == []


def test_endings_bring_the_next_jobs(services: Services) -> None:
    keys = a_batch(services, 8)
    worker = WorkerId("w1")
    endings = [Done(keys[0], 1), Failed(keys[1], BROKEN), GivenBack(keys[2], "drained"), Done(keys[3], None)]
    exchange = finish_jobs(services, worker, endings, BATCHES)
    assert [told.status for told in exchange.told] == [
        JobStatus.DONE,
        JobStatus.FAILED,
        JobStatus.PENDING,
        JobStatus.DONE,
    ]
    assert len(exchange.claims) == 4
    assert find_job(services, keys[0].job_id).result == 1


def test_a_refused_ending_does_not_hold_up_the_others(services: Services) -> None:
    keys = a_batch(services)
    worker = WorkerId("w1")
    finish_jobs(services, worker, [GivenBack(keys[0], "")])
    unfit = Done(keys[1], float("nan"))
    told = finish_jobs(services, worker, [Done(keys[0], 1), unfit, Done(keys[2], 3)]).told
    assert [(each.status, each.stale) for each in told] == [
        (None, True),
        (None, False),
        (JobStatus.DONE, False),
    ]
    assert find_job(services, keys[1].job_id).status is JobStatus.CLAIMED


def test_endings_may_be_repeated(services: Services) -> None:
    keys = a_batch(services, 2)
    worker = WorkerId("w1")
    for _ in range(2):
        told = finish_jobs(services, worker, [Done(key, {"n": 1}) for key in keys]).told
        assert [each.status for each in told] == [JobStatus.DONE, JobStatus.DONE]


def test_a_cancelled_job_of_a_batch_is_never_done(services: Services) -> None:
    keys = a_batch(services, 2)
    worker = WorkerId("w1")
    cancel_job(services, keys[0].job_id)
    assert record_heartbeat(services, worker, WorkerHeartbeat(keys=tuple(keys))).cancel == {keys[0]}
    told = finish_jobs(services, worker, [Done(key, 1) for key in keys]).told
    assert [each.status for each in told] == [JobStatus.CANCELLED, JobStatus.DONE]


def test_a_beat_names_the_claims_that_are_lost_and_keeps_the_rest(services: Services) -> None:
    keys = a_batch(services, 3)
    worker = WorkerId("w1")
    finish_jobs(services, worker, [GivenBack(keys[1], "")])
    reply = record_heartbeat(
        services,
        worker,
        WorkerHeartbeat(keys=tuple(keys), progress={key: Progress(done=0.5, note="half") for key in keys}),
    )
    assert list(reply.lost) == [keys[1]]
    assert [find_job(services, key.job_id).progress for key in keys] == [0.5, None, 0.5]


def test_a_token_is_no_right_for_another_worker(services: Services) -> None:
    """X7: tokens are small numbers; the claim must be the speaker's own."""
    claim = a_claim(services)
    thief = a_worker(services, "thief")
    key = claim.key
    told = finish_jobs(services, thief, [Done(key, "stolen")]).told
    assert told[0].stale
    assert finish_jobs(services, thief, [GivenBack(key, "")]).told[0].stale
    assert list(start_jobs(services, [key], worker=thief)) == [key]
    assert list(record_heartbeat(services, thief, WorkerHeartbeat(keys=(key,))).lost) == [key]
    with pytest.raises(StaleWrite):
        complete_job(services, key, "stolen", worker=thief)
    assert find_job(services, key.job_id).status is JobStatus.CLAIMED
    assert finish_jobs(services, claim.worker_id, [Done(key, "mine")]).told[0].status is JobStatus.DONE
    assert finish_jobs(services, thief, [Done(key, "stolen")]).told[0].stale


def test_an_unknown_worker_beats_in_vain(services: Services) -> None:
    with pytest.raises(NotFound):
        record_heartbeat(services, WorkerId("nobody"), WorkerHeartbeat())


def test_what_cannot_be_right_is_refused(services: Services) -> None:
    worker = a_worker(services)
    many = tuple(ClaimKey(JobId(f"j{n}"), 1) for n in range(MOST_AT_ONCE + 1))
    for wrong in (
        lambda: claim_for(services, {worker: ClaimRequest(most={"embed": MOST_AT_ONCE + 1})}),
        lambda: claim_for(services, {worker: ClaimRequest(types=("a b",))}),
        lambda: record_heartbeat(services, worker, WorkerHeartbeat(keys=many)),
        lambda: finish_jobs(services, worker, [Done(key, 1) for key in many]),
        lambda: record_heartbeat(
            services, worker, WorkerHeartbeat(keys=many[:1], progress={many[0]: Progress(done=float("nan"))})
        ),
    ):
        with pytest.raises(InvalidRequest):
            wrong()


def test_one_at_a_time_still_means_one(services: Services) -> None:
    a_job(services)
    a_job(services)
    worker = a_worker(services)
    claimed(services, worker)
    assert claim_job(services, worker) is None


def test_a_batch_may_be_filled_up_by_who_says_what_it_holds(services: Services) -> None:
    first = a_batch(services, 2)
    worker = WorkerId("w1")
    for _ in range(3):
        a_job(services, type="embed")
    a_job(services, type="demo")
    more = claim_for(services, {worker: ClaimRequest(types=("embed",), most={"embed": 2}, beside=2, begin=True)})
    assert states(services, [claim.key for claim in more]) == [JobStatus.RUNNING] * 2
    told = finish_jobs(services, worker, [Done(key, 1) for key in (*first, *(claim.key for claim in more))])
    assert [each.status for each in told.told] == [JobStatus.DONE] * 4


@pytest.mark.parametrize("beside", [1, 3])
def test_who_is_wrong_about_what_it_holds_gets_nothing_twice(services: Services, beside: int) -> None:
    """A slot that is taken is refused by the database; one too far leaves a hole and nothing worse."""
    keys = a_batch(services, 2)
    for _ in range(2):
        a_job(services, type="embed")
    more = claim_for(services, {WorkerId("w1"): ClaimRequest(types=("embed",), most={"embed": 1}, beside=beside)})
    assert len(more) == (0 if beside == 1 else 1)
    assert not {claim.key for claim in more}.intersection(keys)


def test_a_worker_that_drains_fills_nothing_up(services: Services) -> None:
    a_batch(services, 2)
    a_job(services, type="embed")
    move_worker(services, WorkerId("w1"), WorkerStatus.TERMINATING, Reason.DRAINED)
    assert claim_for(services, {WorkerId("w1"): ClaimRequest(types=("embed",), most={"embed": 2}, beside=2)}) == []
