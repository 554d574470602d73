"""A provider of machines that lies, forgets and is slow, and the ledger of what it really ran."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

from herdsman.errors import CapacityUnavailable, ProviderRejected, ProviderUnavailable, SpawnUnknown
from herdsman.fleet.model import Instance, InstanceRef, InstanceStatus, SpawnRequest, Stamp
from herdsman.ids import DEFAULT_POOL, WorkerId
from herdsman.testing.simulation.checks.history import End, Pod
from herdsman.testing.simulation.faults import Fault
from herdsman.testing.simulation.scheduler import Process
from herdsman.testing.simulation.world import ZERO, World

PRICE = Decimal("0.5")
OUTAGE_S = (95.0, 130.0)
"""Longer than what is waited for before a machine that nobody sees counts as absent."""
LATEST_S = 50.0
"""A machine whose start was not answered appears at most so much later."""
LAG_S = 20.0


INSTALLATION = "0" * 12
"""The identity of the database of every simulation."""
ORIGINAL = "original"
"""The name of that database, where it is told apart from its copies."""


def name_of(own_part: str) -> str:
    return f"herd--sim--{own_part}"


@dataclass(slots=True, kw_only=True)
class Machine(Pod):
    ref: InstanceRef
    request: SpawnRequest
    listed_from: float
    """Listings lack it before then."""
    listed_until: float = float("inf")
    started_by: str = ORIGINAL
    processes: list[Process] = field(default_factory=list[Process])


@dataclass
class Cloud:
    world: World
    boot: Callable[[Machine], None]
    """Starts a worker on it."""
    machines: dict[InstanceRef, Machine] = field(default_factory=dict[InstanceRef, Machine])
    keeper: Process = field(default_factory=lambda: Process("cloud", danger=0.0))
    away_until: float = 0.0
    ends: list[End] = field(default_factory=list[End])

    def create(self, request: SpawnRequest, *, after: float = 0.0, started_by: str = ORIGINAL) -> Machine:
        world = self.world
        ref = InstanceRef(f"pod-{len(self.machines) + 1}")
        lag = world.random.uniform(1, LAG_S) if world.strikes(Fault.LISTING_LAG) else 0.0
        machine = Machine(
            ref=ref,
            name=request.name,
            request=request,
            born=world.now + after,
            listed_from=world.now + after + lag,
            asked=world.now,
            ours=started_by == ORIGINAL,
            started_by=started_by,
        )
        self.machines[ref] = machine
        world.start(self.keeper, ref, lambda: self._live(machine, after))
        return machine

    def leave_behind(self) -> None:
        world = self.world
        if not world.strikes(Fault.LEFTOVER):
            return
        lost = WorkerId("lost")
        name = name_of(Stamp(INSTALLATION, 0).own_part(lost))
        request = SpawnRequest(name=name, worker_id=lost, pool=DEFAULT_POOL, environment={})
        self.create(request).orphan = True

    def destroy(self, machine: Machine, *, by_us: bool) -> None:
        if machine.died is not None:
            return
        world = self.world
        machine.died, machine.ended_by_us = world.now, by_us
        lag = world.random.uniform(1, 10) if world.troubled and world.strikes(Fault.LISTING_LAG) else 0.0
        machine.listed_until = world.now + lag
        world.tell("cloud", f"{machine.ref} has ended")
        # One of them may ask for this itself: it is the last to go.
        mine = [each for each in machine.processes if each is not world.scheduler.current.process]
        for process in [*mine, *(each for each in machine.processes if each not in mine)]:
            world.scheduler.kill(process)

    def living(self) -> list[Machine]:
        """Of those that the original database started."""
        now, mine = self.world.now, [each for each in self.machines.values() if each.started_by == ORIGINAL]
        return [each for each in mine if each.died is None and each.born <= now]

    def listed(self) -> list[Machine]:
        now = self.world.now
        return [each for each in self.machines.values() if each.listed_from <= now < each.listed_until]

    def ledger(self) -> tuple[Pod, ...]:
        return tuple(each for each in self.machines.values() if each.born <= self.world.now)

    def _live(self, machine: Machine, after: float) -> None:
        world = self.world
        world.scheduler.sleep(after)
        world.tell("cloud", f"{machine.ref} runs as {machine.name}")
        if machine.orphan or machine.started_by != ORIGINAL or world.strikes(Fault.NEVER_BOOTS):
            return
        world.scheduler.sleep(world.random.uniform(0.5, 6))
        if world.strikes(Fault.DIES_AT_START) and machine.died is None:
            machine.exited, machine.died = True, world.now
            world.tell("cloud", f"{machine.ref} has exited while it started")
        if machine.died is None:
            self.boot(machine)
        if world.strikes(Fault.PREEMPTED):
            world.scheduler.sleep(world.random.uniform(0, 60))
            self.destroy(machine, by_us=False)


class WorldProvider:
    """What the control loop of one database sees of the cloud."""

    name = "world"

    def __init__(self, cloud: Cloud, database: str = ORIGINAL) -> None:
        self._cloud = cloud
        self._database = database
        self._world = cloud.world
        self.refuses = False
        """Until a person has repaired the key."""

    def spawn(self, request: SpawnRequest) -> Instance:
        world, cloud = self._world, self._cloud
        self._reach(f"spawn {request.name}")
        if world.strikes(Fault.REJECTED):
            self.refuses = True
        if self.refuses:
            raise ProviderRejected("401: the key is not valid")
        if world.strikes(Fault.NO_CAPACITY):
            raise CapacityUnavailable("no such machine is left")
        if world.strikes(Fault.SPAWN_VANISHED):
            raise SpawnUnknown("no answer")
        if world.strikes(Fault.SPAWN_LATE):
            cloud.create(request, after=world.random.uniform(1, LATEST_S), started_by=self._database)
            raise SpawnUnknown("no answer")
        machine = cloud.create(request, started_by=self._database)
        if world.strikes(Fault.SPAWN_UNANSWERED):
            raise SpawnUnknown("no answer")
        world.travel()
        return _instance(machine)

    def find(self, ref: InstanceRef) -> Instance | None:
        self._reach(f"find {ref}")
        machine = self._cloud.machines.get(ref)
        if machine is None or machine.died is not None or self._world.strikes(Fault.FIND_LIES):
            return None
        return _instance(machine)

    def terminate(self, ref: InstanceRef) -> None:
        world = self._world
        self._reach(f"terminate {ref}")
        machine = self._cloud.machines.get(ref)
        if machine is None:
            return
        self._cloud.ends.append(End(pod=machine.name, database=self._database, at=world.now))
        machine.end_asked = world.now if machine.end_asked is None else machine.end_asked
        if machine.exited:
            machine.listed_until = min(machine.listed_until, world.now)
        if world.strikes(Fault.END_IGNORED):
            return
        self._cloud.destroy(machine, by_us=self._database == ORIGINAL)
        world.travel()
        if world.strikes(Fault.END_UNANSWERED):
            raise ProviderUnavailable("no answer")

    def list_instances(self) -> Sequence[Instance]:
        self._reach("list")
        if self._world.strikes(Fault.LISTING_EMPTY):
            return ()
        return [_instance(each) for each in self._cloud.listed()]

    def logs(self, ref: InstanceRef, lines: int) -> Sequence[str]:
        del ref, lines
        return ()

    def _reach(self, what: str) -> None:
        world = self._world
        world.tell(world.scheduler.current.process.name, f"asks the provider to {what}")
        world.travel()
        away = max(world.scheduler.current.process.cut_off_until, self._cloud.away_until)
        if away <= world.now and world.strikes(Fault.PROVIDER_OUT):
            away = self._cloud.away_until = world.until(world.now + world.random.uniform(*OUTAGE_S))
        if away > world.now or world.strikes(Fault.PROVIDER_AWAY):
            raise ProviderUnavailable("503: try again later", retry_after=timedelta(seconds=5))


def _instance(machine: Machine) -> Instance:
    return Instance(
        ref=machine.ref,
        name=machine.name,
        status=InstanceStatus.RUNNING if machine.died is None else InstanceStatus.STOPPED,
        gpu_type="world",
        gpu_count=1,
        cost_per_hour=PRICE,
        created_at=ZERO + timedelta(seconds=machine.born),
    )
