"""Random lives of jobs: every rule does a thing to the real store and to the model, and the two must agree."""

from datetime import timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from herdsman.errors import InvalidRequest
from herdsman.ids import JobId
from herdsman.jobs.commands import cancel_job, requeue_job, submit_job
from herdsman.jobs.model import Claim, Failure, FailureClass
from herdsman.jobs.sweep import expire_claims, stage_due_jobs
from herdsman.jobs.worker_commands import (
    Finish,
    complete_job,
    fail_job,
    mark_service,
    release_job,
    report_progress,
    start_job,
)
from tests.contract.life_base import SAVED, LifeBase, a_mark
from tests.contract.life_model import CLAIM_TTL, ENDS, HELD, ModelJob
from tests.support.worker_calls import beat, claim_job

MINUTE = timedelta(minutes=1)
WAITS = (timedelta(seconds=1), timedelta(seconds=29), timedelta(seconds=31), 3 * MINUTE, 120 * MINUTE)
REPORTED = (
    FailureClass.JOB_ERROR,
    FailureClass.JOB_ERROR,
    FailureClass.USER_ERROR,
    FailureClass.OUT_OF_MEMORY,
    FailureClass.INFRASTRUCTURE,
    FailureClass.TIMEOUT,
)
CHOICES = st.integers(0, 99)
# One word in four is said by a worker that may have lost its claim long ago.
LATE = st.sampled_from([False, False, False, True])


def somebody_has_claimed(life: LifeBase) -> bool:
    return bool(life.claims)


def few_jobs_wait(life: LifeBase) -> bool:
    """A few long lives tell more than many short ones."""
    return len(life.model.next_in_line()) < 2


def somebody_works(life: LifeBase) -> bool:
    return any(life.model.busy(worker) for worker in life.workers)


