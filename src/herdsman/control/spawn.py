"""Creates one worker: written down, asked for once under a name of its own, and recorded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from herdsman.control.leadership import Leadership
from herdsman.core.errors import CapacityUnavailable, ProviderRejected, ProviderUnavailable, SpawnUnknown
from herdsman.core.findings import Code, Finding
from herdsman.core.instances import Instance, SpawnRequest
from herdsman.core.loading import to_variables
from herdsman.core.model import PoolId, WorkerId
from herdsman.core.policy import FleetPolicy
from herdsman.db.connection import Database, Tx
from herdsman.ports import Provider
from herdsman.store import fleet, installation, ledger, models
from herdsman.store.fleet import Intent

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
        load = self.database.read(lambda tx: models.served_by(tx, pool))

        def intend(tx: Tx) -> Intent:
            self.leadership.fence(tx, epoch)
            intent = Intent(
                worker_id=worker_id,
                instance_name=self.name_of(installation.next_stamp(tx).own_part(worker_id)),
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
        blocked = fleet.intend(tx, intent, policy, most_together)
        if blocked:
            raise CapacityUnavailable(blocked)
        limit = policy.max_creates_per_hour
        if limit is not None and fleet.created_since(tx, intent.pool, HOUR) > limit:
            raise CapacityUnavailable(f"{limit} workers were created within the last hour already")
        if policy.max_cost_per_hour is not None and ledger.rate(tx) >= policy.max_cost_per_hour:
            raise CapacityUnavailable(f"the fleet costs {ledger.rate(tx)} USD an hour already")

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
        fleet.attach(tx, intent.worker_id, instance)
        fleet.go_on(tx, intent.pool)

    def _give_back(self, tx: Tx, intent: Intent, policy: FleetPolicy, error: Exception, epoch: int) -> None:
        """Surely nothing was started: the place is free at once, and no worker is blamed for it (L1-07)."""
        self.leadership.fence(tx, epoch)
        fleet.abandon(tx, intent.worker_id, Finding(Code.SPAWN_FAILED, f"Spawn failed: {error}"))
        if isinstance(error, ProviderRejected):
            fleet.stop(tx, intent.pool, str(error))
        else:
            asked = error.retry_after if isinstance(error, ProviderUnavailable) else None
            fleet.wait(tx, intent.pool, max(policy.first_wait, asked or timedelta(0)), policy.longest_wait)
