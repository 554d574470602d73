"""Carries a plan out. Every write is fenced by the leader's epoch, and every outside call follows a written one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

from herdsman.control.commands.finish import end_claim
from herdsman.control.leadership import Leadership
from herdsman.control.services import Services
from herdsman.control.spawn import Spawner
from herdsman.core.actions import (
    Action,
    AttachInstance,
    BuryWorker,
    DrainWorker,
    EndInstance,
    EndStray,
    FailWorker,
    Note,
    PromoteWorker,
    ReturnJob,
    SpawnWorker,
)
from herdsman.core.errors import ProviderRejected, ProviderUnavailable, StaleWrite
from herdsman.core.fleet import Snapshot, Unseen
from herdsman.core.model import Failure, PoolId
from herdsman.core.policy import FleetPolicy
from herdsman.core.retry import FailureClass
from herdsman.ports import Provider
from herdsman.store import fleet, workers
from herdsman.store.database import Tx

LOG_LINES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    services: Services
    provider: Provider
    leadership: Leadership
    spawner: Spawner
    pools: Mapping[PoolId, FleetPolicy]

    def act(self, action: Action, seen: Snapshot, epoch: int) -> str:
        """What is to be known about it afterwards; an error when it was not done."""
        match action:
            case PromoteWorker(worker_id, why):
                return self._write(epoch, lambda tx: fleet.promote(tx, worker_id, why))
            case FailWorker():
                return self._fail(action, seen, epoch)
            case ReturnJob():
                return self._return_job(action, epoch)
            case DrainWorker(worker_id):
                return self._write(epoch, lambda tx: _drain_free(tx, worker_id))
            case EndInstance(worker_id, ref):
                self._write(epoch, lambda tx: fleet.end_asked(tx, worker_id))
                self.provider.terminate(ref)
                return ""
            case BuryWorker():
                return self._bury(action, seen, epoch)
            case SpawnWorker(pool):
                return self.spawner.spawn(pool, self.pools[pool], epoch)
            case AttachInstance():
                return self._attach(action, seen, epoch)
            case EndStray(ref):
                self._write(epoch, lambda _tx: None)  # only who leads may end what belongs to nobody
                self.provider.terminate(ref)
                return ""
            case Note():
                return ""
            case _:
                assert_never(action)

    def _write(self, epoch: int, change: Callable[[Tx], None]) -> str:
        def fenced(tx: Tx) -> None:
            self.leadership.fence(tx, epoch)
            change(tx)

        self.services.database.transact(fenced)
        return ""

    def _fail(self, action: FailWorker, seen: Snapshot, epoch: int) -> str:
        """What can still be learnt from the machine is kept before it is ended."""
        worker = next(each for each in seen.workers if each.id == action.worker_id)
        lines = self._logs(worker.instance_ref) if worker.instance_ref else []
        diagnostics = {
            "last_heartbeat": str(worker.last_heartbeat),
            "job": worker.job.key.job_id if worker.job else None,
            "numbers": dict(action.why.numbers),
            "log": lines,
        }

        def change(tx: Tx) -> None:
            fleet.fail(tx, action.worker_id, action.why)
            fleet.note(tx, action.worker_id, {"diagnostics": diagnostics})

        return self._write(epoch, change)

    def _logs(self, ref: fleet.InstanceRef) -> list[str]:
        try:
            return list(self.provider.logs(ref, LOG_LINES))
        except (ProviderUnavailable, ProviderRejected) as error:
            return [f"no log could be had: {error}"]

    def _return_job(self, action: ReturnJob, epoch: int) -> str:
        failure = Failure(kind=FailureClass.WORKER_LOST, error=f"its worker was lost: {action.why.text}")
        return self._write(
            epoch, lambda tx: _ignore(end_claim(tx, self.services, action.key, failure, fleet.LEADER))
        )

    def _bury(self, action: BuryWorker, seen: Snapshot, epoch: int) -> str:
        """P5: absent from listings, and the provider says so when asked for this very one."""
        worker = next(each for each in seen.workers if each.id == action.worker_id)
        if worker.instance_ref is not None and self.provider.find(worker.instance_ref) is not None:
            raise StaleWrite(f"instance {worker.instance_ref} is missing from listings and yet there")
        return self._write(epoch, lambda tx: fleet.bury(tx, action.worker_id))

    def _attach(self, action: AttachInstance, seen: Snapshot, epoch: int) -> str:
        assert not isinstance(seen.instances, Unseen), "an instance was found without looking"
        found = next(each for each in seen.instances if each.ref == action.ref)
        return self._write(epoch, lambda tx: fleet.attach(tx, action.worker_id, found))


def _drain_free(tx: Tx, worker_id: workers.WorkerId) -> None:
    """P8: the worker's row is locked as a claim would lock it, so it cannot get a job in between."""
    if not workers.lock_free(tx, worker_id):
        raise StaleWrite(f"worker {worker_id} has got a job meanwhile")
    fleet.drain(tx, worker_id)


def _ignore(_result: object) -> None:
    return None
