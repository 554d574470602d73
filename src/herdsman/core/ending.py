"""How a claim ends when it brought no result: what the job becomes, why, and when it runs again."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from herdsman.core.model import ClaimKey, Failure, JobPolicy
from herdsman.core.order import place
from herdsman.core.reasons import Reason
from herdsman.core.retry import FailureClass, GiveUp, RetryAfter, RetryPolicy, RunAgain, Tally, after_failure
from herdsman.core.states import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A held job, as far as the end of its claim needs to know it."""

    key: ClaimKey
    tally: Tally
    max_attempts: int
    retry_base: timedelta | None
    retry_cap: timedelta | None
    priority: int
    place: int
    run_at: datetime
    expires_at: datetime
    cancel_requested: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a claim ends in."""

    state: JobState
    reason: Reason
    run_at: datetime
    place: int
    tally: Tally
    failure: Failure | None


def end_of(held: Holding, failure: Failure, now: datetime, policy: JobPolicy) -> Ending:
    tally = count(held.tally, failure.kind)
    ending = Ending(
        state=JobState.CANCELLED,
        reason=Reason.CANCELLED,
        run_at=held.run_at,
        place=held.place,
        tally=tally,
        failure=failure,
    )
    if held.cancel_requested:
        return ending
    retry = own_policy(held, policy.retry)
    outcome = after_failure(
        failure.kind, tally, max_attempts=held.max_attempts, policy=retry, job_id=held.key.job_id
    )
    match outcome:
        case GiveUp(reason):
            return replace(ending, state=JobState.DEAD_LETTER, reason=reason)
        case RunAgain():
            return _run_again(ending, held, now, policy)
        case RetryAfter(delay):
            waiting = replace(ending, state=JobState.FAILED, reason=REASONS[failure.kind])
            return _queued_at(waiting, now + delay, held.priority, policy)
        case _:
            assert_never(outcome)


def own_policy(held: Holding, usual: RetryPolicy) -> RetryPolicy:
    """The usual policy with what the job brought itself; a base over the usual cap raises the cap."""
    base = held.retry_base or usual.base
    return replace(usual, base=base, cap=held.retry_cap or max(base, usual.cap))


def overdue_failure(held: Holding, now: datetime, *, excused_before: datetime | None = None) -> Failure:
    """Why the sweep ends a claim: a silent worker, or one that beats and does not stop the job.

    A claim that ran out before `excused_before` ran out while no heartbeat could be written: nobody is to blame.
    """
    if excused_before is not None and held.expires_at < excused_before:
        said = "the worker was not heard again after heartbeats could not be written"
        return Failure(kind=FailureClass.INTERRUPTED, error=said)
    if held.expires_at < now:
        return Failure(kind=FailureClass.WORKER_LOST, error="the worker fell silent while it held the job")
    return Failure(kind=FailureClass.TIMEOUT, error="the job ran on after it should have ended")


def count(tally: Tally, kind: FailureClass) -> Tally:
    match kind:
        case FailureClass.INTERRUPTED:
            return replace(tally, interruptions=tally.interruptions + 1)
        case FailureClass.WORKER_LOST:
            return replace(tally, worker_losses=tally.worker_losses + 1)
        case FailureClass.OUT_OF_MEMORY:
            return replace(tally, out_of_memory=tally.out_of_memory + 1)
        case _:
            return tally


def _run_again(ending: Ending, held: Holding, now: datetime, policy: JobPolicy) -> Ending:
    assert ending.failure is not None
    waiting = replace(ending, state=JobState.PENDING, reason=REASONS[ending.failure.kind])
    if ending.failure.kind is FailureClass.INTERRUPTED:
        return waiting  # not the job's fault: it keeps its place
    # It may have killed the worker: it waits its turn like a new one, never at the head (J8).
    return _queued_at(waiting, now, held.priority, policy)


def _queued_at(ending: Ending, due: datetime, priority: int, policy: JobPolicy) -> Ending:
    return replace(ending, run_at=due, place=place(due, priority, policy.priority_step))


REASONS = {
    FailureClass.USER_ERROR: Reason.USER_ERROR,
    FailureClass.JOB_ERROR: Reason.JOB_ERROR,
    FailureClass.OUT_OF_MEMORY: Reason.OUT_OF_MEMORY,
    FailureClass.INFRASTRUCTURE: Reason.INFRASTRUCTURE,
    FailureClass.INTERRUPTED: Reason.RELEASED,
    FailureClass.TIMEOUT: Reason.TIMEOUT,
    FailureClass.WORKER_LOST: Reason.CLAIM_EXPIRED,
}
