"""Pools over HTTP."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from herdsman.client import calls
from herdsman.client.call import Call
from herdsman.wire.pools import PoolIn, PoolOut, PoolsOut, ScaleIn, SwapIn


@dataclass(frozen=True, slots=True)
class ApiPools:
    ask: Callable[[Call[Any]], Any]

    def start(self, wanted: PoolIn) -> PoolOut:
        return self.ask(calls.start_pool(wanted))

    def page(self, after: str | None, limit: int) -> PoolsOut:
        return self.ask(calls.pools(after, limit))

    def look(self, pool_id: str) -> PoolOut:
        return self.ask(calls.pool(pool_id))

    def scale(self, pool_id: str, wanted: ScaleIn) -> PoolOut:
        return self.ask(calls.scale_pool(pool_id, wanted))

    def swap(self, pool_id: str, wanted: SwapIn) -> PoolOut:
        return self.ask(calls.swap_pool(pool_id, wanted))

    def drain(self, pool_id: str) -> PoolOut:
        return self.ask(calls.drain_pool(pool_id))
