"""A worker that lost its claim can change nothing, whatever it says and whoever holds the job now (J3)."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.errors import NotFound, StaleWrite
from herdsman.fleet.commands import move_worker
from herdsman.ids import JobId
from herdsman.jobs.commands import cancel_job, find_attempts, find_job, requeue_job
from herdsman.jobs.model import Claim, ClaimKey
from herdsman.jobs.sweep import expire_claims
from herdsman.jobs.worker_commands import (
    Finish,
    complete_job,
    fail_job,
    release_job,
    report_progress,
    start_job,
)
from herdsman.states import JobStatus, Reason, WorkerStatus
from tests.support.builders import BROKEN, a_claim, a_job, a_worker, claimed
from tests.support.databases import MovingClock
from tests.support.worker_calls import beat, claim_job, complete_jobs

Word = Callable[[Services, Claim], object]
WORDS: dict[str, Word] = {
    "start": lambda services, old: start_job(services, old.key),
    "heartbeat": lambda services, old: beat(services, old.worker_id, old.key),
    "progress": lambda services, old: report_progress(services, old.key, 0.5),
    "complete": lambda services, old: complete_job(services, old.key, "late"),
    "fail": lambda services, old: fail_job(services, old.key, BROKEN),
    "release": lambda services, old: release_job(services, old.key, "drained"),
}


@pytest.mark.parametrize("word", WORDS.values(), ids=WORDS)
def test_j3_a_paused_worker_that_wakes_up_is_refused(services: Services, clock: MovingClock, word: Word) -> None:
    old = a_claim(services)
    clock.advance(services.policy.claim_ttl + timedelta(seconds=1))
    expire_claims(services)
    new = claimed(services, a_worker(services, "w2"))
    assert new.key == ClaimKey(old.key.job_id, 2)
    before = find_job(services, old.key.job_id)
    with pytest.raises(StaleWrite, match=r"claim 1 may not .* which is claimed under claim 2: stop working on it"):
        word(services, old)
    assert find_job(services, old.key.job_id) == before
    assert complete_job(services, new.key, "ours") is Finish.DONE


@pytest.mark.parametrize("word", WORDS.values(), ids=WORDS)
def test_j3_the_same_worker_s_older_claim_is_refused(services: Services, word: Word) -> None:
    old = a_claim(services)
    release_job(services, old.key, "drained")
    claimed(services, old.worker_id)
    before = find_job(services, old.key.job_id)
    with pytest.raises(StaleWrite):
        word(services, old)
    assert find_job(services, old.key.job_id) == before


@pytest.mark.parametrize("word", WORDS.values(), ids=WORDS)
def test_j3_a_claim_from_the_future_is_refused(services: Services, word: Word) -> None:
    claim = a_claim(services)
    before = find_job(services, claim.key.job_id)
    forged = replace(claim, key=ClaimKey(claim.key.job_id, claim.key.token + 1))
    with pytest.raises(StaleWrite):
        word(services, forged)
    assert find_job(services, claim.key.job_id) == before


@pytest.mark.parametrize("word", [word for name, word in WORDS.items() if name != "complete"])
def test_j3_a_job_that_is_done_listens_to_nobody(services: Services, word: Word) -> None:
    claim = a_claim(services)
    complete_job(services, claim.key, "result")
    before = find_job(services, claim.key.job_id)
    with pytest.raises(StaleWrite):
        word(services, claim)
    assert find_job(services, claim.key.job_id) == before


def test_j3_a_requeue_makes_every_old_claim_stale(services: Services) -> None:
    old = a_claim(services)
    complete_job(services, old.key)
    requeue_job(services, old.key.job_id)
    with pytest.raises(StaleWrite, match="which is pending under claim 2"):
        complete_job(services, old.key)
    assert claimed(services, old.worker_id).key.token == 3


def test_j3_a_batch_of_results_is_judged_one_by_one(services: Services) -> None:
    good, stale, cancelled = (a_claim(services, f"w{number}") for number in range(3))
    release_job(services, stale.key, "drained")
    cancel_job(services, cancelled.key.job_id)
    unknown = ClaimKey(JobId("none"), 1)
    results = complete_jobs(services, dict.fromkeys((good.key, stale.key, cancelled.key, unknown), "r"))
    assert (results[good.key], results[cancelled.key]) == (Finish.DONE, Finish.CANCELLED)
    assert isinstance(results[stale.key], StaleWrite)
    assert isinstance(results[unknown], NotFound)
    assert find_job(services, good.key.job_id).status is JobStatus.DONE
    assert find_job(services, stale.key.job_id).status is JobStatus.PENDING


def test_j3_a_twin_with_the_same_name_changes_nothing(services: Services) -> None:
    """The old incarnation finds its job gone although the name on it is its own."""
    old = a_claim(services)
    fail_job(services, old.key, BROKEN)
    a_job(services)
    other = claimed(services, old.worker_id)
    assert other.key.job_id != old.key.job_id
    with pytest.raises(StaleWrite):
        complete_job(services, old.key)
    assert find_job(services, other.key.job_id).worker_id == old.worker_id


def test_a_lost_worker_s_claim_lasts_until_it_expires(services: Services) -> None:
    """Not seen is not dead: the sweep goes by the claim's own time and by nothing else."""
    claim = a_claim(services)
    move_worker(services, claim.worker_id, WorkerStatus.ERROR, Reason.LOST)
    assert expire_claims(services) == 0
    assert claim_job(services, a_worker(services, "w2")) is None
    assert complete_job(services, claim.key) is Finish.DONE
    assert [attempt.outcome for attempt in find_attempts(services, claim.key.job_id)] == ["done"]
