"""A life of a task in SQL, on the servers that have functions."""

from datetime import datetime, timedelta

import pytest

from herdsman.context import Services
from herdsman.fleet import workers_sql
from herdsman.fleet.commands import move_worker, register_worker
from herdsman.ids import JobId, PoolId, WorkerId
from herdsman.jobs.commands import cancel_job, find_attempts, find_job, requeue_job, submit_jobs
from herdsman.jobs.model import ClaimKey, NewJob
from herdsman.jobs.sweep import stage_due_jobs
from herdsman.jobs.worker_commands import complete_job, start_job
from herdsman.states import JobStatus, Reason, WorkerStatus
from tests.contract.tasks_sql import Face, in_transactions, typed
from tests.support.builders import a_job, a_worker, claimed, replayed, scalar
from tests.support.databases import Backend, MovingClock, ServerDatabases
from tests.support.threads import at_once
from tests.support.worker_calls import beat, claim_job

CLAIMERS, TASKS = 50, 500
LATER = timedelta(hours=1)
HEALTH = ("vram_total_mb", "vram_used_mb", "vram_age_s", "heartbeat_age_s")
TWO_NAMES = ["func_claim_available_task", "claim_task"]


@pytest.fixture
def backend(server: ServerDatabases) -> Backend:
    return server


@pytest.fixture
def face(services: Services) -> Face:
    return in_transactions(services.database)


def drain(services: Services, worker: WorkerId) -> None:
    move_worker(services, worker, WorkerStatus.TERMINATING, Reason.DRAINED)


@pytest.mark.parametrize("name", TWO_NAMES)
def test_a_claim_is_a_row_of_the_face_with_its_token(services: Services, face: Face, name: str) -> None:
    worker = a_worker(services)
    job_id = a_job(services, payload={"n": 1}, timeout=timedelta(minutes=5))
    row = face.claim(worker, name)
    assert row is not None
    token = row.pop("claim_token")
    assert row == face.task(job_id)
    assert (row["id"], row["task_type"], row["status"]) == (job_id, "demo", "In Progress")
    assert (row["worker_id"], row["attempts"], token) == (worker, 1, 1)
    assert row["generation_started_at"] is not None
    job = find_job(services, job_id)
    assert (job.status, job.reason, job.worker_id) == (JobStatus.CLAIMED, Reason.CLAIMED, worker)
    assert job.claimed_at is not None
    assert job.claim_expires_at == job.claimed_at + services.policy.claim_ttl
    assert job.deadline_at == job.claimed_at + timedelta(minutes=5)


def test_fifty_claimers_take_five_hundred_tasks_and_none_twice(services: Services) -> None:
    submit_jobs(services, [NewJob(type="demo") for _ in range(TASKS)])
    asking = [a_worker(services, f"w{number}") for number in range(CLAIMERS)]

    def work(number: int) -> list[str]:
        taken: list[str] = []
        with typed(services.database) as face:
            while row := face.claim(asking[number], TWO_NAMES[number % 2]):
                assert row["worker_id"] == asking[number]
                taken.append(row["id"])
                face.complete(row["id"], {"by": number})
        return taken

    taken = [job_id for each in at_once(CLAIMERS, work) for job_id in each]
    assert len(taken) == len(set(taken)) == TASKS
    query = "SELECT COUNT(*) FROM orchestrator_jobs WHERE status = 'done' AND claim_token = 1 AND attempts = 1"
    assert scalar(services.database, query) == TASKS
    assert scalar(services.database, "SELECT COUNT(*) FROM job_attempts WHERE outcome = 'done'") == TASKS


def test_one_worker_that_asks_many_times_at_once_gets_one_task(services: Services, face: Face) -> None:
    worker = a_worker(services)
    submit_jobs(services, [NewJob(type="demo") for _ in range(20)])
    rows = [row for row in at_once(20, lambda _: face.claim(worker)) if row is not None]
    assert len(rows) == 1


def test_the_oldest_goes_first_and_priority_before_it(services: Services, face: Face) -> None:
    for name in ("a", "b", "c"):
        a_job(services, job_id=name)
    a_job(services, job_id="urgent", priority=100)
    asking = [a_worker(services, f"w{number}") for number in range(4)]
    assert [face.must_claim(worker)["id"] for worker in asking] == ["urgent", "a", "b", "c"]


