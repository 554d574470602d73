"""The streams of a replica in the world: the real parts, and a server that only pretends."""

from datetime import timedelta

from herdsman.control.replica import Replica
from herdsman.control.services import Services
from herdsman.redis.bus import ReplicaHooks, StreamBus
from herdsman.redis.keeper import Intervals
from herdsman.redis.names import Names
from herdsman.redis.streams import BusState
from herdsman.sim.world.bell import Bell
from herdsman.sim.world.redis import WorldRedis
from herdsman.sim.world.scheduler import Process
from herdsman.sim.world.streams import WorldStreams
from herdsman.sim.world.threads import OwnClock, WorldThreads
from herdsman.sim.world.world import World

NAMES = Names()
AGENT = "hand"
"""Whoever adds jobs to the stream by hand is this one."""
BLOCK = timedelta(seconds=5)
RHYTHM = Intervals(
    claim_idle=timedelta(seconds=20),
    reclaim=timedelta(seconds=10),
    resync=timedelta(seconds=10),
    look=timedelta(seconds=5),
)
_AWAY = "Redis "
"""So begins what is said when it is the server that is to blame."""


class WatchedState(BusState):
    """The real one. Its loops go on after any error; in the world one that nobody thought of ends everything."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def failed(self, loop: str, reason: str) -> None:
        super().failed(loop, reason)
        if not reason.startswith(_AWAY):
            scheduler = self._world.scheduler
            scheduler.broken.append((scheduler.current, AssertionError(f"{loop}: {reason}")))


def a_bus(
    world: World, server: WorldRedis, services: Services, process: Process, replica: Replica, bell: Bell
) -> StreamBus:
    leadership = replica.leadership
    around = ReplicaHooks(
        wake=bell.ring,
        ring=bell.ring,
        leads=lambda: leadership.term is not None,
        tick=replica.reconciler.tick,
    )
    return StreamBus(
        WorldStreams(server, NAMES, process.name, BLOCK),
        services,
        OwnClock(world.scheduler, process),  # it is read before any thread of the process runs
        around,
        RHYTHM,
        ingest_agent=AGENT,
        threads=WorldThreads(world.scheduler, process),
        state=WatchedState(world),
    )
