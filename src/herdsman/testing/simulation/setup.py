"""Builds and starts everything that takes part in one seed."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from itertools import count

from herdsman.access.authenticator import Authenticator, Keyring
from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.errors import (
    CapacityUnavailable,
    Gone,
    HerdsmanError,
    OutcomeUnknown,
    ProviderRejected,
    ProviderUnavailable,
    SpawnUnknown,
    StoreUnavailable,
)
from herdsman.fleet.leader import Leadership
from herdsman.fleet.model import GpuDevice, Instance, InstanceRef, InstanceStatus, SpawnRequest, Stamp
from herdsman.fleet.reconcile import WorkerAccess, adopt, by_name_only
from herdsman.ids import DEFAULT_POOL, JobId, PoolId, WorkerId
from herdsman.leases.commands import grant_lease, keep_lease, release_lease, report_gpus
from herdsman.leases.rules import Lease, LeasePolicy, LeaseRequest, LeaseSpec
from herdsman.server.replica import Replica, build_replica
from herdsman.server.state import build_state
from herdsman.server.wiring import build_control
from herdsman.testing.simulation.checks.history import DatabaseCopy, End, LeaderWrite, Pod, Restore
from herdsman.testing.simulation.checks.lease_checks import use_of
from herdsman.testing.simulation.faults import Fault
from herdsman.testing.simulation.handlers import WorldService
from herdsman.testing.simulation.scheduler import Process
from herdsman.testing.simulation.sim_bus import NAMES, Wakeup, a_bus
from herdsman.testing.simulation.sim_database import WorldDatabase
from herdsman.testing.simulation.sim_redis import WorldRedis
from herdsman.testing.simulation.sim_worker import MOST_WORKERS, Gate, Timing, run_worker
from herdsman.testing.simulation.users import Demand, SubmitApi, Users
from herdsman.testing.simulation.world import ZERO, World, WorldClock, WorldEvent, WorldThreads

TTL = timedelta(seconds=20)
POLICY = LeasePolicy(tolerance_mb=0)
TRUSTED_S = (TTL - POLICY.margin_of(TTL)).total_seconds()
"""So long after it was asked for, or kept, a lease may be used without another word."""
BEAT_S, STEP_S = 5.0, 1.0
LOAD_S, LONGEST_S = 8.0, 50.0
LATE_BEATS = 6


@dataclass
class LeaseClient:
    world: World
    services: Services
    lease: Lease
    used: dict[str, tuple[str, int]]
    """What is really in use: each token's GPU and memory."""
    deadline: float

    def work(self, *, asked: float) -> None:
        """Until it is done, or has to stop: by the answer to a heartbeat, or by its own clock."""
        world = self.world
        use = use_of(self.lease, began=world.now, ended=world.now, asked=asked)
        world.books.uses.append(use)
        self._beaten = self._heard = world.now
        # What is leased is not in use at once.
        loaded = world.now + world.random.uniform(0, LOAD_S)
        until = world.now + world.random.uniform(1, LONGEST_S)
        while world.now < min(until, self.deadline):
            use.ended, use.until = world.now, self.deadline
            if world.now >= loaded:
                self.used[self.lease.token] = (self.lease.gpu_uuid or "", self.lease.memory_mb)
            if world.now - self._beaten >= BEAT_S and not self._beat():
                return
            world.scheduler.sleep(STEP_S)
        if world.now >= until:
            return
        self.used.pop(self.lease.token, None)
        # Its heart beats once more when its time is over for everybody: what is the answer?
        world.scheduler.sleep(self._heard + TTL.total_seconds() - world.now)
        for _ in range(LATE_BEATS):
            world.scheduler.sleep(STEP_S)
            try:
                keep_lease(self.services, self.lease.token)
            except Gone:
                world.note("late_beat_refused")
                use.late = "gone"
                return
            except HerdsmanError:
                continue
            use.late = "kept"
            return

    def _beat(self) -> bool:
        """Whether it is still ours, as far as we know."""
        world, self._beaten = self.world, self.world.now
        try:
            keep_lease(self.services, self.lease.token)
        except Gone:
            world.note("lease_gone")
            return False
        except OutcomeUnknown:
            self._heard = world.now
        except HerdsmanError:
            world.note("beat_not_heard")
        else:
            self._heard, self.deadline = world.now, self._beaten + TRUSTED_S
        return True


NODE = "rack"
GPUS = ("GPU-rack-0", "GPU-rack-1")
TOTAL_MB = 24_000
REPORT_S = 4.0
DANGER = 4.0
ASKED_TWICE = 2