def test_a_busy_worker_gets_no_row(services: Services, face: Face) -> None:
    worker = a_worker(services)
    a_job(services)
    a_job(services)
    assert face.claim(worker) is not None
    assert [face.claim(worker, name) for name in TWO_NAMES] == [None, None]


@pytest.mark.parametrize("name", TWO_NAMES)
def test_nobody_but_an_active_worker_of_the_pool_gets_a_row(services: Services, face: Face, name: str) -> None:
    a_job(services, pool=PoolId("there"))
    a_worker(services, "elsewhere")
    register_worker(services, WorkerId("starting"), pool=PoolId("there"))
    drain(services, a_worker(services, "draining", pool="there"))
    for asking in ("elsewhere", "starting", "draining", "unknown", "", "x" * 200, None):
        assert face.claim(asking, name) is None
    assert face.claim(a_worker(services, "right", pool="there"), name) is not None


def test_a_terminating_worker_may_still_complete(services: Services, face: Face) -> None:
    worker = a_worker(services)
    job_id = a_job(services)
    face.must_claim(worker)
    drain(services, worker)
    assert face.beat(worker)
    assert face.complete(job_id, {"ok": True}) == "Complete"
    assert face.claim(worker) is None
    job = find_job(services, job_id)
    assert (job.status, job.result, job.worker_id) == (JobStatus.DONE, {"ok": True}, None)
    shown = face.task(job_id)
    assert (shown["status"], shown["worker_id"]) == ("Complete", None)
    assert shown["generation_processed_at"] is not None


def test_three_failures_end_failed(services: Services, face: Face, clock: MovingClock) -> None:
    worker = a_worker(services)
    job_id = a_job(services)
    for attempt in (1, 2):
        assert face.must_claim(worker)["attempts"] == attempt
        assert face.fail(job_id, f"broke {attempt}") == "Error"
        shown = face.task(job_id)
        assert (shown["status"], shown["error_message"]) == ("Error", f"broke {attempt}")
        assert shown["next_attempt_at"] > shown["generation_processed_at"] is not None
        assert face.claim(worker) is None
        clock.advance(LATER)
        assert stage_due_jobs(services) == 1
    face.must_claim(worker)
    assert face.fail(job_id, "broke 3") == "Failed"
    job = find_job(services, job_id)
    assert (job.status, job.reason) == (JobStatus.DEAD_LETTER, Reason.ATTEMPTS_EXHAUSTED)
    assert (face.task(job_id)["next_attempt_at"], face.claim(worker)) == (None, None)
    assert [attempt.error for attempt in find_attempts(services, job_id)] == ["broke 1", "broke 2", "broke 3"]
    assert replayed(services, job_id) == JobStatus.DEAD_LETTER
    requeue_job(services, job_id)
    assert face.must_claim(worker)["claim_token"] > 3


@pytest.mark.parametrize("end", ["complete", "fail"])
def test_j7_a_task_that_was_cancelled_is_never_complete(services: Services, face: Face, end: str) -> None:
    worker = a_worker(services)
    job_id = a_job(services)
    face.must_claim(worker)
    cancel_job(services, job_id)
    assert (face.complete(job_id, 1) if end == "complete" else face.fail(job_id, "no")) == "Cancelled"
    job = find_job(services, job_id)
    assert (job.status, job.reason, job.result) == (JobStatus.CANCELLED, Reason.CANCELLED, None)
    assert replayed(services, job_id) == JobStatus.CANCELLED
    assert face.claim(worker) is None


def test_ids_that_lead_nowhere_are_refused(services: Services, face: Face) -> None:
    job_id = a_job(services)
    for end in (face.complete, face.fail):
        for wrong in ("unknown", "", None, "x" * 128):
            with pytest.raises(Exception, match="herdsman: there is no task"):
                end(wrong)
        with pytest.raises(Exception, match=f"herdsman: task {job_id} is Queued .* you cannot"):
            end(job_id)
    assert replayed(services, job_id) == JobStatus.PENDING


