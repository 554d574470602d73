"""Each try of a job is on record: who made it, when, and how it ended."""

from datetime import timedelta
from typing import Any

import pytest

from herdsman.context import Services
from herdsman.jobs.commands import find_attempts
from herdsman.jobs.model import Attempt, Claim, FailureClass
from herdsman.jobs.worker_commands import complete_job, fail_job, release_job, start_job
from tests.support.builders import BROKEN, a_claim, a_worker, claimed
from tests.support.databases import NOON, MovingClock

pytestmark = pytest.mark.usefixtures("stopped_clock")


SECOND = timedelta(seconds=1)


def test_an_attempt_is_opened_started_and_closed(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services)
    opened = an_attempt(claim)
    assert find_attempts(services, claim.key.job_id) == [Attempt(**opened)]
    clock.advance(SECOND)
    start_job(services, claim.key)
    opened["started_at"] = NOON + SECOND
    assert find_attempts(services, claim.key.job_id) == [Attempt(**opened)]
    clock.advance(SECOND)
    fail_job(services, claim.key, BROKEN)
    opened |= {"ended_at": NOON + 2 * SECOND, "outcome": "failed", "reason": "job_error"}
    opened |= {"failure_class": FailureClass.JOB_ERROR, "error": "the handler raised"}
    assert find_attempts(services, claim.key.job_id) == [Attempt(**opened)]


def test_each_claim_is_an_attempt_of_its_own(services: Services) -> None:
    claim = a_claim(services)
    release_job(services, claim.key, "drained")
    complete_job(services, claimed(services, a_worker(services, "w2")).key)
    tries = find_attempts(services, claim.key.job_id)
    assert [(tried.claim_token, tried.attempt, tried.worker_id) for tried in tries] == [
        (1, 1, "w1"),
        (2, 2, "w2"),
    ]
    assert [(tried.outcome, tried.error) for tried in tries] == [("pending", "drained"), ("done", None)]


def an_attempt(claim: Claim) -> dict[str, Any]:
    nothing = dict.fromkeys(("started_at", "ended_at", "outcome", "reason", "failure_class", "error"))
    return {
        **nothing,
        "job_id": claim.key.job_id,
        "claim_token": 1,
        "attempt": 1,
        "worker_id": "w1",
        "pool": "default",
        "claimed_at": NOON,
    }
