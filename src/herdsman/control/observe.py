"""Looks at the fleet: first at the provider, then at the database, which knows of everything the provider shows."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from herdsman.control.leadership import Leadership
from herdsman.control.zones import local_times
from herdsman.core.errors import ProviderRejected, ProviderUnavailable
from herdsman.core.fleet import SeenPool, SeenWorker, Snapshot, Unseen
from herdsman.core.instances import Instance
from herdsman.core.model import DEFAULT_POOL, PoolId, WorkerId
from herdsman.core.policy import FleetPolicy
from herdsman.core.pools import Pool, PoolNews, last_used, news_of, with_life
from herdsman.core.scaling.observation import ScalingPolicy
from herdsman.ports import Provider
from herdsman.store import fleet, ledger, pools, sight
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
        return self.database.read(lambda tx: self._snapshot(tx, instances))

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

    def _snapshot(self, tx: Tx, instances: tuple[Instance, ...] | Unseen) -> tuple[Snapshot, list[PoolNews]]:
        workers = sight.see_workers(tx, self.pools.values())
        # Who has changed the settings since has named it there: that is what counts.
        named = {each.pool_id: each for each in pools.observed(tx) if each.pool_id not in self.pools}
        by_pool = _by_pool(workers, named)
        news = [news_of(pool, by_pool[name], tx.now()) for name, pool in named.items()]
        snapshot = Snapshot(
            now=tx.now(),
            pools=self._pools(tx, named, by_pool),
            workers=workers,
            instances=instances,
            spent=ledger.spent(tx),
            policies=self.scaling,
            most_together=self._base.max_workers,
        )
        return snapshot, [each for each in news if each is not None]

    def _pools(
        self, tx: Tx, named: Mapping[PoolId, Pool], by_pool: Mapping[PoolId, Sequence[SeenWorker]]
    ) -> tuple[SeenPool, ...]:
        seen = sight.see_pools(tx, {**self.pools, **dict.fromkeys(named, self._base)})
        awaited = pools.awaited(tx) if named else frozenset[PoolId]()
        local = local_times((zone for each in named.values() for zone in each.rules.schedule.zones), tx.now())

        def one(pool: SeenPool) -> SeenPool:
            row = named.get(pool.id)
            if row is None:
                return replace(pool, shares=pool.id == DEFAULT_POOL)
            waiting = pool.id in awaited
            used = tx.now() if waiting else last_used(row, by_pool[pool.id], tx.now())
            return with_life(pool, row, used=used, waiting=waiting, local=local)

        return tuple(one(pool) for pool in seen)

    @property
    def _base(self) -> FleetPolicy:
        return self.pools.get(DEFAULT_POOL, _USUAL)


_USUAL = FleetPolicy()


def _by_pool(
    workers: Sequence[SeenWorker], named: Mapping[PoolId, Pool]
) -> Mapping[PoolId, Sequence[SeenWorker]]:
    found: defaultdict[PoolId, list[SeenWorker]] = defaultdict(list)
    for each in workers if named else ():
        found[each.pool].append(each)
    return found


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
