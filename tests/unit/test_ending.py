"""How a claim ends when it brought no result: what the job becomes, why, and when it runs again."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.ids import JobId
from herdsman.jobs.model import ClaimKey, Failure, FailureClass, JobPolicy, RetryPolicy, place
from herdsman.jobs.rules import Ending, Holding, Tally, backoff, end_of, overdue_failure, own_policy
from herdsman.states import HELD, JOB, JobState, Reason

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
EARLIER = NOON - timedelta(hours=1)
POLICY = JobPolicy()
FIRST = Tally(attempts=1)


def a_holding(
    *,
    tally: Tally = FIRST,
    max_attempts: int = 3,
    retry_base: timedelta | None = None,
    retry_cap: timedelta | None = None,
    expires_at: datetime = NOON,
    cancel_requested: bool = False,
) -> Holding:
    return Holding(
        key=ClaimKey(JobId("j"), 1),
        tally=tally,
        max_attempts=max_attempts,
        retry_base=retry_base,
        retry_cap=retry_cap,
        priority=7,
        place=42,
        run_at=EARLIER,
        expires_at=expires_at,
        cancel_requested=cancel_requested,
    )


HOLDINGS = st.builds(
    a_holding,
    tally=st.builds(
        Tally,
        attempts=st.integers(1, 30),
        interruptions=st.integers(0, 25),
        worker_losses=st.integers(0, 4),
        out_of_memory=st.integers(0, 4),
    ),
    max_attempts=st.integers(1, 10),
    cancel_requested=st.booleans(),
)


def ended(held: Holding, kind: FailureClass) -> Ending:
    return end_of(held, Failure(kind=kind, error="why"), NOON, POLICY)


@pytest.mark.parametrize(
    ("kind", "state", "reason"),
    [
        (FailureClass.USER_ERROR, JobState.DEAD_LETTER, Reason.USER_ERROR),
        (FailureClass.JOB_ERROR, JobState.FAILED, Reason.JOB_ERROR),
        (FailureClass.OUT_OF_MEMORY, JobState.FAILED, Reason.OUT_OF_MEMORY),
        (FailureClass.INFRASTRUCTURE, JobState.FAILED, Reason.INFRASTRUCTURE),
        (FailureClass.INTERRUPTED, JobState.PENDING, Reason.RELEASED),
        (FailureClass.TIMEOUT, JobState.FAILED, Reason.TIMEOUT),
        (FailureClass.WORKER_LOST, JobState.PENDING, Reason.CLAIM_EXPIRED),
    ],
)
def test_each_kind_of_first_failure_has_its_end(kind: FailureClass, state: JobState, reason: Reason) -> None:
    ending = ended(a_holding(), kind)
    assert (ending.state, ending.reason) == (state, reason)
    assert ending.failure == Failure(kind=kind, error="why")


@pytest.mark.parametrize("kind", FailureClass)
def test_after_the_last_attempt_every_kind_is_the_end(kind: FailureClass) -> None:
    spent = Tally(attempts=20, interruptions=19, worker_losses=1, out_of_memory=1)
    assert ended(a_holding(tally=spent, max_attempts=1), kind).state is JobState.DEAD_LETTER


@pytest.mark.parametrize("kind", FailureClass)
def test_j7_a_cancelled_job_ends_cancelled_whatever_happened(kind: FailureClass) -> None:
    ending = ended(a_holding(cancel_requested=True), kind)
    assert (ending.state, ending.reason) == (JobState.CANCELLED, Reason.CANCELLED)


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
    assert ended(a_holding(), kind).tally == replace(FIRST, **counted)


def test_j8_a_retry_comes_later_and_takes_its_place_then() -> None:
    ending = ended(a_holding(), FailureClass.JOB_ERROR)
    due = NOON + backoff("j", 1, POLICY.retry)
    assert (ending.run_at, ending.place) == (due, place(due, 7, POLICY.priority_step))


def test_j8_a_job_that_lost_its_worker_queues_up_anew() -> None:
    ending = ended(a_holding(), FailureClass.WORKER_LOST)
    assert (ending.run_at, ending.place) == (NOON, place(NOON, 7, POLICY.priority_step))


def test_an_interrupted_job_keeps_its_place() -> None:
    ending = ended(a_holding(), FailureClass.INTERRUPTED)
    assert (ending.run_at, ending.place) == (EARLIER, 42)


@given(HOLDINGS, st.sampled_from(FailureClass))
def test_j6_every_end_is_a_legal_move_out_of_the_worker_s_hands(held: Holding, kind: FailureClass) -> None:
    ending = ended(held, kind)
    assert all(JOB.allows(here, ending.state) for here in HELD)
    assert ending.state not in (*HELD, JobState.DONE)
    assert (ending.run_at > NOON) == (ending.state is JobState.FAILED)
    assert ending.tally.attempts == held.tally.attempts


@given(HOLDINGS, st.sampled_from(FailureClass))
def test_j5_a_job_without_attempts_left_does_not_wait_for_another(held: Holding, kind: FailureClass) -> None:
    ending = ended(held, kind)
    if ending.tally.spent >= held.max_attempts:
        assert ending.state in JOB.terminal


def test_a_job_may_bring_its_own_pace() -> None:
    usual = RetryPolicy(base=timedelta(seconds=5), cap=timedelta(minutes=5))
    hour = timedelta(hours=1)
    assert own_policy(a_holding(), usual) == usual
    assert own_policy(a_holding(retry_base=hour), usual) == replace(usual, base=hour, cap=hour)
    assert own_policy(a_holding(retry_cap=hour), usual) == replace(usual, cap=hour)
    second = timedelta(seconds=1)
    assert own_policy(a_holding(retry_base=second), usual) == replace(usual, base=second)


def test_the_sweep_tells_a_silent_worker_from_a_job_that_runs_too_long() -> None:
    moment = timedelta(microseconds=1)
    assert overdue_failure(a_holding(expires_at=NOON - moment), NOON).kind is FailureClass.WORKER_LOST
    assert overdue_failure(a_holding(expires_at=NOON), NOON).kind is FailureClass.TIMEOUT
