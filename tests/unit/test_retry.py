"""When a job runs again after a failure, or why never."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.jobs.model import Failure, FailureClass, JobPolicy, RetryPolicy
from herdsman.jobs.rules import Ending, backoff, end_of, spread
from herdsman.states import JobStatus, Reason
from tests.unit.test_ending import FIRST, NOON

JOB_IDS = st.text(max_size=40)
ATTEMPTS = st.integers(1, 10_000)
SPANS = st.timedeltas(timedelta(milliseconds=1), timedelta(days=365))
POLICIES = st.builds(RetryPolicy, base=SPANS, cap=SPANS, jitter=st.floats(0, 1), max_interruptions=st.integers(1, 50))
RETRIED = [FailureClass.JOB_ERROR, FailureClass.INFRASTRUCTURE, FailureClass.TIMEOUT]
MICROSECOND = timedelta(microseconds=1)


@given(JOB_IDS, ATTEMPTS, POLICIES)
def test_a_delay_lies_between_the_plain_backoff_and_its_jitter(job_id: str, attempt: int, policy: RetryPolicy) -> None:
    seconds = min(policy.cap.total_seconds(), policy.base.total_seconds() * 2 ** min(attempt - 1, 60))
    plain = timedelta(seconds=seconds)
    assert plain - MICROSECOND <= backoff(job_id, attempt, policy) <= plain * (1 + policy.jitter) + MICROSECOND


@given(JOB_IDS, ATTEMPTS, POLICIES)
def test_no_delay_exceeds_the_cap_and_its_jitter(job_id: str, attempt: int, policy: RetryPolicy) -> None:
    assert backoff(job_id, attempt, policy) <= policy.cap * (1 + policy.jitter) + MICROSECOND


@given(JOB_IDS, st.integers(1, 100), POLICIES)
def test_without_jitter_delays_never_shrink(job_id: str, attempt: int, policy: RetryPolicy) -> None:
    steady = RetryPolicy(base=policy.base, cap=policy.cap, jitter=0)
    assert backoff(job_id, attempt, steady) <= backoff(job_id, attempt + 1, steady)


@given(JOB_IDS, ATTEMPTS, POLICIES)
def test_a_replay_waits_the_same_time(job_id: str, attempt: int, policy: RetryPolicy) -> None:
    assert backoff(job_id, attempt, policy) == backoff(job_id, attempt, policy)


@given(JOB_IDS, ATTEMPTS)
def test_the_spread_is_a_share(job_id: str, attempt: int) -> None:
    assert 0 <= spread(job_id, attempt) < 1


def test_the_spread_is_the_same_in_every_process_and_version() -> None:
    """The number that another process once came to."""
    assert spread("job-1", 1) == 0.3871759070539518


def test_jobs_that_failed_together_do_not_come_back_together() -> None:
    delays = {backoff(f"job-{number}", 1, RetryPolicy()) for number in range(100)}
    assert len(delays) == 100
    assert max(delays) > timedelta(seconds=7) > timedelta(seconds=5.5) > min(delays)


def test_the_spread_spreads() -> None:
    """A thousand jobs that fail together come back evenly: no tenth of the time sees twice its share."""
    tenths = [int(spread(f"job-{number}", 1) * 10) for number in range(1000)]
    assert all(50 < tenths.count(tenth) < 200 for tenth in range(10))


def test_the_first_delays_with_the_usual_policy() -> None:
    steady = RetryPolicy(jitter=0)
    delays = [backoff("j", attempt, steady).total_seconds() for attempt in range(1, 9)]
    assert delays == [5, 10, 20, 40, 80, 160, 300, 300]


@pytest.mark.parametrize("kind", RETRIED)
@given(spent=st.integers(1, 20), limit=st.integers(1, 20))
def test_an_ordinary_failure_is_retried_until_the_attempts_are_used_up(
    kind: FailureClass, spent: int, limit: int
) -> None:
    ending = judge(kind, limit, attempts=spent)
    if spent < limit:
        assert ending.status is JobStatus.FAILED
        assert ending.job.run_at > NOON
    else:
        assert (ending.status, ending.reason) == (JobStatus.DEAD_LETTER, Reason.ATTEMPTS_EXHAUSTED)


@given(st.integers(1, 99), st.integers(1, 99))
def test_a_job_that_is_wrong_is_never_run_again(attempts: int, limit: int) -> None:
    ending = judge(FailureClass.USER_ERROR, limit, attempts=attempts)
    assert (ending.status, ending.reason) == (JobStatus.DEAD_LETTER, Reason.USER_ERROR)


@given(st.integers(1, 40), st.integers(1, 5))
def test_interruptions_have_a_cap_of_their_own(interruptions: int, failures: int) -> None:
    """Every interruption was an attempt as well, and is given back."""
    counts = {"attempts": interruptions + failures, "interruptions": interruptions}
    ending = judge(FailureClass.INTERRUPTED, failures + 1, **counts)
    again = (JobStatus.PENDING, Reason.RELEASED)
    over = (JobStatus.DEAD_LETTER, Reason.INTERRUPTED_TOO_OFTEN)
    assert (ending.status, ending.reason) == (again if interruptions < 20 else over)


@pytest.mark.parametrize(
    ("kind", "counts", "reason"),
    [
        (FailureClass.WORKER_LOST, {"attempts": 1, "worker_losses": 1}, None),
        (FailureClass.WORKER_LOST, {"attempts": 2, "worker_losses": 2}, Reason.KILLS_WORKERS),
        (FailureClass.WORKER_LOST, {"attempts": 9, "worker_losses": 1}, Reason.ATTEMPTS_EXHAUSTED),
        (FailureClass.OUT_OF_MEMORY, {"attempts": 1, "out_of_memory": 1}, None),
        (FailureClass.OUT_OF_MEMORY, {"attempts": 2, "out_of_memory": 2}, Reason.OUT_OF_MEMORY_AGAIN),
        (FailureClass.OUT_OF_MEMORY, {"attempts": 9, "out_of_memory": 1}, Reason.ATTEMPTS_EXHAUSTED),
        (FailureClass.INTERRUPTED, {"attempts": 10, "interruptions": 1}, Reason.ATTEMPTS_EXHAUSTED),
    ],
)
def test_j5_each_kind_of_failure_has_its_limit(
    kind: FailureClass, counts: dict[str, int], reason: Reason | None
) -> None:
    ending = judge(kind, 9, **counts)
    assert (ending.reason if ending.status is JobStatus.DEAD_LETTER else None) == reason


@given(st.sampled_from(FailureClass), st.integers(1, 30), st.integers(1, 3))
def test_j5_no_failure_is_retried_beyond_its_attempts(kind: FailureClass, attempts: int, losses: int) -> None:
    ending = judge(kind, 3, attempts=attempts, worker_losses=losses, interruptions=1)
    if ending.job.attempts - ending.job.interruptions >= 3:
        assert ending.status is JobStatus.DEAD_LETTER


def judge(kind: FailureClass, limit: int, **counts: int) -> Ending:
    """The end of a job with these counts, the failure that just happened included."""
    counted = {
        FailureClass.INTERRUPTED: "interruptions",
        FailureClass.WORKER_LOST: "worker_losses",
        FailureClass.OUT_OF_MEMORY: "out_of_memory",
    }.get(kind)
    before = {name: count - (name == counted) for name, count in counts.items()}
    held = FIRST._replace(**before, max_attempts=limit)
    return end_of(held, Failure(kind=kind, error="why"), NOON, JobPolicy())
