"""Machines and jobs in virtual time, and the fleet as `decide` sees it. A controller outside starts and ends machines.

Jobs are places in arrays, never objects: a million of them fit in a few megabytes, and each costs a few microseconds.
"""

import math
from array import array
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from heapq import heappop, heappush
from itertools import count
from random import Random

from herdsman.fleet.model import Instance, InstanceRef, InstanceStatus
from herdsman.fleet.snapshot import ClaimedJob, WorkerSnapshot
from herdsman.ids import DEFAULT_POOL, JobId, WorkerId
from herdsman.jobs.model import ClaimKey
from herdsman.states import WorkerStatus
from herdsman.whatif.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Boots:
    """Given as a mean and a spread, or as a sample that the times are drawn from."""

    mean_s: float = 90.0
    spread_s: float = 0.0
    sample_s: tuple[float, ...] = ()
    failing: float = 0.0
    """The share of starts that never end well."""

    def draw(self, chance: Random) -> float | None:
        """Seconds from the request to readiness; None for one that never gets ready."""
        if self.failing and chance.random() < self.failing:
            return None
        if self.sample_s:
            return chance.choice(self.sample_s)
        if not self.spread_s:
            return self.mean_s
        return max(0.1 * self.mean_s, chance.gauss(self.mean_s, self.spread_s))


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
        self._boots = boots
        self._chance = Random(seed)

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

    def paid_s(self) -> float:
        return self._paid_s + sum(self.now - each.created for each in self.machines)

    def spawn(self) -> Machine:
        boot = self._boots.draw(self._chance)
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
                    # The oldest of the idle, as when real workers ask: those beyond what is needed stay
                    # idle, and can go.
                    while (number := heappop(self._line)) not in self._idle:
                        pass
                    first = self._idle.pop(number)
                    self._begin(first)
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

    def _begin(self, machine: Machine) -> None:
        job = self.served
        self.served += 1
        self.waits[job] = self.now - self.trace.arrival_s[job]
        machine.job, machine.began = job, self.now
        heappush(self._events, (self.now + self.trace.service_s[job], next(self._order), machine))


BEYOND = timedelta(days=365 * 100)
"""A simulated worker is never silent and its job never stuck: their last sign of life is always in the future."""

_Face = tuple[WorkerStatus, int, bool, float | None, float | None, float | None]


@dataclass(slots=True, eq=False)
class Worker:
    machine: Machine
    status: WorkerStatus
    entered: float
    instance: Instance
    end_asked_at: float | None = None
    absent_since: float | None = None
    seen: WorkerSnapshot | None = None
    face: _Face | None = None
    """What `seen` was made from."""


class FleetView:
    def __init__(self, start: datetime, price: Decimal) -> None:
        self.workers: dict[WorkerId, Worker] = {}
        self._start = start
        self._price = price

    def add(self, machine: Machine) -> None:
        name = f"w{machine.number}"
        status = InstanceStatus.STARTING if machine.hopeless else InstanceStatus.RUNNING
        instance = Instance(ref=InstanceRef(name), name=name, status=status)
        self.workers[WorkerId(name)] = Worker(machine, WorkerStatus.SPAWNING, machine.created, instance)

    def move(self, worker_id: WorkerId, status: WorkerStatus, now: float) -> None:
        worker = self.workers[worker_id]
        worker.status, worker.entered = status, now

    def observe(self, now: float) -> tuple[tuple[WorkerSnapshot, ...], tuple[Instance, ...]]:
        seen: list[WorkerSnapshot] = []
        listed: list[Instance] = []
        for name, worker in self.workers.items():
            if worker.machine.ended is None:
                listed.append(worker.instance)
            elif worker.absent_since is None:
                worker.absent_since = now
            machine, asked = worker.machine, worker.end_asked_at
            face = (worker.status, machine.job, machine.ready, machine.free_since, worker.absent_since, asked)
            if worker.seen is None or worker.face != face:
                worker.seen, worker.face = self._made(name, worker), face
            seen.append(worker.seen)
        return tuple(seen), tuple(listed)

    def _made(self, name: WorkerId, worker: Worker) -> WorkerSnapshot:
        machine = worker.machine
        old = worker.seen
        if old is not None and old.status is worker.status and worker.status is WorkerStatus.ACTIVE:
            return replace(old, job=self._held(machine), idle_since=self._at(machine.free_since))
        return WorkerSnapshot(
            id=name,
            pool=DEFAULT_POOL,
            status=worker.status,
            created_at=self._start + timedelta(seconds=machine.created),
            entered_state_at=self._start + timedelta(seconds=worker.entered),
            instance_name=worker.instance.name,
            instance_ref=worker.instance.ref,
            last_heartbeat=self._start + BEYOND if machine.ready else None,
            ready=machine.ready,
            gpu_seen=machine.ready or None,
            job=self._held(machine),
            idle_since=self._at(machine.free_since),
            jobs_done=machine.done,
            end_asked_at=self._at(worker.end_asked_at),
            absent_since=self._at(worker.absent_since),
            cost_per_hour=self._price,
        )

    def _held(self, machine: Machine) -> ClaimedJob | None:
        if machine.job == NO_JOB:
            return None
        key = ClaimKey(JobId(str(machine.job)), 1)
        return ClaimedJob(key=key, since=self._start + BEYOND, begun=self._start + timedelta(seconds=machine.began))

    def _at(self, seconds: float | None) -> datetime | None:
        return None if seconds is None else self._start + timedelta(seconds=seconds)
