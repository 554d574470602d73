"""Herdsman as a contender: its commands, called as the API calls them."""

from collections.abc import Sequence

from bench.work import KIND, PAYLOAD, RESULT, WORKERS
from herdsman.context import Services
from herdsman.fleet.commands import move_worker, register_worker
from herdsman.jobs.assign import claim_job, claim_jobs
from herdsman.jobs.commands import submit_job, submit_jobs
from herdsman.jobs.model import ClaimKey, NewJob
from herdsman.jobs.worker_commands import complete_job, complete_jobs
from herdsman.states import Reason, WorkerState


class Ours:
    def __init__(self, services: Services) -> None:
        self._services = services

    def submit(self, count: int) -> None:
        if count == 1:
            submit_job(self._services, NewJob(type=KIND, payload=PAYLOAD))
        else:
            submit_jobs(self._services, [NewJob(type=KIND, payload=PAYLOAD) for _ in range(count)])

    def claim(self, count: int) -> Sequence[ClaimKey]:
        if count == 1:
            claim = claim_job(self._services, WORKERS[0])
            return [claim.key] if claim else []
        return [claim.key for claim in claim_jobs(self._services, WORKERS[:count])]

    def complete(self, claims: Sequence[ClaimKey]) -> None:
        if len(claims) == 1:
            complete_job(self._services, claims[0], RESULT)
        else:
            complete_jobs(self._services, dict.fromkeys(claims, RESULT))


def enlist(services: Services) -> None:
    for worker_id in WORKERS:
        register_worker(services, worker_id)
        move_worker(services, worker_id, WorkerState.ACTIVE, Reason.READY)
