"""What the random lives stand on: the store, the model beside it, and what must hold after every step."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant

from herdsman.context import Services
from herdsman.errors import StaleWrite
from herdsman.ids import JobId, PoolId
from herdsman.jobs.commands import cancel_job, find_job, requeue_job, submit_job
from herdsman.jobs.model import Claim, ClaimKey, Failure, FailureClass, NewJob
from herdsman.jobs.protocol import MarkStatus, ServiceMark
from herdsman.jobs.sweep import expire_claims, stage_due_jobs
from herdsman.jobs.worker_commands import complete_job, fail_job, mark_service, release_job
from tests.contract.life_model import ENDS, HELD, Model, ModelJob
from tests.contract.life_seen import check_records, seen_jobs
from tests.support.builders import a_worker
from tests.support.databases import NOON, MovingClock
from tests.support.power_cut import Fuse
from tests.support.worker_calls import claim_job

EXAMPLES = count()
SAVED = timedelta(seconds=4)


def a_mark(key: ClaimKey) -> ServiceMark:
    return ServiceMark(external_id=f"{key.job_id}.{key.token}", status=MarkStatus.SUBMITTED)


class LifeBase(RuleBasedStateMachine):
    def __init__(self, services: Services, clock: MovingClock, fuse: Fuse) -> None:
        super().__init__()
        self.services, self.clock, self.fuse = services, clock, fuse
        self.clock.stop(at=NOON)
        self.model = Model(NOON)
        self.name = f"example-{next(EXAMPLES)}"
        self.sent: dict[JobId, NewJob] = {}
        self.claims: list[Claim] = []
        self.workers = [a_worker(services, f"{self.name}-{number}", pool=self.name) for number in range(2)]

    def teardown(self) -> None:
        """Nothing is left that a sweep of the next example would find."""
        for job_id, job in self.model.jobs.items():
            cancel_job(self.services, job_id)
            if job.status in HELD:
                release_job(self.services, ClaimKey(job_id, job.token), "the example is over")

    @invariant()
    def agrees(self) -> None:
        assert seen_jobs(self.services.database, self.name) == {
            job_id: (
                job.status,
                job.token,
                job.attempts,
                job.interruptions,
                job.losses,
                job.cancel,
                job.worker,
                job.service,
                job.recovered,
            )
            for job_id, job in self.model.jobs.items()
        }
        check_records(self.services.database, self.model)

    def new(self, **wanted: Any) -> NewJob:
        job_id = JobId(f"{self.name}-{len(self.sent)}")
        usual: dict[str, Any] = {
            "type": "demo",
            "job_id": job_id,
            "agent": self.name,
            "pool": PoolId(self.name),
        }
        return NewJob(**usual, **wanted)

    def a_job(self, choice: int) -> JobId:
        return list(self.model.jobs)[choice % len(self.model.jobs)]

    def an_ended_job(self, choice: int) -> JobId:
        """Any, where none has ended."""
        ended = [job_id for job_id, job in self.model.jobs.items() if job.status in ENDS]
        return ended[choice % len(ended)] if ended else self.a_job(choice)

    def a_claim(self, choice: int, late: bool) -> Claim:
        """One that holds its job; a late one, or any where none does, may have lost it."""
        good = [claim for claim in self.claims if self.model.holder_of(claim.key)]
        chosen = good if good and not late else self.claims
        return chosen[choice % len(chosen)]

    def said(self, claim: Claim, word: Callable[[], object]) -> ModelJob | None:
        """The job if the claim holds it; else the word must be refused (J3)."""
        job = self.model.holder_of(claim.key)
        if job is None:
            with pytest.raises(StaleWrite):
                word()
        else:
            word()
        return job

    def look_up_retry(self, job_id: JobId) -> None:
        """J8: between the backoff and one and a half times that"""
        job = self.model.jobs[job_id]
        if job.status == "failed":
            job.queue_up(find_job(self.services, job_id).run_at)
            plain = min(timedelta(minutes=5), timedelta(seconds=5) * 2 ** (job.attempts - job.interruptions - 1))
            assert plain <= job.due - self.model.now <= plain * 1.5

    def commands(self) -> list[Callable[[], object]]:
        """Commands that would succeed now if the power held."""
        jobs = self.model.jobs
        held = [ClaimKey(job_id, job.token) for job_id, job in jobs.items() if job.status in HELD]
        ended = [job_id for job_id, job in jobs.items() if job.status in ENDS]
        broken = Failure(kind=FailureClass.JOB_ERROR, error="why")
        return [
            lambda: submit_job(self.services, self.new(tags=("a", "b"))),
            lambda: claim_job(self.services, self.workers[0]),
            lambda: expire_claims(self.services),
            lambda: stage_due_jobs(self.services),
            *(lambda key=key: complete_job(self.services, key) for key in held),
            *(lambda key=key: complete_job(self.services, key, saved=SAVED) for key in held),
            *(lambda key=key: mark_service(self.services, key, a_mark(key)) for key in held),
            *(lambda key=key: fail_job(self.services, key, broken) for key in held),
            *(lambda job_id=job_id: cancel_job(self.services, job_id) for job_id in jobs),
            *(lambda job_id=job_id: requeue_job(self.services, job_id) for job_id in ended),
        ]
