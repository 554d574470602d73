"""Pools straight from the database."""

from dataclasses import dataclass

from herdsman.control.commands import pools
from herdsman.control.services import Services
from herdsman.core.model import PoolId
from herdsman.wire.pools import PoolIn, PoolOut, PoolsOut, ScaleIn, SwapIn


@dataclass(frozen=True, slots=True)
class DirectPools:
    services: Services

    def start(self, wanted: PoolIn) -> PoolOut:
        return PoolOut.of(pools.start_pool(self.services, wanted.new_pool()).standing)

    def page(self, after: str | None, limit: int) -> PoolsOut:
        found = pools.list_pools(self.services, after=after, limit=limit)
        last = found[-1].pool.pool_id if len(found) == limit else None
        return PoolsOut(pools=tuple(PoolOut.of(each) for each in found), next=last)

    def look(self, pool_id: str) -> PoolOut:
        return PoolOut.of(pools.find_pool(self.services, PoolId(pool_id)))

    def scale(self, pool_id: str, wanted: ScaleIn) -> PoolOut:
        return PoolOut.of(pools.scale_pool(self.services, PoolId(pool_id), wanted.desired_workers))

    def swap(self, pool_id: str, wanted: SwapIn) -> PoolOut:
        return PoolOut.of(pools.swap_pool(self.services, PoolId(pool_id), wanted.changed()))

    def drain(self, pool_id: str) -> PoolOut:
        return PoolOut.of(pools.drain_pool(self.services, PoolId(pool_id)))
