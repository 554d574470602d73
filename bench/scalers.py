"""How others size a fleet: models of their rules with the values that they usually have, not the products.

Taken from their documentation: KEDA's poll and cooldown, Ray Serve's numbers, Runpod's idle timeout and the kinds of its
scalers, and that SkyServe starts at once from nothing. The other numbers are the ones that are commonly used.

All have one job at a time per worker, one queue in the order of arrival, the same starts and the same limits. Who is
let go finishes its job. A start that fails is given up after `GIVE_UP_S`, as ours is. What is modelled of each:

- KEDA (ScaledObject reference, Kubernetes HPA): a trigger with one job per replica, asked by the HPA every 15 s with a
  tolerance of 10 %, its default behaviour (up by the more of 100 % and four, down to the most of the last 300 s), and
  KEDA's own poll of 30 s where there is no replica at all. Its cooldown of 300 s is that of the HPA's window here.
- Runpod serverless (endpoint settings): queue delay of 4 s or request count of 4, idle timeout of 5 s, no flash boot.
- Ray Serve (AutoscalingConfig): target_ongoing_requests 2, the mean of look_back_period_s 30 in pieces of
  metrics_interval_s 10, upscale_delay_s 30, downscale_delay_s 600. Its replicas start like everybody's here.
- SkyPilot (SkyServe autoscaling): requests a second over 60 s by target_qps_per_replica, every 20 s,
  upscale_delay_seconds 300, downscale_delay_seconds 1200, at once from nothing. What waits is not looked at. The rate
  that a replica can take has no default; it is told the true one.
"""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from herdsman.whatif.machines import NO_JOB, World

GIVE_UP_S = 300.0


class Sized(ABC):
    """Has a number of workers in mind at each look, and asks for the difference."""

    cap_hits = 0
    REMEMBERS = True
    """It may change its mind though nothing happened."""

    def __init__(self, world: World, least: int, most: int) -> None:
        self.world, self.least, self.most = world, least, most

    @property
    def quiet(self) -> bool:
        """For who remembers nothing: the fewest are there, all of them idle."""
        idle = len(self.world.idle) == len(self.world.machines) == self.least
        return idle and not self.world.queued and not self.REMEMBERS

    def cycle(self) -> None:
        self._give_up()
        asked = self.wanted()
        wanted = max(self.least, min(self.most, asked))
        self.cap_hits += asked > self.most
        if wanted == self.size:
            return
        have = [each for each in self.world.machines if not each.leaving]
        for _ in range(min(wanted - len(have), self.most - len(self.world.machines))):
            self.world.spawn()
        surplus = len(have) - wanted
        # Idle ones first, then those that start, then the youngest at work.
        have.sort(key=lambda each: (each.job != NO_JOB, not each.ready, -each.created))
        for machine in have[: max(0, surplus)]:
            self.world.leave(machine)

    def _give_up(self) -> None:
        if self.world.hopeless:
            for lost in [each for each in self.world.machines if each.hopeless]:
                if self.world.now - lost.created > GIVE_UP_S:
                    self.world.leave(lost)

    @abstractmethod
    def wanted(self) -> int: ...

    @property
    def size(self) -> int:
        return sum(1 for each in self.world.machines if not each.leaving)

    @property
    def ongoing(self) -> int:
        """Jobs that wait or run."""
        return self.world.queued + self.world.served - self.world.finished


class Keda(Sized):
    """A queue scaler with one job per replica: at most double (or four more) per 15 s, and down to the most of 5 min."""

    POLL_S, STABLE_S, TOLERANCE, WAKE_S = 15.0, 300.0, 0.1, 30.0

    def __init__(self, world: World, least: int, most: int) -> None:
        super().__init__(world, least, most)
        self._asked: deque[tuple[float, int]] = deque()

    def wanted(self) -> int:
        now, have, need = self.world.now, self.size, self.ongoing
        if have and abs(need / have - 1) <= self.TOLERANCE:
            need = have
        self._asked.append((now, need))
        while self._asked[0][0] < now - self.STABLE_S:
            self._asked.popleft()
        if have == 0:
            return int(need > 0 and now % self.WAKE_S < self.POLL_S)
        return min(max(each for _, each in self._asked), max(2 * have, have + 4))


