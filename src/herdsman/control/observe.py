"""Looks at the fleet: first at the provider, then at the database, which knows of everything the provider shows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from herdsman.control.leadership import Leadership
from herdsman.core.errors import ProviderRejected, ProviderUnavailable
from herdsman.core.fleet import Snapshot, Unseen
from herdsman.core.instances import Instance
from herdsman.core.model import PoolId, WorkerId
from herdsman.core.policy import FleetPolicy
from herdsman.core.scaling.observation import ScalingPolicy
from herdsman.ports import Provider
from herdsman.store import fleet, ledger, sight
from herdsman.store.database import Database, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    database: Database
    provider: Provider
    leadership: Leadership
    pools: Mapping[PoolId, FleetPolicy]
    scaling: Mapping[str, ScalingPolicy]

    def look(self, epoch: int) -> Snapshot:
        """Instances come first: one that is listed has had its row since before it was asked for."""
        seen = self.glance()
        if isinstance(seen.instances, Unseen):
            return seen
        lost, back = sight.absent_now(seen.workers, {instance.name for instance in seen.instances})
        if not lost and not back:
            return seen
        self.database.transact(lambda tx: self._mark(tx, epoch, lost, back))
        return _marked(seen, {**dict.fromkeys(lost, seen.now), **dict.fromkeys(back)})

    def glance(self) -> Snapshot:
        """The same without writing anything down."""
        instances = self._list()
        return self.database.read(lambda tx: self._snapshot(tx, instances))

    def _list(self) -> tuple[Instance, ...] | Unseen:
        try:
            return tuple(self.provider.list_instances())
        except (ProviderUnavailable, ProviderRejected) as error:
            return Unseen(str(error))

    def _mark(self, tx: Tx, epoch: int, lost: list[WorkerId], back: list[WorkerId]) -> None:
        self.leadership.fence(tx, epoch)
        fleet.mark_absent(tx, lost, back)

    def _snapshot(self, tx: Tx, instances: tuple[Instance, ...] | Unseen) -> Snapshot:
        return Snapshot(
            now=tx.now(),
            pools=sight.see_pools(tx, self.pools),
            workers=sight.see_workers(tx, self.pools.values()),
            instances=instances,
            spent=ledger.spent(tx),
            policies=self.scaling,
        )


def _marked(seen: Snapshot, absent: Mapping[WorkerId, datetime | None]) -> Snapshot:
    """As if it were read again."""
    workers = tuple(
        replace(each, absent_since=absent[each.id]) if each.id in absent else each for each in seen.workers
    )
    return replace(seen, workers=workers)
