"""Random lives of jobs: every rule does a thing to the real store and to the model, and the two must agree."""

from datetime import timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, multiple, rule

from herdsman.control.commands import (
    beat,
    cancel_job,
    claim_job,
    complete_job,
    expire_claims,
    fail_job,
    release_job,
    report_progress,
    requeue_job,
    stage_due_jobs,
    start_job,
    submit_job,
)
from herdsman.control.commands.finish import Finish
from herdsman.core.errors import InvalidRequest
from herdsman.core.model import Claim, Failure, JobId
from herdsman.core.retry import FailureClass
from tests.contract.life_base import LifeBase
from tests.contract.life_model import CLAIM_TTL, ENDS, HELD, ModelJob

MINUTE = timedelta(minutes=1)
WAITS = (timedelta(seconds=1), timedelta(seconds=29), timedelta(seconds=31), 3 * MINUTE, 120 * MINUTE)
REPORTED = (
    FailureClass.JOB_ERROR,
    FailureClass.USER_ERROR,
    FailureClass.OUT_OF_MEMORY,
    FailureClass.INFRASTRUCTURE,
    FailureClass.TIMEOUT,
)


class Life(LifeBase):
    submitted: Bundle[JobId] = Bundle("submitted")
    claims: Bundle[Claim] = Bundle("claims")

    @rule(
        target=submitted,
        priority=st.integers(-2, 2),
        max_attempts=st.integers(1, 3),
        delay=st.sampled_from([None, None, MINUTE, 60 * MINUTE]),
        timeout=st.sampled_from([None, MINUTE]),
    )
    def submit(
        self, priority: int, max_attempts: int, delay: timedelta | None, timeout: timedelta | None
    ) -> JobId:
        new = self.new(priority=priority, max_attempts=max_attempts, delay=delay, timeout=timeout)
        answer = submit_job(self.services, new)
        assert answer.created
        due, state = self.model.now + (delay or timedelta(0)), "scheduled" if delay else "pending"
        self.sent[answer.job_id] = new
        self.model.jobs[answer.job_id] = ModelJob(priority, max_attempts, timeout, due, state)
        return answer.job_id

    @rule(job_id=submitted)
    def submit_again(self, job_id: JobId) -> None:
        assert not submit_job(self.services, self.sent[job_id]).created

    @rule(target=claims, number=st.integers(0, 1))
    def claim(self, number: int) -> Claim | MultipleResults[Claim]:
        worker = self.workers[number]
        expected = set[JobId]() if self.model.busy(worker) else self.model.next_in_line()
        claim = claim_job(self.services, worker)
        if claim is None:
            assert not expected
            return multiple()
        assert claim.key.job_id in expected
        job = self.model.jobs[claim.key.job_id]
        job.claim(worker, self.model.now)
        assert (claim.key.token, claim.attempt) == (job.token, job.attempts)
        return claim

    @rule(claim=claims)
    def start(self, claim: Claim) -> None:
        job = self.said(claim, lambda: start_job(self.services, claim.key))
        if job is not None and job.state == "claimed":
            job.step("running")
            job.deadline = self.model.now + job.timeout if job.timeout else None

    @rule(claim=claims)
    def heartbeat(self, claim: Claim) -> None:
        job = self.said(claim, lambda: beat(self.services, claim.worker_id, claim.key))
        if job is not None:
            job.expires = self.model.now + CLAIM_TTL
            assert beat(self.services, claim.worker_id, claim.key).cancel == job.cancel

    @rule(claim=claims)
    def progress(self, claim: Claim) -> None:
        job = self.said(claim, lambda: report_progress(self.services, claim.key, 0.5))
        if job is not None:
            job.expires = self.model.now + CLAIM_TTL

    @rule(claim=claims)
    def complete(self, claim: Claim) -> None:
        job = self.model.jobs[claim.key.job_id]
        if job.state == "done" and job.token == claim.key.token:
            assert complete_job(self.services, claim.key) is Finish.DONE
            return
        if self.said(claim, lambda: self._finishes(claim, Finish.CANCELLED if job.cancel else Finish.DONE)):
            if job.cancel:
                job.end(FailureClass.INTERRUPTED, self.model.now)
            else:
                job.step("done")

    @rule(claim=claims, kind=st.sampled_from(REPORTED))
    def fail(self, claim: Claim, kind: FailureClass) -> None:
        job = self.said(claim, lambda: fail_job(self.services, claim.key, Failure(kind=kind, error="why")))
        if job is not None:
            job.end(kind, self.model.now)
            self.look_up_retry(claim.key.job_id)

    @rule(claim=claims)
    def release(self, claim: Claim) -> None:
        job = self.said(claim, lambda: release_job(self.services, claim.key, "drained"))
        if job is not None:
            job.end(FailureClass.INTERRUPTED, self.model.now)

    @rule(job_id=submitted)
    def cancel(self, job_id: JobId) -> None:
        job = self.model.jobs[job_id]
        if job.state in HELD and not job.cancel:
            job.cancelled_at = self.model.now
            job.step(job.state)
        elif job.state not in (*ENDS, *HELD):
            job.step("cancelled")
        assert cancel_job(self.services, job_id) == job.state

    @rule(job_id=submitted)
    def requeue(self, job_id: JobId) -> None:
        job = self.model.jobs[job_id]
        if job.state in ENDS:
            requeue_job(self.services, job_id)
            job.requeue(self.model.now)
        else:
            with pytest.raises(InvalidRequest):
                requeue_job(self.services, job_id)

    @rule()
    def expire(self) -> None:
        overdue = self.model.overdue()
        assert expire_claims(self.services) == len(overdue)
        for job_id, kind in overdue.items():
            self.model.jobs[job_id].end(kind, self.model.now)
            self.look_up_retry(job_id)

    @rule()
    def stage(self) -> None:
        due = self.model.due()
        assert stage_due_jobs(self.services) == len(due)
        for job in due:
            job.step("pending")

    @rule(by=st.sampled_from(WAITS))
    def wait(self, by: timedelta) -> None:
        self.clock.advance(by)
        self.model.now += by

    @rule(statements=st.integers(0, 4), choice=st.integers(0, 100))
    def lose_power(self, statements: int, choice: int) -> None:
        """Nothing of the transaction remains; the model has nothing to note."""
        commands = self.commands()
        with self.fuse.blown_after(statements):
            commands[choice % len(commands)]()

    def _finishes(self, claim: Claim, expected: Finish) -> None:
        assert complete_job(self.services, claim.key) is expected
