"""Herdsman as a contender: its commands, called as the API calls them."""

from collections.abc import Sequence

from bench.work import KIND, PAYLOAD, RESULT, WORKERS
from herdsman.context import Services
from herdsman.fleet.commands import move_worker, register_worker
from herdsman.jobs.assign import claim_for
from herdsman.jobs.commands import submit_job, submit_jobs
from herdsman.jobs.model import ClaimKey, NewJob
from herdsman.jobs.protocol import ClaimRequest, Done
from herdsman.jobs.worker_commands import complete_all, complete_job
from herdsman.states import Reason, WorkerStatus


class Ours:
    def __init__(self, services: Services) -> None:
        self._services = services

    def submit(self, count: int) -> None:
        if count == 1:
            submit_job(self._services, NewJob(type=KIND, payload=PAYLOAD))
        else:
            submit_jobs(self._services, [NewJob(type=KIND, payload=PAYLOAD) for _ in range(count)])

    def claim(self, count: int) -> Sequence[ClaimKey]:
        claims = claim_for(self._services, dict.fromkeys(WORKERS[:count], ClaimRequest()))
        return [claim.key for claim in claims]

    def complete(self, claims: Sequence[ClaimKey]) -> None:
        if len(claims) == 1:
            complete_job(self._services, claims[0], RESULT)
        else:
            done = [(Done(key, RESULT), "worker", None) for key in claims]
            self._services.database.transact(lambda tx: complete_all(tx, self._services, done))


def enlist(services: Services) -> None:
    for worker_id in WORKERS:
        register_worker(services, worker_id)
        move_worker(services, worker_id, WorkerStatus.ACTIVE, Reason.READY)
