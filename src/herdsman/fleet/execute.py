"""Creates one worker: written down, asked for once under a name of its own, and recorded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from herdsman import ids
from herdsman.access.authenticator import Keyring
from herdsman.access.commands import create_bootstrap
from herdsman.context import Services
from herdsman.db.connection import Database, Tx
from herdsman.errors import (
    CapacityUnavailable,
    ProviderRejected,
    ProviderUnavailable,
    SpawnUnknown,
    StaleWrite,
)
from herdsman.fleet import installation_sql, model, sql, stats_sql, workers_sql
from herdsman.fleet.actions import (
    Action,
    ActionReason,
    AssignModelRevision,
    AttachInstance,
    CancelSpawn,
    Code,
    ConfirmTerminated,
    DrainIdleWorker,
    DrainWorker,
    EndInstance,
    FailWorker,
    GrowVolume,
    MovePool,
    Note,
    PromoteWorker,
    RequeueJob,
    SpawnWorker,
    TerminateOrphan,
)
from herdsman.fleet.leader import Leadership
from herdsman.fleet.model import FleetPolicy, Instance, InstanceState, SpawnRequest
from herdsman.fleet.snapshot import ListingFailed, Snapshot
from herdsman.fleet.sql import Intent
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs.model import Failure, FailureClass
from herdsman.jobs.protocol import to_variables
from herdsman.jobs.worker_commands import end_claim
from herdsman.pools import sql as pools_sql
from herdsman.ports import GrowsVolumes, Provider
from herdsman.states import PoolState, Reason

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawner:
    database: Database
    provider: Provider
    leadership: Leadership
    new_worker_id: Callable[[], WorkerId]
    name_of: Callable[[str], str]
    """The whole name of an instance, from the part that says who started it and for which worker."""
    environment_of: Callable[[WorkerId, PoolId], Mapping[str, str]]

    def spawn(self, pool: PoolId, policy: FleetPolicy, epoch: int, most_together: int | None = None) -> str:
        """Intent, effect, record; each is safe to repeat, and a lost answer is found again by the name."""
        worker_id = self.new_worker_id()
        load = self.database.read(lambda tx: sql.served_by(tx, pool))

        def intend(tx: Tx) -> Intent:
            self.leadership.fence(tx, epoch)
            intent = Intent(
                worker_id=worker_id,
                instance_name=self.name_of(installation_sql.next_stamp(tx).own_part(worker_id)),
                pool=pool,
                provider=self.provider.name,
                revision=0 if load is None else load.revision,
            )
            self._take_place(tx, intent, policy, most_together)
            return intent

        intent = self.database.transact(intend)
        return self._create(intent, policy, epoch, {} if load is None else to_variables(load))

    def _take_place(self, tx: Tx, intent: Intent, policy: FleetPolicy, most_together: int | None) -> None:
        """P1, P9: every limit is checked while the pool is locked."""
        blocked = sql.intend(tx, intent, policy, most_together)
        if blocked:
            raise CapacityUnavailable(blocked)
        limit = policy.max_creates_per_hour
        if limit is not None and sql.created_since(tx, intent.pool, HOUR) > limit:
            raise CapacityUnavailable(f"{limit} workers were created within the last hour already")
        if policy.max_cost_per_hour is not None and stats_sql.hourly_rate(tx) >= policy.max_cost_per_hour:
            raise CapacityUnavailable(f"the fleet costs {stats_sql.hourly_rate(tx)} USD an hour already")

    def _create(self, intent: Intent, policy: FleetPolicy, epoch: int, loads: Mapping[str, str]) -> str:
        request = SpawnRequest(
            name=intent.instance_name,
            worker_id=intent.worker_id,
            pool=intent.pool,
            environment={**self.environment_of(intent.worker_id, intent.pool), **loads},
        )
        # Who was stopped here may wake when the place has long been given to another.
        self.leadership.require_sure(epoch)
        try:
            instance = self.provider.spawn(request)
        except SpawnUnknown:
            raise  # the place stays taken; the next listings will show what became of it
        except (ProviderUnavailable, ProviderRejected) as error:
            refused = error
            self.database.transact(lambda tx: self._give_back(tx, intent, policy, refused, epoch))
            raise
        self.database.transact(lambda tx: self._attach(tx, intent, instance, epoch))
        return f"{intent.worker_id} is {instance.ref}"

    def _attach(self, tx: Tx, intent: Intent, instance: Instance, epoch: int) -> None:
        self.leadership.fence(tx, epoch)
        sql.attach(tx, intent.worker_id, instance)
        sql.go_on(tx, intent.pool)

    def _give_back(self, tx: Tx, intent: Intent, policy: FleetPolicy, error: Exception, epoch: int) -> None:
        """Surely nothing was started: the place is free at once, and no worker is blamed for it (L1-07)."""
        self.leadership.fence(tx, epoch)
        sql.abandon(tx, intent.worker_id, ActionReason(Code.SPAWN_FAILED, f"Spawn failed: {error}"))
        if isinstance(error, ProviderRejected):
            sql.stop(tx, intent.pool, str(error))
        else:
            asked = error.retry_after if isinstance(error, ProviderUnavailable) else None
            sql.wait(tx, intent.pool, max(policy.first_wait, asked or timedelta(0)), policy.longest_wait)


LOG_LINES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    services: Services
    provider: Provider
    leadership: Leadership
    spawner: Spawner

    def act(self, action: Action, seen: Snapshot, epoch: int) -> str:
        """What is to be known about it afterwards; an error when it was not done."""
        match action:
            case PromoteWorker(worker_id, why):
                return self._write(epoch, lambda tx: sql.promote(tx, worker_id, why))
            case FailWorker():
                return self._fail(action, seen, epoch)
            case RequeueJob():
                return self._requeue_job(action, epoch)
            case DrainIdleWorker():
                return self._drain(action, seen, epoch)
            case DrainWorker() | CancelSpawn() | MovePool() | AssignModelRevision():
                return self._write(epoch, lambda tx: _steer(tx, action))
            case EndInstance(worker_id, ref):
                self._write(epoch, lambda tx: sql.end_asked(tx, worker_id))
                self.provider.terminate(ref)
                return ""
            case ConfirmTerminated():
                return self._confirm_terminated(action, seen, epoch)
            case SpawnWorker(pool):
                here = next(each for each in seen.pools if each.id == pool)
                together = seen.most_together if here.shares else None
                return self.spawner.spawn(pool, here.policy, epoch, together)
            case AttachInstance():
                return self._attach(action, seen, epoch)
            case TerminateOrphan() | GrowVolume():
                self._write(
                    epoch, lambda _tx: None
                )  # only who leads may end what belongs to nobody, or spend
                return self._at_the_provider(action)
            case Note():
                return ""
            case _:
                assert_never(action)

    def _at_the_provider(self, action: TerminateOrphan | GrowVolume) -> str:
        """What is not written down: it stands at the provider, and is seen there."""
        if isinstance(action, TerminateOrphan):
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
            sql.fail(tx, action.worker_id, action.why)
            sql.note(tx, action.worker_id, {"diagnostics": diagnostics})

        return self._write(epoch, change)

    def _drain(self, action: DrainIdleWorker, seen: Snapshot, epoch: int) -> str:
        if action.why.code is Code.INSTANCE_GONE:
            worker = next(each for each in seen.workers if each.id == action.worker_id)
            assert worker.instance_ref is not None, "what was never named cannot be gone"
            self._require_ended(worker.instance_ref)
        return self._write(epoch, lambda tx: _drain_free(tx, action.worker_id))

    def _require_ended(self, ref: model.InstanceRef) -> None:
        """A listing may lack what is there (P7): it is asked for by itself."""
        found = self.provider.find(ref)
        if found is not None and found.state in (InstanceState.STARTING, InstanceState.RUNNING):
            raise StaleWrite(f"instance {ref} is missing from listings and yet {found.state}")

    def _logs(self, ref: model.InstanceRef) -> list[str]:
        try:
            return list(self.provider.logs(ref, LOG_LINES))
        except (ProviderUnavailable, ProviderRejected) as error:
            return [f"no log could be had: {error}"]

    def _requeue_job(self, action: RequeueJob, epoch: int) -> str:
        lost = action.kind is FailureClass.WORKER_LOST
        said = f"its worker was lost: {action.why.text}" if lost else action.why.text
        failure = Failure(kind=action.kind, error=said)
        return self._write(
            epoch, lambda tx: _ignore(end_claim(tx, self.services, action.key, failure, sql.LEADER))
        )

    def _confirm_terminated(self, action: ConfirmTerminated, seen: Snapshot, epoch: int) -> str:
        """P5: absent from listings, and the provider says so when asked for this very one."""
        worker = next(each for each in seen.workers if each.id == action.worker_id)
        if worker.instance_ref is not None and self.provider.find(worker.instance_ref) is not None:
            raise StaleWrite(f"instance {worker.instance_ref} is missing from listings and yet there")
        return self._write(epoch, lambda tx: sql.mark_terminated(tx, action.worker_id))

    def _attach(self, action: AttachInstance, seen: Snapshot, epoch: int) -> str:
        assert not isinstance(seen.instances, ListingFailed), "an instance was found without looking"
        found = next(each for each in seen.instances if each.ref == action.ref)
        return self._write(epoch, lambda tx: sql.attach(tx, action.worker_id, found))


MOVED = {
    Code.HOLD_OVER: Reason.HOLD_OVER,
    Code.POOL_SERVED: Reason.SERVED,
    Code.POOL_EMPTY: Reason.EMPTY,
    Code.POOL_WANTED: Reason.STARTED_AGAIN,
}


def _steer(tx: Tx, action: DrainWorker | CancelSpawn | MovePool | AssignModelRevision) -> None:
    match action:
        case DrainWorker(worker_id):
            sql.drain(tx, worker_id)
        case CancelSpawn(worker_id, why):
            sql.cancel_spawn(tx, worker_id, why)
        case MovePool():
            _move_pool(tx, action)
        case AssignModelRevision(worker_id, revision):
            sql.assign_revision(tx, worker_id, revision)
        case _:
            assert_never(action)


def _move_pool(tx: Tx, action: MovePool) -> None:
    """One that nobody uses is let go together with its workers, so that no job is given to them meanwhile."""
    pools_sql.lock_pool(tx, action.pool)
    reason = MOVED[action.why.code]
    pools_sql.move_pool(tx, action.pool, action.to, reason, sql.LEADER)
    if action.to is PoolState.DRAINING:
        pools_sql.drain_workers_of(tx, action.pool, reason, sql.LEADER)
        if pools_sql.pool_in_use(tx, action.pool):
            raise StaleWrite(f"pool {action.pool} is used again")


def _drain_free(tx: Tx, worker_id: ids.WorkerId) -> None:
    """P8: the worker's row is locked as a claim would lock it, so it cannot get a job in between."""
    if not workers_sql.lock_free_workers(tx, worker_id):
        raise StaleWrite(f"worker {worker_id} has got a job meanwhile")
    sql.drain(tx, worker_id)


def _ignore(_result: object) -> None:
    return None


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
