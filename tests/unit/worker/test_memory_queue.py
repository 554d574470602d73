"""The queue in memory keeps the promises of the real one."""

from datetime import timedelta

import pytest

from herdsman.errors import StaleWrite
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.model import Claim, Failure, FailureClass, NewJob
from herdsman.jobs.protocol import (
    ClaimRequest,
    Done,
    Failed,
    GivenBack,
    Load,
    LogLines,
    MarkStatus,
    Progress,
    ServiceMark,
    WorkerHeartbeat,
)
from herdsman.states import JobState, Reason
from herdsman.testing.clocks import ManualClock
from herdsman.testing.memory_jobs import MemoryJobs
from herdsman.testing.queue import MemoryQueue
from tests.threads import at_once

ANY = ClaimRequest(begin=True)
BROKEN = Failure(kind=FailureClass.JOB_ERROR, error="the handler raised")


class Place:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.jobs = MemoryJobs(self.clock)
        self.ann = MemoryQueue(self.jobs, WorkerId("ann"))
        self.bob = MemoryQueue(self.jobs, WorkerId("bob"))

    def claimed(self, **wanted: object) -> Claim:
        self.jobs.submit(NewJob(type="demo", **wanted))  # type: ignore[arg-type]
        return self.ann.claim(ANY)[0]

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))


def test_a_job_has_one_owner_and_one_end() -> None:
    """J3"""
    place = Place()
    claim = place.claimed()
    assert place.bob.claim(ANY) == []
    assert place.bob.finish([Done(claim.key, 1)]).told[0].stale
    assert place.ann.finish([Done(claim.key, 2)]).told[0].state is JobState.DONE
    assert place.ann.finish([Done(claim.key, 2)]).told[0].state is JobState.DONE, (
        "a lost answer is no offence"
    )
    assert place.jobs.job(claim.key.job_id).result == 2


def test_a_claim_that_ran_out_is_another_s() -> None:
    """J4"""
    place = Place()
    old = place.claimed()
    place.pass_time(31)
    new = place.bob.claim(ANY)[0]
    assert new.key.token == old.key.token + 1
    assert old.key in place.ann.beat(WorkerHeartbeat(keys=(old.key,))).lost
    assert place.ann.finish([Done(old.key, 1)]).told[0].stale
    with pytest.raises(StaleWrite):
        place.ann.put_checkpoint(old.key, 1)


def test_a_beat_keeps_a_claim_and_brings_cancel_and_drain() -> None:
    place = Place()
    key = place.claimed().key
    for _ in range(3):
        place.pass_time(20)
        orders = place.ann.beat(WorkerHeartbeat(keys=(key,), progress={key: Progress(done=0.5)}))
        assert not orders.lost
    place.jobs.cancel(key.job_id)
    place.ann.drain()
    orders = place.ann.beat(WorkerHeartbeat(keys=(key,)))
    assert (orders.cancel, orders.drain) == ({key}, True)
    assert place.ann.finish([Done(key, 1)]).told[0].state is JobState.CANCELLED, "J7"
    assert place.ann.claim(ANY) == []


def test_a_failed_job_waits_for_its_retry_and_one_given_back_does_not() -> None:
    place = Place()
    key = place.claimed(max_attempts=2).key
    assert place.ann.finish([Failed(key, BROKEN)]).told[0].state is JobState.FAILED
    assert place.ann.claim(ANY) == []
    place.pass_time(60)
    again = place.ann.claim(ANY)[0]
    assert place.ann.finish([GivenBack(again.key, "drained")]).told[0].state is JobState.PENDING
    last = place.ann.claim(ANY)[0]
    assert place.ann.finish([Failed(last.key, BROKEN)]).told[0].state is JobState.DEAD_LETTER


