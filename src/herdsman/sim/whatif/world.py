"""Machines and jobs in virtual time. Who decides is outside: it looks, asks for machines and lets them go.

Jobs are places in arrays, never objects: a million of them fit in a few megabytes, and each costs a few microseconds.
"""

import math
from array import array
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from herdsman.sim.whatif.boots import Boots
from herdsman.sim.whatif.trace import Trace

NO_JOB = -1


@dataclass(slots=True, eq=False)
class Machine:
    number: int
    created: float
    hopeless: bool = False
    """It will never be ready."""
    ready: bool = False
    job: int = NO_JOB
    began: float = 0.0
    """When it took its job."""
    free_since: float | None = None
    done: int = 0
    leaving: bool = False
    """It takes no more jobs, and goes when it holds none."""
    ended: float | None = None


class World:
    def __init__(self, trace: Trace, boots: Boots, *, seed: int = 0) -> None:
        self.now = 0.0
        self.trace = trace
        self.machines: list[Machine] = []
        """Those that are paid for."""
        self.waits = array("d", bytes(8 * len(trace)))
        self.served = 0
        """Jobs that have begun: they are the first so many of the trace."""
        self.finished = 0
        self.spawned = 0
        self.hopeless = 0
        self.peak = 0
        self.latest_took: deque[float] = deque(maxlen=200)
        self.latest_boots: deque[float] = deque(maxlen=50)
        self.latest_waits: deque[float] = deque(maxlen=200)
        """Of jobs that have ended, as in `latest_took`."""
        self._came = 0
        self._paid_s = 0.0
        self._idle: dict[int, Machine] = {}
        self._line: list[int] = []
        """Their numbers, as a heap; some that have gone meanwhile are still in it."""
        self._events: list[tuple[float, int, Machine]] = []
        self._order = count()
        self._draws = boots.draws(seed)

    @property
    def queued(self) -> int:
        return self._came - self.served

    @property
    def over(self) -> bool:
        return self.finished == len(self.trace)

    @property
    def idle(self) -> Collection[Machine]:
        """Ready ones without a job."""
        return self._idle.values()

    @property
    def next_arrival(self) -> float:
        return self.trace.arrival_s[self._came] if self._came < len(self.trace) else math.inf

    @property
    def oldest_wait(self) -> float:
        return self.now - self.trace.arrival_s[self.served] if self.queued else 0.0

    def paid_s(self) -> float:
        return self._paid_s + sum(self.now - each.created for each in self.machines)

    def spawn(self) -> Machine:
        boot = self._draws.next()
        made = Machine(self.spawned, self.now, hopeless=boot is None)
        self.spawned += 1
        self.machines.append(made)
        self.peak = max(self.peak, len(self.machines))
        if boot is None:
            self.hopeless += 1
        else:
            heappush(self._events, (self.now + boot, next(self._order), made))
        return made

    def leave(self, machine: Machine) -> None:
        """At once without a job, else after it."""
        machine.leaving = True
        if machine.job == NO_JOB:
            self.end(machine)

    def end(self, machine: Machine) -> None:
        """It is paid for no longer. Whoever ends a machine with a job would lose that: nobody does."""
        assert machine.job == NO_JOB
        if machine.ended is None:
            machine.ended = self.now
            self._paid_s += self.now - machine.created
            self.machines.remove(machine)
            if machine.ready:
                del self._idle[machine.number]

    def advance(self, until: float) -> None:
        """Everything that happens before then, and nothing that happens at that moment."""
        arrival, total, events, idle = self.trace.arrival_s, len(self.trace), self._events, self._idle
        while not self.over:
            comes = arrival[self._came] if self._came < total else math.inf
            happens = events[0][0] if events else math.inf
            if min(comes, happens) >= until:
                break
            if comes < happens:
                self.now = comes
                self._came += 1
                if idle:
                    self._begin(self._first())
            else:
                self.now, _, machine = heappop(events)
                self._free(machine)
        if not self.over:
            self.now = until

    def _free(self, machine: Machine) -> None:
        """Its start or its job has ended."""
        if machine.ended is not None:
            return
        if machine.job == NO_JOB:
            machine.ready = True
            self.latest_boots.append(self.now - machine.created)
        else:
            machine.done += 1
            self.latest_waits.append(self.waits[machine.job])
            machine.job = NO_JOB
            self.finished += 1
            self.latest_took.append(self.now - machine.began)
        machine.free_since = self.now
        if self.served < self._came and not machine.leaving:
            self._begin(machine)
            return
        self._idle[machine.number] = machine
        heappush(self._line, machine.number)
        if machine.leaving:
            self.end(machine)

    def _first(self) -> Machine:
        """The oldest of the idle, as when real workers ask: those beyond what is needed stay idle, and can go."""
        while (number := heappop(self._line)) not in self._idle:
            pass
        return self._idle.pop(number)

    def _begin(self, machine: Machine) -> None:
        job = self.served
        self.served += 1
        self.waits[job] = self.now - self.trace.arrival_s[job]
        machine.job, machine.began = job, self.now
        heappush(self._events, (self.now + self.trace.service_s[job], next(self._order), machine))
