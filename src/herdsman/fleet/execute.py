"""Carries out the actions of a plan, each in a transaction that only the leader can commit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from herdsman.access.authenticator import Keyring
from herdsman.access.commands import create_bootstrap
from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.errors import CapacityUnavailable, ProviderRejected, ProviderUnavailable, SpawnUnknown, StaleWrite
from herdsman.fleet import actions, installation_sql, model, sql, stats_sql, workers_sql
from herdsman.fleet.leader import Leadership
from herdsman.fleet.model import FleetPolicy, InstanceStatus, SpawnRequest
from herdsman.fleet.snapshot import ListingFailed, Snapshot, WorkerSnapshot
from herdsman.fleet.sql import Intent
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs.model import Failure, FailureClass
from herdsman.jobs.protocol import to_variables
from herdsman.jobs.worker_commands import lose_claim
from herdsman.pools import sql as pools_sql
from herdsman.ports import GrowsVolumes, Provider
from herdsman.states import PoolStatus, Reason

HOUR = timedelta(hours=1)


LOG_LINES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    services: Services
    provider: Provider
    leadership: Leadership
    new_worker_id: Callable[[], WorkerId]
    name_of: Callable[[str], str]
    """The whole name of an instance, from the part that says who started it and for which worker."""
    environment_of: Callable[[WorkerId, PoolId], Mapping[str, str]]

    def act(self, action: actions.Action, seen: Snapshot, epoch: int) -> str:  # noqa: C901  (one case for each action)
        """What is to be known about it afterwards; an error when it was not done."""
        match action:
            case actions.PromoteWorker(worker_id, reason):
                return self._write(epoch, lambda tx: sql.promote(tx, worker_id, reason))
            case actions.FailWorker():
                return self._fail(action, seen, epoch)
            case actions.RequeueJob(key, _, reason, kind):
                lost = "its worker was lost: " if kind is FailureClass.WORKER_LOST else ""
                failure = Failure(kind=kind, error=f"{lost}{reason.text}")
                return self._write(epoch, lambda tx: lose_claim(tx, self.services, key, failure, sql.LEADER))
            case actions.DrainIdleWorker(worker_id, reason):
                if reason.code is actions.Code.INSTANCE_GONE:
                    ref = _worker(seen, worker_id).instance_ref
                    assert ref is not None, "an instance that was never named cannot be gone"
                    self._require_ended(ref)
                return self._write(epoch, lambda tx: _drain_idle(tx, worker_id))
            case actions.DrainWorker(worker_id):
                return self._write(epoch, lambda tx: sql.drain(tx, worker_id))
            case actions.CancelSpawn(worker_id, reason):
                return self._write(epoch, lambda tx: sql.cancel_spawn(tx, worker_id, reason))
            case actions.MovePool():
                return self._write(epoch, lambda tx: _move_pool(tx, action))
            case actions.AssignModelRevision(worker_id, revision):
                return self._write(epoch, lambda tx: sql.assign_revision(tx, worker_id, revision))
            case actions.EndInstance(worker_id, ref):
                self._write(epoch, lambda tx: sql.end_asked(tx, worker_id))
                self.provider.terminate(ref)
                return ""
            case actions.ConfirmTerminated(worker_id):
                # P5: absent from listings, and the provider says so when asked for this very one.
                ref = _worker(seen, worker_id).instance_ref
                if ref is not None and self.provider.find(ref) is not None:
                    raise StaleWrite(f"instance {ref} is missing from listings and yet there")
                return self._write(epoch, lambda tx: sql.mark_terminated(tx, worker_id))
            case actions.SpawnWorker(pool):
                here = next(each for each in seen.pools if each.id == pool)
                together = seen.most_together if here.shares else None
                return self._spawn(pool, here.policy, epoch, together)
            case actions.AttachInstance(worker_id, ref):
                assert not isinstance(seen.instances, ListingFailed), "an instance was found without a listing"
                found = next(each for each in seen.instances if each.ref == ref)
                return self._write(epoch, lambda tx: sql.attach(tx, worker_id, found))
            case actions.TerminateOrphan(ref):
                self._write(epoch, lambda _tx: None)  # only the leader may end what belongs to nobody
                self.provider.terminate(ref)
                return ""
            case actions.GrowVolume():
                self._write(epoch, lambda _tx: None)  # only the leader may spend
                if not isinstance(self.provider, GrowsVolumes):
                    return f"{self.provider.name} has no volumes to grow"
                return self.provider.grow_volume(action.ref, seen_gb=action.seen_gb, by_gb=action.by_gb)
            case actions.Note():
                return ""
            case _:
                assert_never(action)

    def _write(self, epoch: int, change: Callable[[Tx], object]) -> str:
        def fenced(tx: Tx) -> None:
            self.leadership.fence(tx, epoch)
            change(tx)

        self.services.database.transact(fenced)
        return ""

    def _spawn(self, pool: PoolId, policy: FleetPolicy, epoch: int, most_together: int | None) -> str:
        """Intent, effect, record; each is safe to repeat, and a lost answer is found again by the name."""
        worker_id, database = self.new_worker_id(), self.services.database
        load = database.read(lambda tx: sql.served_by(tx, pool))

        def intend(tx: Tx) -> Intent:
            self.leadership.fence(tx, epoch)
            intent = Intent(
                worker_id=worker_id,
                instance_name=self.name_of(installation_sql.next_stamp(tx).own_part(worker_id)),
                pool=pool,
                provider=self.provider.name,
                revision=0 if load is None else load.revision,
            )
            # P1, P9: every limit is checked while the pool is locked.
            blocked = sql.intend(tx, intent, policy, most_together)
            limit, budget = policy.max_creates_per_hour, policy.max_cost_per_hour
            if not blocked and limit is not None and sql.created_since(tx, pool, HOUR) > limit:
                blocked = f"{limit} workers were created within the last hour already"
            if not blocked and budget is not None and (rate := stats_sql.hourly_rate(tx)) >= budget:
                blocked = f"the fleet costs {rate} USD an hour already"
            if blocked:
                raise CapacityUnavailable(blocked)
            return intent

        intent = database.transact(intend)
        loads = {} if load is None else to_variables(load)
        request = SpawnRequest(
            name=intent.instance_name,
            worker_id=worker_id,
            pool=pool,
            environment={**self.environment_of(worker_id, pool), **loads},
        )
        # A leader that was suspended here may wake when its place has long been given to another.
        self.leadership.require_sure(epoch)
        try:
            instance = self.provider.spawn(request)
        except SpawnUnknown:
            raise  # the place stays taken; the next listings will show what became of it
        except (ProviderUnavailable, ProviderRejected) as error:
            refused = error
            self._write(epoch, lambda tx: _give_back(tx, intent, policy, refused))
            raise

        def attach(tx: Tx) -> None:
            sql.attach(tx, worker_id, instance)
            sql.go_on(tx, pool)

        self._write(epoch, attach)
        return f"{worker_id} is {instance.ref}"

    def _fail(self, action: actions.FailWorker, seen: Snapshot, epoch: int) -> str:
        """What can still be learnt from the machine is kept before it is ended."""
        worker = _worker(seen, action.worker_id)
        ref, lines = worker.instance_ref, list[str]()
        if ref is not None:
            if action.reason.code is actions.Code.INSTANCE_ENDED:
                self._require_ended(ref)
            try:
                lines = list(self.provider.logs(ref, LOG_LINES))
            except (ProviderUnavailable, ProviderRejected) as error:
                lines = [f"no log could be had: {error}"]
        diagnostics = {
            "last_heartbeat": str(worker.last_heartbeat),
            "job": worker.job.key.job_id if worker.job else None,
            "numbers": dict(action.reason.numbers),
            "log": lines,
        }

        def change(tx: Tx) -> None:
            sql.fail(tx, action.worker_id, action.reason)
            workers_sql.note(tx, action.worker_id, {"diagnostics": diagnostics})

        return self._write(epoch, change)

    def _require_ended(self, ref: model.InstanceRef) -> None:
        """A listing may lack what is there (P7): it is asked for by itself."""
        found = self.provider.find(ref)
        if found is not None and found.status in (InstanceStatus.STARTING, InstanceStatus.RUNNING):
            raise StaleWrite(f"instance {ref} is missing from listings and yet {found.status}")


def _give_back(tx: Tx, intent: Intent, policy: FleetPolicy, error: Exception) -> None:
    """Surely nothing was started: the place is free at once, and no worker is blamed for it (L1-07)."""
    reason = actions.ActionReason(actions.Code.SPAWN_FAILED, f"Spawn failed: {error}")
    sql.abandon(tx, intent.worker_id, reason)
    if isinstance(error, ProviderRejected):
        sql.stop(tx, intent.pool, str(error))
    else:
        asked = error.retry_after if isinstance(error, ProviderUnavailable) else None
        sql.wait(tx, intent.pool, max(policy.first_wait, asked or timedelta(0)), policy.longest_wait)


def _worker(seen: Snapshot, worker_id: WorkerId) -> WorkerSnapshot:
    return next(each for each in seen.workers if each.id == worker_id)


def _drain_idle(tx: Tx, worker_id: WorkerId) -> None:
    """P8: the worker's row is locked as a claim would lock it, so it cannot get a job in between."""
    if not workers_sql.lock_free_workers(tx, worker_id):
        raise StaleWrite(f"worker {worker_id} has got a job meanwhile")
    sql.drain(tx, worker_id)