def test_an_end_may_be_said_twice_but_not_changed(services: Services, face: Face) -> None:
    worker = a_worker(services)
    job_id = a_job(services)
    face.must_claim(worker)
    assert face.complete(job_id, {"n": 1}, "func_mark_task_complete") == "Complete"
    assert face.complete(job_id, {"n": 2}) == "Complete"
    with pytest.raises(Exception, match="is Complete"):
        face.fail(job_id, "late", "func_mark_task_failed")
    assert find_job(services, job_id).result == {"n": 1}


def test_a_result_over_the_limit_is_refused(services: Services, face: Face) -> None:
    worker = a_worker(services)
    job_id = a_job(services)
    face.must_claim(worker)
    with pytest.raises(Exception, match="has more than 1048576 bytes"):
        face.complete(job_id, "x" * services.policy.max_result_bytes)
    assert find_job(services, job_id).status is JobStatus.CLAIMED


def test_a_heartbeat_keeps_the_worker_and_its_claim(services: Services, face: Face, clock: MovingClock) -> None:
    clock.advance(-LATER)
    worker = a_worker(services)
    a_job(services)
    claim = claimed(services, worker)
    assert face.beat(worker, 24000, 6000)
    job = find_job(services, claim.key.job_id)
    assert job.claim_expires_at is not None
    assert job.claim_expires_at > claim.expires_at
    assert job.version == 2, "a heartbeat is no step"
    assert face.beat(worker)
    shown = [scalar(services.database, f"SELECT {name} FROM active_workers_health") for name in HEALTH]
    assert [float(value) for value in shown] == [24000, 6000, *[pytest.approx(0, abs=60)] * 2]
    known = services.database.read(lambda tx: workers_sql.get_worker(tx, worker)).metadata
    assert datetime.fromisoformat(str(known["vram_timestamp"])).utcoffset() == timedelta(0)


def test_w2_a_heartbeat_of_an_unknown_or_ended_worker_is_refused_and_adds_no_row(
    services: Services, face: Face
) -> None:
    gone = a_worker(services, "gone")
    move_worker(services, gone, WorkerStatus.ERROR, Reason.LOST)
    assert [face.beat(name) for name in ("unknown", "gone", "")] == [False] * 3
    assert scalar(services.database, "SELECT COUNT(*) FROM workers") == 1


def test_tasks_of_lost_workers_go_back_and_are_given_up_when_they_kill(services: Services, face: Face) -> None:
    job_id = a_job(services, max_attempts=5)
    a_job(services, job_id="other")
    first, other = a_worker(services, "first"), a_worker(services, "other")
    face.must_claim(first)
    face.must_claim(other)
    assert face.reset(first, WorkerId("unknown"), first) == 1
    job = find_job(services, job_id)
    assert (job.status, job.reason, job.worker_losses) == (JobStatus.PENDING, Reason.CLAIM_EXPIRED, 1)
    assert find_job(services, JobId("other")).status is JobStatus.CLAIMED
    second = a_worker(services, "second")
    assert face.must_claim(second)["id"] == job_id
    assert face.reset(second) == 1
    job = find_job(services, job_id)
    assert (job.status, job.reason, job.worker_losses) == (JobStatus.DEAD_LETTER, Reason.KILLS_WORKERS, 2)
    assert replayed(services, job_id) == JobStatus.DEAD_LETTER
    assert face.reset() == 0


def test_commands_and_functions_take_turns_on_one_task(services: Services, face: Face, clock: MovingClock) -> None:
    worker = a_worker(services)
    job_id = a_job(services)
    face.must_claim(worker)
    key = ClaimKey(job_id, 1)
    start_job(services, key)
    beat(services, worker)
    assert face.fail(job_id) == "Error"
    clock.advance(LATER)
    stage_due_jobs(services)
    claim = claim_job(services, worker)
    assert claim is not None
    assert face.claim(worker) is None
    assert face.reset(worker) == 1
    row = face.must_claim(worker)
    complete_job(services, ClaimKey(job_id, row["claim_token"]), {"by": "python"})
    assert face.complete(job_id) == "Complete"
    assert find_job(services, job_id).result == {"by": "python"}
    assert replayed(services, job_id) == JobStatus.DONE
    outcomes = [attempt.outcome for attempt in find_attempts(services, job_id)]
    assert outcomes == [JobStatus.FAILED, JobStatus.PENDING, JobStatus.DONE]