def test_a_batch_is_of_one_type_and_no_larger_than_asked() -> None:
    place = Place()
    for number in range(5):
        place.jobs.submit(NewJob(type="many", job_id=JobId(f"m{number}")))
    place.jobs.submit(NewJob(type="demo", priority=-1))
    claims = place.ann.claim(ClaimRequest(types=("demo", "many"), most={"many": 3}))
    assert [claim.key.job_id for claim in claims] == ["m0", "m1", "m2"]
    assert place.jobs.job(claims[0].key.job_id).state is JobState.CLAIMED
    assert place.ann.start([claim.key for claim in claims]) == {}
    assert place.jobs.job(claims[0].key.job_id).state is JobState.RUNNING


def test_what_a_worker_holds_is_given_again_only_when_it_asks_so() -> None:
    """L1-17"""
    place = Place()
    place.jobs.submit(NewJob(type="demo"))
    (claim,) = place.ann.claim(ClaimRequest())
    place.jobs.submit(NewJob(type="demo"))
    assert place.ann.claim(ANY) == []
    assert [each.key for each in place.ann.claim(ClaimRequest(resume=True))] == [claim.key]
    place.ann.start([claim.key])
    assert place.ann.claim(ClaimRequest(resume=True)) == [], "one token, one execution (J11)"
    assert place.ann.held() == [claim.key]


def test_a_piece_of_log_may_come_twice() -> None:
    place = Place()
    key = place.claimed().key
    for piece in (LogLines(first=0, lines=("a", "b")), LogLines(first=0, lines=("a", "b", "c"))):
        place.ann.beat(WorkerHeartbeat(keys=(key,), logs={key: piece}))
    assert place.jobs.job(key.job_id).logs[key.token] == ["a", "b", "c"]


def test_many_at_once_get_each_job_once() -> None:
    place = Place()
    for _ in range(200):
        place.jobs.submit(NewJob(type="demo"))

    def work(number: int) -> int:
        queue = MemoryQueue(place.jobs, WorkerId(f"w{number}"))
        count, claims = 0, queue.claim(ANY)
        while claims:
            count += 1
            claims = queue.finish([Done(claims[0].key, number)], ANY).claims
        return count

    assert sum(at_once(8, work)) == 200
    assert {job.token for job in place.jobs.all()} == {1}


def test_a_worker_is_told_what_to_load_until_it_serves_it() -> None:
    place = Place()
    place.ann.load = Load(revision=2, model="b")
    assert place.ann.beat(WorkerHeartbeat(models=("a",), revision=1)).load == place.ann.load
    assert place.ann.beat(WorkerHeartbeat(trouble="no room")).load == place.ann.load
    assert (place.ann.models, place.ann.revision, place.ann.trouble) == (("a",), 1, "no room")
    assert place.ann.beat(WorkerHeartbeat(models=("b",), revision=2)).load is None
    assert (place.ann.models, place.ann.revision, place.ann.trouble) == (("b",), 2, None)
    assert place.bob.beat(WorkerHeartbeat()).load is None, "each worker has its own orders"


def test_a_claim_names_the_model_of_its_job_and_an_ask_what_is_loaded() -> None:
    place = Place()
    place.jobs.submit(NewJob(type="demo", model="org/a"))
    assert [each.model for each in place.ann.claim(ClaimRequest(begin=True, models=("org/a",)))] == ["org/a"]
    assert place.ann.models == ("org/a",)


def test_s3_04_where_a_job_is_on_a_service_is_told_to_its_next_claim() -> None:
    place = Place()
    first = place.claimed()
    mark = ServiceMark(external_id="p-1", status=MarkStatus.SUBMITTED)
    place.ann.mark_service(first.key, mark)
    place.ann.finish([GivenBack(first.key, "drained")])
    second = place.bob.claim(ANY)[0]
    assert (first.service_job_id, second.service_job_id) == (None, "p-1")
    with pytest.raises(StaleWrite):
        place.ann.mark_service(first.key, mark)
    told = place.bob.finish([Done(second.key, "found", timedelta(seconds=9))]).told[0]
    job = place.jobs.job(second.key.job_id)
    assert (told.state, job.reason, job.saved) == (JobState.DONE, Reason.RECOVERED, timedelta(seconds=9))
    assert (job.service_job_id, job.marks) == ("p-1", [mark])
