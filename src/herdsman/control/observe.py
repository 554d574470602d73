"""Looks at the fleet: first at the provider, then at the database, which knows of everything the provider shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from herdsman.control.leadership import Leadership
from herdsman.control.snapshot import FleetRules, look
from herdsman.core.errors import ProviderRejected, ProviderUnavailable
from herdsman.core.fleet import Snapshot, Unseen
from herdsman.core.instances import Instance
from herdsman.core.model import PoolId, WorkerId
from herdsman.core.policy import FleetPolicy
from herdsman.core.pools import PoolNews
from herdsman.core.scaling.observation import ScalingPolicy
from herdsman.ports import Provider
from herdsman.store import fleet, pools, sight
from herdsman.store.database import Database, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    database: Database
    provider: Provider
    leadership: Leadership
    pools: Mapping[PoolId, FleetPolicy]
    """Those of the settings; those that people ask for by name are read each time."""
    scaling: Mapping[str, ScalingPolicy]

    def look(self, epoch: int) -> Snapshot:
        """Instances come first: one that is listed has had its row since before it was asked for."""
        seen, news = self._look()
        lost, back = _absent(seen)
        if not lost and not back and not news:
            return seen
        self.database.transact(lambda tx: self._mark(tx, epoch, lost, back, news))
        return _marked(seen, {**dict.fromkeys(lost, seen.now), **dict.fromkeys(back)})

    def glance(self) -> Snapshot:
        """The same without writing anything down."""
        return self._look()[0]

    def _look(self) -> tuple[Snapshot, list[PoolNews]]:
        instances = self._list()
        rules = FleetRules(pools=self.pools, scaling=self.scaling)
        return self.database.read(lambda tx: look(tx, rules, instances))

    def _list(self) -> tuple[Instance, ...] | Unseen:
        try:
            return tuple(self.provider.list_instances())
        except (ProviderUnavailable, ProviderRejected) as error:
            return Unseen(str(error))

    def _mark(
        self, tx: Tx, epoch: int, lost: list[WorkerId], back: list[WorkerId], news: Sequence[PoolNews]
    ) -> None:
        self.leadership.fence(tx, epoch)
        fleet.mark_absent(tx, lost, back)
        pools.note(tx, news)


def _absent(seen: Snapshot) -> tuple[list[WorkerId], list[WorkerId]]:
    if isinstance(seen.instances, Unseen):
        return [], []
    return sight.absent_now(seen.workers, {instance.name for instance in seen.instances})


def _marked(seen: Snapshot, absent: Mapping[WorkerId, datetime | None]) -> Snapshot:
    """As if it were read again."""
    workers = tuple(
        replace(each, absent_since=absent[each.id]) if each.id in absent else each for each in seen.workers
    )
    return replace(seen, workers=workers)
