"""Where a job is on an external service, and a result that was found there instead of being made again."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.errors import InvalidRequest, NotFound, StaleWrite
from herdsman.fleet import stats_sql
from herdsman.fleet.commands import move_worker
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.assign import claim_for
from herdsman.jobs.commands import (
    cancel_job,
    find_attempts,
    find_history,
    find_job,
    requeue_edited_job,
    requeue_job,
)
from herdsman.jobs.model import ClaimKey, Job
from herdsman.jobs.protocol import MOST_SAVED, ClaimRequest, Done, MarkStatus, ServiceMark
from herdsman.jobs.sweep import expire_claims, stage_due_jobs
from herdsman.jobs.worker_commands import (
    Finish,
    complete_job,
    fail_job,
    finish_jobs,
    mark_service,
    release_job,
    start_job,
)
from herdsman.ports import SystemClock
from herdsman.states import JobStatus, Reason, WorkerStatus
from herdsman.testing.direct_queue import DirectQueue
from tests.support.builders import BROKEN, HOPELESS, a_claim, a_job, a_worker, claimed, replayed
from tests.support.databases import NOON, MovingClock

pytestmark = pytest.mark.usefixtures("stopped_clock")
SECOND = timedelta(seconds=1)
NOWHERE = (None, None, None, None)


def a_mark(status: MarkStatus = MarkStatus.SUBMITTED, external_id: str = "p-1") -> ServiceMark:
    return ServiceMark(external_id=external_id, status=status)


def place(job: Job) -> tuple[object, ...]:
    return (job.service_job_id, job.service_status, job.service_submitted_at, job.last_service_check)


def test_a_mark_says_where_the_job_is_and_since_when(services: Services, clock: MovingClock) -> None:
    key = a_claim(services).key
    stands = mark_service(services, key, a_mark())
    assert place(find_job(services, key.job_id)) == ("p-1", "submitted", NOON, None)
    assert stands == {
        "service_job_id": "p-1",
        "service_status": "submitted",
        "service_submitted_at": NOON.isoformat(),
        "last_service_check": "",
    }
    clock.advance(SECOND)
    stands = mark_service(services, key, a_mark(MarkStatus.CHECKED))
    assert place(find_job(services, key.job_id)) == ("p-1", "checked", NOON, NOON + SECOND)
    assert stands["last_service_check"] == (NOON + SECOND).isoformat()
    clock.advance(SECOND)
    mark_service(services, key, a_mark(MarkStatus.ATTACHED))
    assert place(find_job(services, key.job_id)) == ("p-1", "attached", NOON, NOON + 2 * SECOND)


def test_a_new_submission_has_not_been_checked(services: Services, clock: MovingClock) -> None:
    key = a_claim(services).key
    mark_service(services, key, a_mark())
    mark_service(services, key, a_mark(MarkStatus.CHECKED))
    clock.advance(SECOND)
    mark_service(services, key, a_mark(external_id="p-2"))
    assert place(find_job(services, key.job_id)) == ("p-2", "submitted", NOON + SECOND, None)


def test_a_mark_is_no_step_of_the_job(services: Services) -> None:
    """A1: neither the version nor the audit moves, claimed or running."""
    key = a_claim(services).key
    for _ in range(2):
        before, steps = find_job(services, key.job_id), find_history(services, key.job_id)
        mark_service(services, key, a_mark())
        mark_service(services, key, a_mark())
        after = find_job(services, key.job_id)
        assert (after.version, after.status, after.updated_at) == (
            before.version,
            before.status,
            before.updated_at,
        )
        assert find_history(services, key.job_id) == steps
        if before.status is JobStatus.CLAIMED:
            start_job(services, key)


def test_j3_only_the_claim_that_holds_the_job_may_mark_it(services: Services) -> None:
    old = a_claim(services)
    release_job(services, old.key, "drained")
    with pytest.raises(StaleWrite, match="may not mark job"):
        mark_service(services, old.key, a_mark())
    new = claimed(services, a_worker(services, "w2"))
    with pytest.raises(StaleWrite, match="may not mark job"):
        mark_service(services, old.key, a_mark())
    with pytest.raises(StaleWrite, match="may not mark job"):
        mark_service(services, new.key, a_mark(), worker=old.worker_id)
    with pytest.raises(NotFound):
        mark_service(services, ClaimKey(JobId("none"), 1), a_mark())
    assert place(find_job(services, new.key.job_id)) == NOWHERE
    mark_service(services, new.key, a_mark(), worker=new.worker_id)
    assert find_job(services, new.key.job_id).service_job_id == "p-1"


@pytest.mark.parametrize("external_id", ["", "x" * 256, "a\0b", "a\nb", "a\n", "\udce4", "é"])
def test_an_id_that_cannot_be_kept_is_refused(services: Services, external_id: str) -> None:
    key = a_claim(services).key
    with pytest.raises(InvalidRequest, match="external_id"):
        mark_service(services, key, a_mark(external_id=external_id))
    assert place(find_job(services, key.job_id)) == NOWHERE


def test_an_id_of_every_printable_kind_comes_back_as_it_was(services: Services) -> None:
    key = a_claim(services).key
    odd = "".join(map(chr, range(32, 127))).ljust(255, " ")
    mark_service(services, key, a_mark(external_id=odd))
    assert find_job(services, key.job_id).service_job_id == odd


def fails(services: Services, key: ClaimKey, clock: MovingClock) -> None:
    assert fail_job(services, key, BROKEN) is JobStatus.FAILED
    clock.advance(timedelta(minutes=10))
    stage_due_jobs(services)


def gives_back(services: Services, key: ClaimKey, _clock: MovingClock) -> None:
    assert release_job(services, key, "drained") is JobStatus.PENDING


def falls_silent(services: Services, _key: ClaimKey, clock: MovingClock) -> None:
    clock.advance(timedelta(minutes=10))
    assert expire_claims(services) == 1


def is_lost(services: Services, _key: ClaimKey, clock: MovingClock) -> None:
    move_worker(services, WorkerId("w1"), WorkerStatus.ERROR, Reason.LOST)
    clock.advance(timedelta(minutes=10))
    expire_claims(services)


@pytest.mark.parametrize("ends", [fails, gives_back, falls_silent, is_lost])
def test_the_next_claim_is_told_where_the_job_was_left(
    services: Services, clock: MovingClock, ends: Callable[[Services, ClaimKey, MovingClock], None]
) -> None:
    """However the claim ended: the service may have gone on."""
    first = a_claim(services)
    assert first.service_job_id is None
    start_job(services, first.key)
    mark_service(services, first.key, a_mark())
    ends(services, first.key, clock)
    second = claimed(services, a_worker(services, "w2"))
    assert (second.key.job_id, second.service_job_id) == (first.key.job_id, "p-1")
    assert find_job(services, first.key.job_id).service_submitted_at == NOON
    with pytest.raises(StaleWrite):
        mark_service(services, first.key, a_mark(external_id="late"))


def test_what_a_worker_holds_is_given_again_with_its_place(services: Services) -> None:
    """A worker that starts anew under its own name asks the service as well."""
    queue = DirectQueue(services=services, worker_id=WorkerId("w1"), clock=SystemClock(), poll=SECOND)
    key = a_claim(services).key
    queue.mark_service(key, a_mark())
    (again,) = queue.claim(ClaimRequest(resume=True))
    assert (again.key, again.service_job_id) == (key, "p-1")


def test_a_job_that_is_done_still_says_where_it_was_made(services: Services) -> None:
    key = a_claim(services).key
    mark_service(services, key, a_mark())
    complete_job(services, key, "made")
    job = find_job(services, key.job_id)
    assert (job.service_job_id, job.reason, job.saved_gpu) == ("p-1", Reason.COMPLETED, None)


def requeue_edited(services: Services, job_id: JobId) -> None:
    requeue_edited_job(services, job_id, {"other": 1})


@pytest.mark.parametrize("requeue", [requeue_job, requeue_edited])
def test_a_person_s_requeue_begins_anew(services: Services, requeue: Callable[[Services, JobId], None]) -> None:
    key = a_claim(services).key
    mark_service(services, key, a_mark())
    fail_job(services, key, HOPELESS)
    assert find_job(services, key.job_id).service_job_id == "p-1", "for whoever looks why it failed"
    requeue(services, key.job_id)
    assert claimed(services, WorkerId("w1")).service_job_id is None
    assert place(find_job(services, key.job_id)) == NOWHERE


def test_a_recovered_result_says_so_and_what_it_saved(services: Services) -> None:
    key = a_claim(services).key
    mark_service(services, key, a_mark())
    assert complete_job(services, key, {"n": 1}, saved=timedelta(seconds=41.25)) is Finish.DONE
    job = find_job(services, key.job_id)
    assert (job.status, job.reason, job.result) == (JobStatus.DONE, Reason.RECOVERED, {"n": 1})
    assert (job.saved_gpu, job.service_job_id) == (timedelta(seconds=41.25), "p-1")
    assert find_history(services, key.job_id)[-1].reason == Reason.RECOVERED
    assert [attempt.reason for attempt in find_attempts(services, key.job_id)] == [Reason.RECOVERED]
    assert replayed(services, key.job_id) == JobStatus.DONE


def test_made_and_recovered_results_may_come_in_one_word(services: Services) -> None:
    """J3: and each only once."""
    worker = a_worker(services)
    for _ in range(4):
        a_job(services, type="embed")
    keys = [each.key for each in claim_for(services, {worker: ClaimRequest(types=("embed",), most={"embed": 4})})]
    endings = [
        Done(keys[0], 0),
        Done(keys[1], 1, timedelta(0)),
        Done(keys[2], 2, timedelta(seconds=-1)),
        Done(keys[3], 3),
    ]
    for _ in range(2):
        told = finish_jobs(services, worker, endings).told
        assert [each.status for each in told] == [JobStatus.DONE, JobStatus.DONE, None, JobStatus.DONE]
        assert "saved is -1 seconds" in (told[2].refused or "")
        assert not told[2].stale
    found = [find_job(services, key.job_id) for key in keys]
    assert [job.reason for job in found] == ["completed", "recovered", "claimed", "completed"]
    assert [job.result for job in found] == [0, 1, None, 3]
    assert [job.saved_gpu for job in found] == [None, timedelta(0), None, None]


def test_a_cancelled_job_is_not_recovered(services: Services) -> None:
    """J7."""
    key = a_claim(services).key
    cancel_job(services, key.job_id)
    assert complete_job(services, key, 1, saved=SECOND) is Finish.CANCELLED
    assert find_job(services, key.job_id).saved_gpu is None


def test_impossible_savings_are_refused(services: Services) -> None:
    key = a_claim(services).key
    for saved in (-SECOND, MOST_SAVED + SECOND):
        with pytest.raises(InvalidRequest, match="saved is"):
            complete_job(services, key, 1, saved=saved)
    assert complete_job(services, key, 1, saved=MOST_SAVED) is Finish.DONE


def test_what_was_saved_is_added_up_until_the_job_runs_again(services: Services) -> None:
    worker = a_worker(services)
    read = services.database.read
    assert read(stats_sql.recovered) == (0, 0.0)
    keys: list[ClaimKey] = []
    for saved in (timedelta(seconds=1.5), None, timedelta(seconds=40)):
        a_job(services)
        keys.append(claimed(services, worker).key)
        complete_job(services, keys[-1], None, saved=saved)
    assert read(stats_sql.recovered) == (2, 41.5)
    requeue_job(services, keys[0].job_id)
    assert find_job(services, keys[0].job_id).saved_gpu is None
    assert read(stats_sql.recovered) == (1, 40.0)
