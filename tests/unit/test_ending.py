"""How a claim ends when it brought no result: what the job becomes, why, and when it runs again."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.ids import JobId, WorkerId
from herdsman.jobs.model import Failure, FailureClass, JobPolicy, RetryPolicy
from herdsman.jobs.rules import Ending, Holding, backoff, end_of, overdue_failure, place
from herdsman.states import HELD, JOB, JobStatus, Reason

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
EARLIER = NOON - timedelta(hours=1)
POLICY = JobPolicy()
FIRST = Holding(
    job_id=JobId("j"),
    claim_token=1,
    attempts=1,
    interruptions=0,
    worker_losses=0,
    out_of_memory=0,
    max_attempts=3,
    retry_base_s=None,
    retry_cap_s=None,
    priority=7,
    place=42,
    run_at=EARLIER,
    claim_expires_at=NOON,
    cancel_requested_at=None,
    status=JobStatus.RUNNING,
    worker_id=WorkerId("w"),
    claimed_at=EARLIER,
    slot=0,
)
HOLDINGS = st.builds(
    FIRST._replace,
    attempts=st.integers(1, 30),
    interruptions=st.integers(0, 25),
    worker_losses=st.integers(0, 4),
    out_of_memory=st.integers(0, 4),
    max_attempts=st.integers(1, 10),
    cancel_requested_at=st.none() | st.just(EARLIER),
)


def ended(held: Holding, kind: FailureClass) -> Ending:
    return end_of(held, Failure(kind=kind, error="why"), NOON, POLICY)


@pytest.mark.parametrize(
    ("kind", "state", "reason"),
    [
        (FailureClass.USER_ERROR, JobStatus.DEAD_LETTER, Reason.USER_ERROR),
        (FailureClass.JOB_ERROR, JobStatus.FAILED, Reason.JOB_ERROR),
        (FailureClass.OUT_OF_MEMORY, JobStatus.FAILED, Reason.OUT_OF_MEMORY),
        (FailureClass.INFRASTRUCTURE, JobStatus.FAILED, Reason.INFRASTRUCTURE),
        (FailureClass.INTERRUPTED, JobStatus.PENDING, Reason.RELEASED),
        (FailureClass.TIMEOUT, JobStatus.FAILED, Reason.TIMEOUT),
        (FailureClass.WORKER_LOST, JobStatus.PENDING, Reason.CLAIM_EXPIRED),
    ],
)
def test_each_kind_of_first_failure_has_its_end(kind: FailureClass, state: JobStatus, reason: Reason) -> None:
    ending = ended(FIRST, kind)
    assert (ending.status, ending.reason) == (state, reason)
    assert ending.failure == Failure(kind=kind, error="why")


@pytest.mark.parametrize("kind", FailureClass)
def test_after_the_last_attempt_every_kind_is_the_end(kind: FailureClass) -> None:
    spent = FIRST._replace(attempts=20, interruptions=19, worker_losses=1, out_of_memory=1, max_attempts=1)
    assert ended(spent, kind).status is JobStatus.DEAD_LETTER


@pytest.mark.parametrize("kind", FailureClass)
def test_j7_a_cancelled_job_ends_cancelled_whatever_happened(kind: FailureClass) -> None:
    ending = ended(FIRST._replace(cancel_requested_at=EARLIER), kind)
    assert (ending.status, ending.reason) == (JobStatus.CANCELLED, Reason.CANCELLED)


@pytest.mark.parametrize(
    ("kind", "counted"),
    [
        (FailureClass.INTERRUPTED, {"interruptions": 1}),
        (FailureClass.WORKER_LOST, {"worker_losses": 1}),
        (FailureClass.OUT_OF_MEMORY, {"out_of_memory": 1}),
        (FailureClass.JOB_ERROR, {}),
        (FailureClass.USER_ERROR, {}),
        (FailureClass.INFRASTRUCTURE, {}),
        (FailureClass.TIMEOUT, {}),
    ],
)
def test_j5_each_kind_is_counted_where_it_belongs(kind: FailureClass, counted: dict[str, int]) -> None:
    counts = {"attempts": 1, "interruptions": 0, "worker_losses": 0, "out_of_memory": 0, **counted}
    ending = ended(FIRST, kind)
    assert {name: getattr(ending.job, name) for name in counts} == counts


def test_j8_a_retry_comes_later_and_takes_its_place_then() -> None:
    ending = ended(FIRST, FailureClass.JOB_ERROR)
    due = NOON + backoff("j", 1, POLICY.retry)
    assert (ending.job.run_at, ending.job.place) == (due, place(due, 7, POLICY.priority_step))


def test_j8_a_job_that_lost_its_worker_queues_up_anew() -> None:
    ending = ended(FIRST, FailureClass.WORKER_LOST)
    assert (ending.job.run_at, ending.job.place) == (NOON, place(NOON, 7, POLICY.priority_step))


def test_an_interrupted_job_keeps_its_place() -> None:
    ending = ended(FIRST, FailureClass.INTERRUPTED)
    assert (ending.job.run_at, ending.job.place) == (EARLIER, 42)


@given(HOLDINGS, st.sampled_from(FailureClass))
def test_j6_every_end_is_a_legal_move_out_of_the_worker_s_hands(held: Holding, kind: FailureClass) -> None:
    ending = ended(held, kind)
    assert all(JOB.allows(here, ending.status) for here in HELD)
    assert ending.status not in (*HELD, JobStatus.DONE)
    assert (ending.job.run_at > NOON) == (ending.status is JobStatus.FAILED)
    assert ending.job.attempts == held.attempts


@given(HOLDINGS, st.sampled_from(FailureClass))
def test_j5_a_job_without_attempts_left_does_not_wait_for_another(held: Holding, kind: FailureClass) -> None:
    ending = ended(held, kind)
    if ending.job.attempts - ending.job.interruptions >= held.max_attempts:
        assert ending.status in JOB.terminal


@pytest.mark.parametrize(
    ("base_s", "cap_s", "expected"),
    [(None, None, (5, 300)), (3600, None, (3600, 3600)), (None, 3600, (5, 3600)), (1, None, (1, 300))],
)
@pytest.mark.parametrize("attempts", [1, 9])
def test_a_job_may_bring_its_own_pace(
    base_s: int | None, cap_s: int | None, expected: tuple[int, int], attempts: int
) -> None:
    """A base over the usual cap raises the cap."""
    held = FIRST._replace(retry_base_s=base_s, retry_cap_s=cap_s, attempts=attempts, max_attempts=99)
    base, cap = (timedelta(seconds=each) for each in expected)
    delay = backoff("j", attempts, RetryPolicy(base=base, cap=cap))
    assert ended(held, FailureClass.JOB_ERROR).job.run_at == NOON + delay


def test_the_sweep_tells_a_silent_worker_from_a_job_that_runs_too_long() -> None:
    moment = timedelta(microseconds=1)
    assert overdue_failure(FIRST._replace(claim_expires_at=NOON - moment), NOON).kind is FailureClass.WORKER_LOST
    assert overdue_failure(FIRST, NOON).kind is FailureClass.TIMEOUT
