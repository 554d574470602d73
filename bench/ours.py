"""Herdsman as a contender: its commands, called as the API calls them."""

from collections.abc import Sequence

from bench.work import KIND, PAYLOAD, RESULT, WORKERS
from herdsman.control.commands import (
    claim_job,
    claim_jobs,
    complete_job,
    complete_jobs,
    move_worker,
    register_worker,
    submit_job,
    submit_jobs,
)
from herdsman.control.services import Services
from herdsman.core.model import ClaimKey, NewJob
from herdsman.core.reasons import Reason
from herdsman.core.states import WorkerState


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