MOVED = {
    actions.Code.HOLD_OVER: Reason.HOLD_OVER,
    actions.Code.POOL_SERVED: Reason.SERVED,
    actions.Code.POOL_EMPTY: Reason.EMPTY,
    actions.Code.POOL_WANTED: Reason.STARTED_AGAIN,
}


def _move_pool(tx: Tx, action: actions.MovePool) -> None:
    """An unused pool is drained together with its workers, so that no job is given to them meanwhile."""
    pools_sql.lock_pool(tx, action.pool)
    reason = MOVED[action.reason.code]
    pools_sql.move_pool(tx, action.pool, action.to, reason, sql.LEADER)
    if action.to is PoolStatus.DRAINING:
        pools_sql.drain_workers_of(tx, action.pool, reason, sql.LEADER)
        if pools_sql.pool_in_use(tx, action.pool):
            raise StaleWrite(f"pool {action.pool} is used again")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAccess:
    services: Services
    keyring: Keyring
    url: str
    """Where a worker reaches the API."""

    def environment(self, worker_id: WorkerId, pool: PoolId) -> Mapping[str, str]:
        issued = create_bootstrap(self.services, self.keyring, worker_id, pool)
        return {
            "HERDSMAN_WORKER_ID": worker_id,
            "HERDSMAN_API_URL": self.url,
            "HERDSMAN_BOOTSTRAP_TOKEN": issued.secret,
        }


def by_name_only(worker_id: WorkerId, _pool: PoolId) -> Mapping[str, str]:
    """For workers that need no address: of the simulation, or started by a command of the user's."""
    return {"HERDSMAN_WORKER_ID": worker_id}
