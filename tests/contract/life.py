"""Random lives of jobs: every rule does a thing to the real store and to the model, and the two must agree."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, invariant, multiple, rule

from herdsman.control.commands import (
    beat,
    cancel_job,
    claim_job,
    complete_job,
    expire_claims,
    fail_job,
    find_job,
    release_job,
    report_progress,
    requeue_job,
    stage_due_jobs,
    start_job,
    submit_job,
)
from herdsman.control.commands.finish import Finish
from herdsman.control.services import Services
from herdsman.core.errors import InvalidRequest, StaleWrite
from herdsman.core.model import Claim, ClaimKey, Failure, JobId, NewJob, PoolId
from herdsman.core.retry import FailureClass
from tests.builders import a_worker
from tests.contract.life_model import CLAIM_TTL, ENDS, HELD, Model, ModelJob
from tests.contract.life_seen import check_records, seen_jobs
from tests.databases import MovingClock
from tests.fuse import Fuse

T = TypeVar("T")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
EXAMPLES = count()
WAITS = (timedelta(seconds=1), timedelta(seconds=29), timedelta(seconds=31), 3 * MINUTE, 120 * MINUTE)
REPORTED = (
    FailureClass.JOB_ERROR,
    FailureClass.USER_ERROR,
    FailureClass.OUT_OF_MEMORY,
    FailureClass.INFRASTRUCTURE,
    FailureClass.TIMEOUT,
)


class Life(RuleBasedStateMachine):
    submitted: Bundle[JobId] = Bundle("submitted")
    claims: Bundle[Claim] = Bundle("claims")

    def __init__(self, services: Services, clock: MovingClock, fuse: Fuse) -> None:
        super().__init__()
        self.services, self.clock, self.fuse = services, clock, fuse
        self.clock.stop(at=NOON)
        self.model = Model(NOON)
        self.name = f"example-{next(EXAMPLES)}"
        self.sent: dict[JobId, NewJob] = {}
        self.workers = [a_worker(services, f"{self.name}-{number}", pool=self.name) for number in range(2)]

    def teardown(self) -> None:
        """Nothing is left that a sweep of the next example would find."""
        for job_id, job in self.model.jobs.items():
            cancel_job(self.services, job_id)
            if job.state in HELD:
                release_job(self.services, ClaimKey(job_id, job.token), "the example is over")

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
        new = self._new(priority=priority, max_attempts=max_attempts, delay=delay, timeout=timeout)
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
        job = self._said(claim, lambda: start_job(self.services, claim.key))
        if job is not None and job.state == "claimed":
            job.step("running")
            job.deadline = self.model.now + job.timeout if job.timeout else None

    @rule(claim=claims)
    def heartbeat(self, claim: Claim) -> None:
        job = self._said(claim, lambda: beat(self.services, claim.worker_id, claim.key))
        if job is not None:
            job.expires = self.model.now + CLAIM_TTL
            assert beat(self.services, claim.worker_id, claim.key).cancel == job.cancel

    @rule(claim=claims)
    def progress(self, claim: Claim) -> None:
        job = self._said(claim, lambda: report_progress(self.services, claim.key, 0.5))
        if job is not None:
            job.expires = self.model.now + CLAIM_TTL

    @rule(claim=claims)
    def complete(self, claim: Claim) -> None:
        job = self.model.jobs[claim.key.job_id]
        if job.state == "done" and job.token == claim.key.token:
            assert complete_job(self.services, claim.key) is Finish.DONE
            return
        if self._said(claim, lambda: self._finishes(claim, Finish.CANCELLED if job.cancel else Finish.DONE)):
            if job.cancel:
                job.end(FailureClass.INTERRUPTED, self.model.now)
            else:
                job.step("done")

    @rule(claim=claims, kind=st.sampled_from(REPORTED))
    def fail(self, claim: Claim, kind: FailureClass) -> None:
        job = self._said(claim, lambda: fail_job(self.services, claim.key, Failure(kind=kind, error="why")))
        if job is not None:
            job.end(kind, self.model.now)
            self._look_up_retry(claim.key.job_id)

    @rule(claim=claims)
    def release(self, claim: Claim) -> None:
        job = self._said(claim, lambda: release_job(self.services, claim.key, "drained"))
        if job is not None:
            job.end(FailureClass.INTERRUPTED, self.model.now)

    @rule(job_id=submitted)
    def cancel(self, job_id: JobId) -> None:
        job = self.model.jobs[job_id]
        if job.state in HELD and not job.cancel:
            job.cancel = True
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
            self._look_up_retry(job_id)

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
        commands = self._commands()
        with self.fuse.blown_after(statements):
            commands[choice % len(commands)]()

    @invariant()
    def agrees(self) -> None:
        assert seen_jobs(self.services.database, self.name) == {
            job_id: (job.state, job.token, job.attempts, job.interruptions, job.losses, job.cancel, job.worker)
            for job_id, job in self.model.jobs.items()
        }
        check_records(self.services.database, self.model)

    def _new(self, **wanted: object) -> NewJob:
        job_id = JobId(f"{self.name}-{len(self.sent)}")
        usual = {"type": "demo", "job_id": job_id, "agent": self.name, "pool": PoolId(self.name)}
        return NewJob(**usual, **wanted)

    def _said(self, claim: Claim, word: Callable[[], object]) -> ModelJob | None:
        """The job if the claim holds it; else the word must be refused (J3)."""
        job = self.model.holder_of(claim.key)
        if job is None:
            with pytest.raises(StaleWrite):
                word()
        else:
            word()
        return job

    def _finishes(self, claim: Claim, expected: Finish) -> None:
        assert complete_job(self.services, claim.key) is expected

    def _look_up_retry(self, job_id: JobId) -> None:
        """J8: between the backoff and one and a half times that"""
        job = self.model.jobs[job_id]
        if job.state == "failed":
            job.queue_up(find_job(self.services, job_id).run_at)
            plain = min(timedelta(minutes=5), timedelta(seconds=5) * 2 ** (job.attempts - job.interruptions - 1))
            assert plain <= job.due - self.model.now <= plain * 1.5

    def _commands(self) -> list[Callable[[], object]]:
        """Commands that would succeed now if the power held."""
        jobs = self.model.jobs
        held = [ClaimKey(job_id, job.token) for job_id, job in jobs.items() if job.state in HELD]
        ended = [job_id for job_id, job in jobs.items() if job.state in ENDS]
        broken = Failure(kind=FailureClass.JOB_ERROR, error="why")
        return [
            lambda: submit_job(self.services, self._new(tags=("a", "b"))),
            lambda: claim_job(self.services, self.workers[0]),
            lambda: expire_claims(self.services),
            lambda: stage_due_jobs(self.services),
            *(lambda key=key: complete_job(self.services, key) for key in held),
            *(lambda key=key: fail_job(self.services, key, broken) for key in held),
            *(lambda job_id=job_id: cancel_job(self.services, job_id) for job_id in jobs),
            *(lambda job_id=job_id: requeue_job(self.services, job_id) for job_id in ended),
        ]