class LeaseClients:
    def __init__(self, world: World, services: Services, holders: int) -> None:
        self._world = world
        self._services = replace(services, leasing=POLICY)
        self._holders = holders
        self._numbers: Iterator[int] = count(1)
        self._used: dict[str, tuple[str, int]] = {}
        """What is really in use: each token's GPU and memory."""

    def start(self) -> None:
        world = self._world
        keeper = world.process(NODE)
        keeper.danger = 0.0
        world.start(keeper, "reports", self._report)
        for number in range(self._holders):
            process = world.process(f"holder-{number + 1}")
            process.danger = DANGER
            world.start(process, "main", lambda process=process: self._hold_some(process))

    def _report(self) -> None:
        """What its driver sees, again and again."""
        while True:
            used = Counter[str]()
            for gpu, memory in self._used.values():
                used[gpu] += memory
            devices = [
                GpuDevice(index=index, uuid=gpu, name="world", total_mb=TOTAL_MB, used_mb=used[gpu])
                for index, gpu in enumerate(GPUS)
            ]
            try:
                report_gpus(self._services, NODE, devices)
            except StoreUnavailable:
                self._world.note("report_lost")
            self._world.scheduler.sleep(REPORT_S)

    def _hold_some(self, process: Process) -> None:
        world = self._world
        while world.troubled:
            world.scheduler.sleep(world.random.uniform(0.5, 6))
            sent = world.now  # the time of a lease counts from here at the earliest
            lease = self._ask(process.name)
            if lease is None:
                continue
            process.on_death = partial(self._used.pop, lease.token, None)
            holder = LeaseClient(world, self._services, lease, self._used, deadline=sent + TRUSTED_S)
            # One that hears of its lease too late uses nothing of it.
            if world.now < holder.deadline:
                holder.work(asked=sent)
            self._used.pop(lease.token, None)
            try:
                release_lease(self._services, lease.token, who=process.name)
            except HerdsmanError:
                world.note("lease_not_released")

    def _ask(self, name: str) -> Lease | None:
        chance = self._world.random
        spec = LeaseSpec(memory_mb=chance.choice((6_000, 12_000, 20_000)), exclusive=chance.random() < 0.2, node=NODE)
        token = f"lease-of-{name}-{next(self._numbers):06}"
        asked = LeaseRequest(agent=name, spec=spec, ttl=TTL, token=token)
        for _ in range(ASKED_TWICE):  # an answer that was lost is asked for again, in the same words
            try:
                found = grant_lease(self._services, asked, new_token=lambda: token, who=name)
            except StoreUnavailable:
                continue
            except HerdsmanError:
                return None
            return found if isinstance(found, Lease) else None
        return None


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


REOPENED_S = 15.0
"""A replica that died is back after so long at the latest."""
AT = "@"
"""Between a worker and its machine, in the name of a process."""
WORKER_DANGER = 5.0
STAYS_DEAD = 0.5
SECOND_S = (8.0, 30.0)
"""When replicas are started on a second database: early, so that what it must not do has its time to happen."""
OTHER_DATABASES = (Fault.COPIED_DATABASE, Fault.FRESH_DATABASE, Fault.RESTORED_DATABASE)
BACKUP_AGE_S = (5.0, 40.0)
LOST_IN_OUTAGE = 0.7
"""The share of long outages of the database in which a machine dies."""
SECOND_INSTALLATION = "1" * 12
"""The identity of a second database that has copied none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a seed begins with."""

    orchestrators: int
    demand: Demand
    most_workers: int = MOST_WORKERS
    min_workers: int = 0
    streams: bool = False
    """Whether there is a Redis."""
    holders: int = 0
    """Programs of others that lease GPUs."""
    bootstrap: bool = False
    """Whether machines are given a token that is good once; else their workers register as those of a person do."""
    token_life: timedelta = timedelta(seconds=90)


class WatchedLeadership(Leadership):
    """The real one; whose fence lets somebody write is noted."""

    world: World

    def fence(self, tx: Tx, epoch: int) -> None:
        super().fence(tx, epoch)
        self.world.books.writes.append(LeaderWrite(holder=self.holder, epoch=epoch, at=self.world.now))


def worker_of(process: str) -> str:
    return process.partition(AT)[0]


