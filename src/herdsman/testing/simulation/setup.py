"""Builds and starts everything that takes part in one seed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import count

from herdsman.access.authenticator import Authenticator, Keyring
from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.errors import HerdsmanError
from herdsman.fleet.execute import WorkerAccess, by_name_only
from herdsman.fleet.leader import Leadership
from herdsman.fleet.reconcile import adopt
from herdsman.ids import DEFAULT_POOL, JobId, PoolId, WorkerId
from herdsman.server.replica import Replica, build_replica
from herdsman.server.state import build_state
from herdsman.server.wiring import build_control
from herdsman.testing.simulation.checks.history import DatabaseCopy, LeaderWrite, Restore
from herdsman.testing.simulation.external_service import WorldService
from herdsman.testing.simulation.faults import Fault
from herdsman.testing.simulation.lease_clients import LeaseClients
from herdsman.testing.simulation.scheduler import Process
from herdsman.testing.simulation.sim_bus import NAMES, Wakeup, a_bus
from herdsman.testing.simulation.sim_cloud import INSTALLATION, ORIGINAL, Cloud, Machine, WorldProvider, name_of
from herdsman.testing.simulation.sim_database import WorldDatabase
from herdsman.testing.simulation.sim_redis import WorldRedis
from herdsman.testing.simulation.sim_worker import Gate, run_worker
from herdsman.testing.simulation.threads import WorldClock, WorldEvent, WorldThreads
from herdsman.testing.simulation.timing import MOST_WORKERS, Timing
from herdsman.testing.simulation.users import Demand, SubmitApi, Users
from herdsman.testing.simulation.world import World

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
