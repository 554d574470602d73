"""Orders about pools: the leader has them carried out by a cycle of the control loop, and then acknowledges them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event

from herdsman.bus.errors import GroupMissing
from herdsman.bus.streams import Streams
from herdsman.control.cycle import Cycle
from herdsman.ports import Clock

_LOOK = timedelta(seconds=1)
_START = "0-0"


@dataclass
class PoolProvisioner:
    """The rows of the pools say what is wanted; an order only says that it need not wait for the next cycle."""

    redis: Streams
    leads: Callable[[], bool]
    tick: Callable[[], Cycle]
    clock: Clock
    claim_idle: timedelta
    ordered: Event = field(default_factory=Event)
    look: timedelta = _LOOK

    def turn(self) -> None:
        asked = self.ordered.wait(self.look.total_seconds())
        self.ordered.clear()
        if not self.leads():
            return
        orders = self._orders()
        if not (asked or orders):
            return
        if self.tick().epoch is not None:
            self.redis.settle(self.redis.names.preloads, orders)
        # However many orders come, cycles have their rhythm.
        self.clock.sleep(_LOOK)

    def _orders(self) -> list[str]:
        stream = self.redis.names.preloads
        try:
            self.redis.take(stream)
            for _ in self.redis.take_over(stream, self.claim_idle):
                pass  # what a leader before us left
            return [entry.id for entry in self.redis.mine(stream, _START)]
        except GroupMissing:
            self.redis.make_group(stream)
            return []
