"""Carries a plan out. Every write is fenced by the leader's epoch, and every outside call follows a written one."""

from collections.abc import Callable
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
    CallOffWorker,
    DrainWorker,
    EndInstance,
    EndStray,
    FailWorker,
    GrowVolume,
    MovePool,
    Note,
    OfferRevision,
    PromoteWorker,
    RetireWorker,
    ReturnJob,
    SpawnWorker,
)
from herdsman.core.errors import ProviderRejected, ProviderUnavailable, StaleWrite
from herdsman.core.findings import Code
from herdsman.core.fleet import Snapshot, Unseen
from herdsman.core.instances import InstanceState
from herdsman.core.model import Failure, PoolId
from herdsman.core.reasons import Reason
from herdsman.core.retry import FailureClass
from herdsman.core.states import PoolState
from herdsman.db.connection import Tx
from herdsman.ports import GrowsVolumes, Provider
from herdsman.store import fleet, models, pool_workers, pools, workers

LOG_LINES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    services: Services
    provider: Provider
    leadership: Leadership
    spawner: Spawner

    def act(self, action: Action, seen: Snapshot, epoch: int) -> str:
        """What is to be known about it afterwards; an error when it was not done."""
        match action:
            case PromoteWorker(worker_id, why):
                return self._write(epoch, lambda tx: fleet.promote(tx, worker_id, why))
            case FailWorker():
                return self._fail(action, seen, epoch)
            case ReturnJob():
                return self._return_job(action, epoch)
            case DrainWorker():
                return self._drain(action, seen, epoch)
            case RetireWorker() | CallOffWorker() | MovePool() | OfferRevision():
                return self._write(epoch, lambda tx: _steer(tx, action))
            case EndInstance(worker_id, ref):
                self._write(epoch, lambda tx: fleet.end_asked(tx, worker_id))
                self.provider.terminate(ref)
                return ""
            case BuryWorker():
                return self._bury(action, seen, epoch)
            case SpawnWorker(pool):
                return self._spawn(pool, seen, epoch)
            case AttachInstance():
                return self._attach(action, seen, epoch)
            case EndStray() | GrowVolume():
                self._write(
                    epoch, lambda _tx: None
                )  # only who leads may end what belongs to nobody, or spend
                return self._at_the_provider(action)
            case Note():
                return ""
            case _:
                assert_never(action)

    def _at_the_provider(self, action: EndStray | GrowVolume) -> str:
        """What is not written down: it stands at the provider, and is seen there."""
        if isinstance(action, EndStray):
            self.provider.terminate(action.ref)
            return ""
        if not isinstance(self.provider, GrowsVolumes):
            return f"{self.provider.name} has no volumes to grow"
        return self.provider.grow_volume(action.ref, seen_gb=action.seen_gb, by_gb=action.by_gb)

    def _write(self, epoch: int, change: Callable[[Tx], None]) -> str:
        def fenced(tx: Tx) -> None:
            self.leadership.fence(tx, epoch)
            change(tx)

        self.services.database.transact(fenced)
        return ""

    def _spawn(self, pool: PoolId, seen: Snapshot, epoch: int) -> str:
        here = next(each for each in seen.pools if each.id == pool)
        together = seen.most_together if here.shares else None
        return self.spawner.spawn(pool, here.policy, epoch, together)

    def _fail(self, action: FailWorker, seen: Snapshot, epoch: int) -> str:
        """What can still be learnt from the machine is kept before it is ended."""
        worker = next(each for each in seen.workers if each.id == action.worker_id)
        if action.why.code is Code.INSTANCE_ENDED and worker.instance_ref is not None:
            self._require_ended(worker.instance_ref)
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

    def _drain(self, action: DrainWorker, seen: Snapshot, epoch: int) -> str:
        if action.why.code is Code.INSTANCE_GONE:
            worker = next(each for each in seen.workers if each.id == action.worker_id)
            assert worker.instance_ref is not None, "what was never named cannot be gone"
            self._require_ended(worker.instance_ref)
        return self._write(epoch, lambda tx: _drain_free(tx, action.worker_id))

    def _require_ended(self, ref: fleet.InstanceRef) -> None:
        """A listing may lack what is there (P7): it is asked for by itself."""
        found = self.provider.find(ref)
        if found is not None and found.state in (InstanceState.STARTING, InstanceState.RUNNING):
            raise StaleWrite(f"instance {ref} is missing from listings and yet {found.state}")

    def _logs(self, ref: fleet.InstanceRef) -> list[str]:
        try:
            return list(self.provider.logs(ref, LOG_LINES))
        except (ProviderUnavailable, ProviderRejected) as error:
            return [f"no log could be had: {error}"]

    def _return_job(self, action: ReturnJob, epoch: int) -> str:
        lost = action.kind is FailureClass.WORKER_LOST
        said = f"its worker was lost: {action.why.text}" if lost else action.why.text
        failure = Failure(kind=action.kind, error=said)
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


MOVED = {
    Code.HOLD_OVER: Reason.HOLD_OVER,
    Code.POOL_SERVED: Reason.SERVED,
    Code.POOL_EMPTY: Reason.EMPTY,
    Code.POOL_WANTED: Reason.STARTED_AGAIN,
}


def _steer(tx: Tx, action: RetireWorker | CallOffWorker | MovePool | OfferRevision) -> None:
    match action:
        case RetireWorker(worker_id):
            fleet.drain(tx, worker_id)
        case CallOffWorker(worker_id, why):
            fleet.call_off(tx, worker_id, why)
        case MovePool():
            _move_pool(tx, action)
        case OfferRevision(worker_id, revision):
            models.offer(tx, worker_id, revision)
        case _:
            assert_never(action)


def _move_pool(tx: Tx, action: MovePool) -> None:
    """One that nobody uses is let go together with its workers, so that no job is given to them meanwhile."""
    pools.lock(tx, action.pool)
    reason = MOVED[action.why.code]
    pools.move(tx, action.pool, action.to, reason, fleet.LEADER)
    if action.to is PoolState.DRAINING:
        pool_workers.let_go(tx, action.pool, reason, fleet.LEADER)
        if pools.in_use(tx, action.pool):
            raise StaleWrite(f"pool {action.pool} is used again")


def _drain_free(tx: Tx, worker_id: workers.WorkerId) -> None:
    """P8: the worker's row is locked as a claim would lock it, so it cannot get a job in between."""
    if not workers.lock_free(tx, worker_id):
        raise StaleWrite(f"worker {worker_id} has got a job meanwhile")
    fleet.drain(tx, worker_id)


def _ignore(_result: object) -> None:
    return None