class RunpodDelay(Sized):
    """Queue delay: a worker for each job that has waited 4 s and for which none starts yet; idle ones go after 5 s."""

    POLL_S, DELAY_S, IDLE_S, REMEMBERS = 2.0, 4.0, 5.0, False

    def wanted(self) -> int:
        world = self.world
        starting = sum(1 for each in world.machines if not each.ready)
        late = _waited(world, self.DELAY_S)
        idle = sum(1 for each in world.idle if world.now - (each.free_since or 0.0) > self.IDLE_S)
        return self.size + max(0, late - starting) - (0 if late else idle)


class RunpodCount(Sized):
    """Request count: a worker for each four jobs that wait or run; idle ones go after 5 s."""

    POLL_S, EACH, IDLE_S, REMEMBERS = 2.0, 4, 5.0, False

    def wanted(self) -> int:
        idle = sum(1 for each in self.world.idle if self.world.now - (each.free_since or 0.0) > self.IDLE_S)
        return max(math.ceil(self.ongoing / self.EACH), self.size - idle)


class Delayed(Sized):
    """Changes its mind only when it has been of the other one for a while."""

    POLL_S, UP_S, DOWN_S = 10.0, 30.0, 600.0
    AT_ONCE = False
    """From nothing, without any delay."""

    def __init__(self, world: World, least: int, most: int) -> None:
        super().__init__(world, least, most)
        self._since: tuple[int, float] = (0, 0.0)

    def wanted(self) -> int:
        need = max(self.least, min(self.most, self.needed()))
        way = (need > self.size) - (need < self.size)
        if way != self._since[0]:
            self._since = (way, self.world.now)
        lasted = self.world.now - self._since[1]
        if self.size == 0 and self.AT_ONCE:
            return need
        if way == 0 or lasted < (self.UP_S if way > 0 else self.DOWN_S):
            return self.size
        self._since = (0, self.world.now)
        return need

    @abstractmethod
    def needed(self) -> int: ...


class RayServe(Delayed):
    """Two ongoing requests per replica, on the mean of the last 30 s; up after 30 s, down after 10 min."""

    EACH, LOOK_BACK = 2, 3

    def __init__(self, world: World, least: int, most: int) -> None:
        super().__init__(world, least, most)
        self._seen: deque[int] = deque(maxlen=self.LOOK_BACK)

    def needed(self) -> int:
        self._seen.append(self.ongoing)
        return math.ceil(sum(self._seen) / len(self._seen) / self.EACH)


class SkyPilot(Delayed):
    """Requests a second over a minute, by what a replica can take (told the true mean); up after 5 min, down after 20."""

    POLL_S, UP_S, DOWN_S, WINDOW_S = 20.0, 300.0, 1200.0, 60.0
    AT_ONCE = True

    def __init__(self, world: World, least: int, most: int) -> None:
        super().__init__(world, least, most)
        self._each_s = world.trace.work_s / len(world.trace)

    def needed(self) -> int:
        return math.ceil(_came(self.world, self.WINDOW_S) / self.WINDOW_S * self._each_s)


PEERS: dict[str, tuple[Callable[[World, int, int], Sized], float]] = {
    "KEDA-style": (Keda, Keda.POLL_S),
    "Runpod queue delay": (RunpodDelay, RunpodDelay.POLL_S),
    "Runpod request count": (RunpodCount, RunpodCount.POLL_S),
    "Ray-Serve-style": (RayServe, RayServe.POLL_S),
    "SkyPilot-style": (SkyPilot, SkyPilot.POLL_S),
}


def _waited(world: World, least: float) -> int:
    """Jobs that have waited longer than this: the first of the queue."""
    arrival, first = world.trace.arrival_s, world.served
    count = 0
    while count < min(world.queued, 500) and world.now - arrival[first + count] > least:
        count += 1
    return count


def _came(world: World, within: float) -> int:
    arrival, last = world.trace.arrival_s, world.served + world.queued
    count = 0
    while last - count > 0 and arrival[last - count - 1] > world.now - within:
        count += 1
    return count
