"""A small world behind the API: jobs in every state, a worker with claims, tokens that may be lost."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from herdsman.access.commands import admit_worker, create_bootstrap
from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.ids import JobId, PoolId, WorkerId
from herdsman.jobs.assign import claim_for
from herdsman.jobs.commands import cancel_job, put_checkpoint
from herdsman.jobs.model import ClaimKey
from herdsman.jobs.protocol import ClaimRequest
from herdsman.jobs.worker_commands import complete_job, fail_job, start_job
from tests.api.conftest import BY_HAND, Tokens, bearer
from tests.support.builders import BROKEN, HOPELESS, a_job, a_worker

KIND = "demo"
HELD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    headers: dict[str, str]
    worker_id: str
    keys: Sequence[ClaimKey]
    """Of every job that was ever claimed, and with token 0 those of the others."""
    token_id: str


def a_world(services: Services, tokens: Tokens, role: Role | None, number: int) -> World:
    pool, worker = PoolId(f"pool-{number}"), f"w-{number}"
    a_worker(services, worker, pool=pool)
    keys = _jobs(services, WorkerId(worker), pool, agent=f"agent-{number}")
    spare = tokens.of(Role.VIEWER, f"spare-{number}").token.id
    return World(
        headers=_header(services, tokens, role, worker, number),
        worker_id=worker,
        keys=keys,
        token_id=spare,
    )


def _header(services: Services, tokens: Tokens, role: Role | None, worker: str, number: int) -> dict[str, str]:
    match role:
        case None:
            return {}
        case Role.WORKER:
            named = admit_worker(services, tokens.keyring, BY_HAND, WorkerId(worker), "first-life")
            return bearer(named.secret)
        case Role.BOOTSTRAP:
            pool = PoolId(f"pool-{number}")
            return bearer(create_bootstrap(services, tokens.keyring, WorkerId(worker), pool).secret)
        case _:
            return tokens.header(role, f"agent-{number}")


def _jobs(services: Services, worker: WorkerId, pool: PoolId, agent: str) -> list[ClaimKey]:
    """The worker holds several at once: some that it has begun, and some that it has ended."""
    given: dict[str, Any] = {"type": KIND, "pool": pool, "agent": agent}
    for _ in range(HELD + 3):
        a_job(services, **given)
    held = claim_for(services, {worker: ClaimRequest(most={KIND: HELD + 3})})
    done, dead, failed, *rest = [claim.key for claim in held]
    complete_job(services, done, {"ok": True})
    fail_job(services, dead, HOPELESS)
    fail_job(services, failed, BROKEN)
    for key in rest[: HELD // 2]:
        start_job(services, key)
        put_checkpoint(services, key, {"step": 1})
    free = [
        a_job(services, **given, tags=("a", "b")),
        a_job(services, **given, delay=timedelta(hours=1)),
        _cancelled(services, given),
    ]
    return [*rest, done, dead, failed, *(ClaimKey(job_id, 0) for job_id in free)]


def _cancelled(services: Services, given: dict[str, Any]) -> JobId:
    job_id = a_job(services, **given)
    cancel_job(services, job_id)
    return job_id
