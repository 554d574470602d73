"""What ends the waiting of workers before their time."""

from datetime import timedelta

from herdsman.sim.world.threads import WorldEvent
from herdsman.sim.world.world import World


class Bell:
    """A clock by which one sleeps until it rings, or as long as one wanted to."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._event = WorldEvent(world.scheduler)

    def ring(self) -> None:
        self._event.set()
        self._event.clear()

    def monotonic(self) -> float:
        return self._world.clock.monotonic()

    def sleep(self, duration: timedelta) -> None:
        began = self._world.now
        self._event.wait(duration.total_seconds())
        if self._world.now - began < duration.total_seconds():
            self._world.note("woken_early")
