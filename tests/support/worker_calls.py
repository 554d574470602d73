"""What one worker asks for and reports, in one call each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from herdsman.context import Services
from herdsman.errors import HerdsmanError, NotFound, StaleWrite
from herdsman.fleet.model import GpuReport
from herdsman.ids import WorkerId
from herdsman.jobs.assign import claim_for
from herdsman.jobs.model import Claim, ClaimKey
from herdsman.jobs.protocol import ClaimRequest, Done, WorkerHeartbeat
from herdsman.jobs.worker_commands import Finish, complete_all, record_heartbeat


def claim_job(services: Services, worker_id: WorkerId, types: Sequence[str] = ()) -> Claim | None:
    """The next job of the worker's pool; nothing when it is not active or already has one."""
    found = claim_jobs(services, [worker_id], types)
    return found[0] if found else None


def claim_jobs(services: Services, worker_ids: Sequence[WorkerId], types: Sequence[str] = ()) -> list[Claim]:
    """One job for each worker that is active and free, as far as there are jobs in its pool."""
    return claim_for(services, {worker_id: ClaimRequest(types=tuple(types)) for worker_id in worker_ids})


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """The reply to the heartbeat of a worker with one job or none."""

    expires_at: datetime
    cancel: bool
    drain: bool


def beat(services: Services, worker_id: WorkerId, key: ClaimKey | None = None, report: GpuReport | None = None) -> Beat:
    """The heartbeat of a worker with one job or none; a claim that is another's by now is `StaleWrite`."""
    heartbeat = WorkerHeartbeat(keys=() if key is None else (key,), report=report)
    reply = record_heartbeat(services, worker_id, heartbeat)
    for refused in reply.lost.values():
        raise NotFound(refused) if refused.startswith("there is no job") else StaleWrite(refused)
    return Beat(expires_at=reply.expires_at, cancel=bool(reply.cancel), drain=reply.drain)


def complete_jobs(services: Services, results: Mapping[ClaimKey, object]) -> dict[ClaimKey, Finish | HerdsmanError]:
    """Many results in one transaction; one that is refused does not hold up the others."""
    done = [(Done(key, result), "worker", None) for key, result in results.items()]
    return dict(zip(results, services.database.transact(lambda tx: complete_all(tx, services, done)), strict=True))