class Simulation:
    def __init__(self, world: World, database: WorldDatabase, setting: Setting) -> None:
        self.world = world
        self.database = database
        self.setting = setting
        timing = Timing()
        fleet = replace(timing.fleet, max_workers=setting.most_workers, min_workers=setting.min_workers)
        self.timing = replace(timing, fleet=fleet)
        self.cloud = Cloud(world, self._boot)
        self.provider = WorldProvider(self.cloud)
        self.wakeup = Wakeup(world)
        self.redis = WorldRedis(world, NAMES) if setting.streams else None
        self._submit_api = None if self.redis is None else SubmitApi(world, self.redis, self.wakeup)
        self.users = Users(world, self._services(), database, setting.demand, self._submit_api)
        self._replicas = count(1)
        self._workers = count(1)
        self._service = WorldService(world)
        self._keyring = Keyring(pepper=bytes(32), worker_life=setting.token_life, new_bytes=world.random.randbytes)
        self.supervisors: dict[str, Process] = {}
        """All that ever were, by their full names."""
        self._leaderships: dict[Process, Leadership] = {}
        self.copies: list[DatabaseCopy] = []
        self.second_replicas: set[str] = set()
        """The names of those that were started on a second database."""
        self._born: dict[Process, Machine | None] = {}
        world.replace = self._replace
        world.on_long_outage = self._lose_machine
        self.restores: list[Restore] = []

    def start(self) -> None:
        world = self.world

        def use_other_database() -> None:
            if world.strikes(Fault.RESTORED_DATABASE):
                self._restore_database()
                return
            world.scheduler.sleep(world.random.uniform(*SECOND_S))
            if world.strikes(Fault.COPIED_DATABASE):
                self._open_second_database(copied=True)
            elif world.strikes(Fault.FRESH_DATABASE):
                self._open_second_database(copied=False)

        for _ in range(self.setting.orchestrators):
            self._open_replica()
        self.users.start()
        self.world.start(self.cloud.keeper, "leftover", self.cloud.leave_behind)
        if any(map(self.world.hazards.rate, OTHER_DATABASES)):
            self.world.start(self.cloud.keeper, "second", use_other_database)
        if self.setting.holders:
            LeaseClients(self.world, self._services(), self.setting.holders).start()

    def repair(self) -> None:
        """The faults are over: what they took away for good is put back, by a person or by the machine's own guard."""
        self.provider.refuses = False
        self.users.repair()

    def _later(self, name: str, seconds: tuple[float, float], work: Callable[[], None]) -> None:
        def wait_and_work() -> None:
            self.world.scheduler.sleep(self.world.random.uniform(*seconds))
            work()

        self.world.start(self.cloud.keeper, name, wait_and_work)

    def _services(self) -> Services:
        return Services(self.database, self.timing.jobs, lambda: JobId(f"made-{next(self.world.numbers)}"))

    def _answering(self) -> list[Leadership]:
        now = self.world.now
        return [
            leadership
            for process, leadership in self._leaderships.items()
            if process.alive and process.stopped_until <= now and process.cut_off_until <= now
        ]

    def _open_replica(self, departed: tuple[str, ...] = ()) -> None:
        """`departed` are the replicas that it is started after, where they have ended."""
        world = self.world
        process = world.process(f"replica-{next(self._replicas)}")
        self._born[process] = None
        services = self._services()
        access = WorkerAccess(services=services, keyring=self._keyring, url="the simulation")
        environment_of = access.environment if self.setting.bootstrap else by_name_only
        replica = self._build_replica(
            services, process, self.provider, self.timing, environment_of, departed, self.redis
        )
        self._leaderships[process] = replica.control.leadership

        def reopen() -> None:
            """By whatever keeps services running there."""
            world.tell(process.name, "died")
            after = (*departed, process.name)
            self._later("guard", (0.5, REOPENED_S), lambda: self._open_replica(after))

        process.on_death = reopen
        world.start(process, "main", lambda: replica.run(WorldEvent(world.scheduler)))
        if replica.state.bus is not None and self._submit_api is not None:
            self._submit_api.buses[process] = replica.state.bus
        replica.start()

    def _build_replica(
        self,
        services: Services,
        process: Process,
        provider: WorldProvider,
        timing: Timing,
        environment_of: Callable[[WorkerId, PoolId], Mapping[str, str]] = by_name_only,
        departed: tuple[str, ...] = (),
        redis: WorldRedis | None = None,
    ) -> Replica:
        """By the functions of `herdsman serve`, with what is outside of a replica taken from the simulation."""
        world, wakeup, threads = self.world, self.wakeup, WorldThreads(self.world.scheduler, process)
        # Workers ask it, too, and its clock is its own whoever asks.
        clock = WorldClock(world.scheduler, process)
        leadership = WatchedLeadership(services.database, clock, process.name, timing.leader, departed=departed)
        leadership.world = world
        control = build_control(
            services,
            provider,
            leadership,
            pools={DEFAULT_POOL: timing.fleet},
            name_of=name_of,
            environment_of=environment_of,
            new_worker_id=lambda: WorkerId(f"w{next(self._workers)}"),
            new_installation_id=lambda: INSTALLATION,
            clock=clock,
            threads=threads,
            replayable_for=None,  # it is never asked again, and would take as long as the cycle itself
        )
        state = build_state(
            services,
            self._keyring,
            clock=clock,
            control=control,
            open_bus=None if redis is None else lambda _: a_bus(world, redis, services, process, control, wakeup),
            wake_others=wakeup.notify,
        )
        return build_replica(state, control, timing.loops, clock=clock, threads=threads)

    def _restore_database(self) -> None:
        """A backup is made, and later takes the place of the database, with every replica stopped as the docs ask for.

        An operator adopts it when it has said that it went back in time.
        """
        world, scheduler, chance = self.world, self.world.scheduler, self.world.random
        # Machines that no listing shows hide that the database went back, until its new numbers have overtaken theirs.
        for hides in (Fault.LISTING_EMPTY, Fault.LISTING_LAG, Fault.SPAWN_LATE):
            world.hazards.rates.pop(hides, None)
        # Early, so that more machines are started after it.
        while (known := self.database.installation()) is None or not known.spawned:
            scheduler.sleep(1)
        scheduler.sleep(chance.uniform(0, 10))
        image, spawned = self.database.backup()
        scheduler.sleep(chance.uniform(*BACKUP_AGE_S))
        for process in [*self._leaderships]:
            scheduler.kill(process)
        world.outage(chance.uniform(1, REOPENED_S))
        self.database.restore(image)
        restore = Restore(at=world.now, spawned=spawned)
        self.restores.append(restore)
        world.tell(self.cloud.keeper.name, "restored the database")
        if not world.troubled:
            self.users.repeat()
        while (known := self.database.installation()) is None or not (known.held and known.raised):
            scheduler.sleep(1)
        world.note("restore_recognised")
        self.restores[0] = restore = replace(restore, recognised_at=world.now)
        scheduler.sleep(chance.uniform(5, 60))
        operator = self._build_replica(self._services(), self.cloud.keeper, self.provider, self.timing)
        while True:
            try:
                adopt(operator.control.reconciler)
            except HerdsmanError:
                scheduler.sleep(2)
            else:
                break
        self.restores[0] = replace(restore, adopted_at=world.now)

    def _lose_machine(self, seconds: float) -> None:
        """What takes the database away for long may take a machine along, at any time of the outage."""
        world = self.world
        if world.random.random() >= LOST_IN_OUTAGE:
            return

        def destroy() -> None:
            living = [machine for machine in self.cloud.living() if machine.processes]
            if living:
                world.note("died_in_an_outage")
                self.cloud.destroy(world.random.choice(living), by_us=False)

        self._later("outage", (0, seconds), destroy)

    def _open_second_database(self, *, copied: bool) -> None:
        """Somebody starts replicas on a copy, or on an empty database, with the settings of the first ones.

        They live to the end of the simulation, and their database hears from none of the workers.
        """
        world, name = self.world, "copy" if copied else "fresh"
        database = self.database.beside(world, copied=copied, installation_id=SECOND_INSTALLATION)
        known = database.installation()
        if copied and known is not None and known.id == INSTALLATION:
            self.copies.append(DatabaseCopy(name=name, of=ORIGINAL, since=world.now))
        fleet = replace(self.timing.fleet, min_workers=1, max_workers=1)
        timing, provider = replace(self.timing, fleet=fleet), WorldProvider(self.cloud, name)
        services = Services(database, timing.jobs, lambda: JobId(f"made-{next(world.numbers)}"))
        for number in range(world.random.choice((1, 1, 2))):
            process = world.process(f"{name}-{number + 1}")
            process.danger = 0.0
            self.second_replicas.add(process.name)
            replica = self._build_replica(services, process, provider, timing)
            world.start(process, "main", partial(replica.run, WorldEvent(world.scheduler)))

    def _boot(self, machine: Machine) -> None:
        world = self.world
        process = world.process(f"{machine.request.worker_id}{AT}{machine.ref}")
        # It says less than a replica does, and so would be struck less often.
        process.danger = WORKER_DANGER
        self._born[process] = machine
        machine.processes.append(process)
        self.supervisors[process.full_name] = process
        process.on_death = partial(self._restart, machine)

        def work() -> None:
            services = self._services()
            authenticator = Authenticator(services, world.clock, self._keyring)
            gate = Gate(services, self._keyring, authenticator, self._answering)
            end = partial(self.cloud.destroy, machine, by_us=True)
            nap = None if self.redis is None else self.wakeup
            run_worker(world, services, process, machine.request, self.timing, gate, self._service, end, nap)

        world.start(process, "main", work)

    def _restart(self, machine: Machine) -> None:
        """Some machines start what has died once more, under the same name; others stay as they are."""
        world = self.world
        if machine.died is not None or world.random.random() < STAYS_DEAD:
            return

        def boot() -> None:
            if machine.died is None:
                world.note("restarted_in_place")
                self._boot(machine)

        self._later("guard", (0.5, 6), boot)

    def _replace(self, process: Process) -> None:
        """Its successor is started, though it will wake again."""
        if process not in self._born:
            return
        machine = self._born[process]
        if machine is None:
            self._open_replica()
        elif machine.died is None:
            self._boot(machine)