class Life(LifeBase):
    @initialize()
    def begin(self) -> None:
        for max_attempts in (2, 3):
            self.submit(priority=0, max_attempts=max_attempts, delay=None, timeout=None)

    @precondition(few_jobs_wait)
    @rule(
        priority=st.integers(-2, 2),
        max_attempts=st.integers(1, 3),
        delay=st.sampled_from([None, None, None, MINUTE]),
        timeout=st.sampled_from([None, MINUTE]),
    )
    def submit(self, priority: int, max_attempts: int, delay: timedelta | None, timeout: timedelta | None) -> None:
        new = self.new(priority=priority, max_attempts=max_attempts, delay=delay, timeout=timeout)
        answer = submit_job(self.services, new)
        assert answer.created
        due, status = self.model.now + (delay or timedelta(0)), "scheduled" if delay else "pending"
        self.sent[answer.job_id] = new
        self.model.jobs[answer.job_id] = ModelJob(priority, max_attempts, timeout, due, status)

    @rule(choice=CHOICES)
    def submit_again(self, choice: int) -> None:
        assert not submit_job(self.services, self.sent[self.a_job(choice)]).created

    @rule(choice=CHOICES)
    def claim(self, choice: int) -> None:
        worker = self.workers[choice % len(self.workers)]
        expected = set[JobId]() if self.model.busy(worker) else self.model.next_in_line()
        claim = claim_job(self.services, worker)
        if claim is None:
            assert not expected
            return
        assert claim.key.job_id in expected
        job = self.model.jobs[claim.key.job_id]
        job.claim(worker, self.model.now)
        assert (claim.key.token, claim.attempt) == (job.token, job.attempts)
        assert claim.service_job_id == job.service, "where an earlier claim left it"
        self.claims.append(claim)

    @precondition(somebody_has_claimed)
    @rule(choice=CHOICES, late=LATE)
    def start(self, choice: int, late: bool) -> None:
        claim = self.a_claim(choice, late)
        job = self.said(claim, lambda: start_job(self.services, claim.key))
        if job is not None and job.status == "claimed":
            job.step("running")
            job.deadline = self.model.now + job.timeout if job.timeout else None

    @precondition(somebody_has_claimed)
    @rule(choice=CHOICES, late=LATE)
    def live(self, choice: int, late: bool) -> None:
        claim = self.a_claim(choice, late)
        job = self.said(claim, lambda: beat(self.services, claim.worker_id, claim.key))
        if job is not None:
            job.expires = self.model.now + CLAIM_TTL
            assert beat(self.services, claim.worker_id, claim.key).cancel == job.cancel
        self.said(claim, lambda: report_progress(self.services, claim.key, 0.5))

    @precondition(somebody_has_claimed)
    @rule(choice=CHOICES, late=LATE)
    def submit_to_a_service(self, choice: int, late: bool) -> None:
        claim = self.a_claim(choice, late)
        mark = a_mark(claim.key)
        job = self.said(claim, lambda: mark_service(self.services, claim.key, mark))
        if job is not None:
            job.service = mark.external_id

    @precondition(somebody_works)
    @rule(times=st.integers(1, 8), sweeps=st.booleans())
    def work_on(self, times: int, sweeps: bool) -> None:
        """Every worker beats in time, for as long as that is allowed."""
        for _ in range(times):
            self.wait(CLAIM_TTL - timedelta(seconds=1), sweeps=sweeps)
            for claim in [claim for claim in self.claims if self.model.holder_of(claim.key)]:
                self.live(self.claims.index(claim), late=True)

    @precondition(somebody_has_claimed)
    @rule(choice=CHOICES, late=LATE, recovered=LATE)
    def complete(self, choice: int, late: bool, recovered: bool) -> None:
        claim = self.a_claim(choice, late)
        job = self.model.jobs[claim.key.job_id]
        if job.status == "done" and job.token == claim.key.token:
            assert complete_job(self.services, claim.key) is Finish.DONE
        elif self.said(claim, lambda: self._finishes(claim, job, recovered)) and job.cancel:
            job.end(FailureClass.INTERRUPTED, self.model.now)
        elif self.model.holder_of(claim.key):
            job.finish(recovered=recovered)

    @precondition(somebody_has_claimed)
    @rule(choice=CHOICES, late=LATE, kind=st.sampled_from(REPORTED))
    def fail(self, choice: int, late: bool, kind: FailureClass) -> None:
        claim = self.a_claim(choice, late)
        job = self.said(claim, lambda: fail_job(self.services, claim.key, Failure(kind=kind, error="why")))
        if job is not None:
            job.end(kind, self.model.now)
            self.look_up_retry(claim.key.job_id)

    @precondition(somebody_has_claimed)
    @rule(choice=CHOICES, late=LATE)
    def release(self, choice: int, late: bool) -> None:
        claim = self.a_claim(choice, late)
        job = self.said(claim, lambda: release_job(self.services, claim.key, "drained"))
        if job is not None:
            job.end(FailureClass.INTERRUPTED, self.model.now)

    @precondition(somebody_works)
    @rule(choice=CHOICES)
    def cancel(self, choice: int) -> None:
        job_id = self.a_job(choice)
        job = self.model.jobs[job_id]
        if job.status in HELD and not job.cancel:
            job.cancelled_at = self.model.now
            job.step(job.status)
        elif job.status not in (*ENDS, *HELD):
            job.step("cancelled")
        assert cancel_job(self.services, job_id) == job.status

    @rule(choice=CHOICES, late=LATE)
    def requeue(self, choice: int, late: bool) -> None:
        job_id = self.a_job(choice) if late else self.an_ended_job(choice)
        job = self.model.jobs[job_id]
        if job.status in ENDS:
            requeue_job(self.services, job_id)
            job.requeue(self.model.now)
        else:
            with pytest.raises(InvalidRequest):
                requeue_job(self.services, job_id)

    @rule(by=st.sampled_from(WAITS), sweeps=st.booleans())
    def wait(self, by: timedelta, sweeps: bool) -> None:
        self.clock.advance(by)
        self.model.now += by
        if sweeps:
            self._expire()
            self._stage()

    @rule(statements=st.integers(0, 4), choice=CHOICES)
    def lose_power(self, statements: int, choice: int) -> None:
        """Nothing of the transaction remains; the model has nothing to note."""
        commands = self.commands()
        with self.fuse.blown_after(statements):
            commands[choice % len(commands)]()

    def _finishes(self, claim: Claim, job: ModelJob, recovered: bool) -> None:
        expected = Finish.CANCELLED if job.cancel else Finish.DONE
        saved = SAVED if recovered else None
        assert complete_job(self.services, claim.key, saved=saved) is expected

    def _expire(self) -> None:
        overdue = self.model.overdue()
        assert expire_claims(self.services) == len(overdue)
        for job_id, kind in overdue.items():
            self.model.jobs[job_id].end(kind, self.model.now)
            self.look_up_retry(job_id)

    def _stage(self) -> None:
        due = self.model.due()
        assert stage_due_jobs(self.services) == len(due)
        for job in due:
            job.step("pending")
