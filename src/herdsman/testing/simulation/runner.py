"""Runs one seed: builds a simulation, injects faults, waits until it settles, and checks what happened."""

import signal
import traceback
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import islice
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from random import Random
from typing import cast

from herdsman.states import JOB
from herdsman.telemetry.logs import configure_logs
from herdsman.testing.simulation.checks import violations
from herdsman.testing.simulation.event_log import at_rest, history_of
from herdsman.testing.simulation.faults import Fault, drawn, parse_faults
from herdsman.testing.simulation.scenarios import EVERYTHING, SCENARIOS, Scenario, scenario_named
from herdsman.testing.simulation.scheduler import Scheduler
from herdsman.testing.simulation.setup import Simulation
from herdsman.testing.simulation.sim_database import WorldDatabase
from herdsman.testing.simulation.users import JOB_S
from herdsman.testing.simulation.world import World

TROUBLE_S = (40.0, 80.0)
PATIENCE_S = 500.0
"""After the last fault everything comes to its end before nobody has been at work for so long in all: machines are
lost and replaced, claims expire, retries wait."""
LOOK_S = 10.0
AWAKE_S = 30.0
"""Who was stopped has found out by then what became of its job."""
HOLDERS = (0, 0, 0, 2, 4)
"""Programs that lease GPUs."""
BOOTSTRAPPED = 0.5
"""The share of worlds whose machines are given a token that is good once."""
LONG_TOKEN = timedelta(seconds=600)
"""As in production, no outage of the database outlasts the token of a worker: it could not be renewed, and a worker
that is well would leave when the database is back."""
STREAMED = 0.5
"""The share of worlds that have a Redis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    seed: int
    hash: str
    violations: tuple[str, ...]
    notes: dict[str, int] = field(default_factory=dict[str, int])
    story: tuple[str, ...] = ()
    """The last steps."""
    jobs: int = 0
    turns: int = 0
    lasted_s: float = 0.0


def run_seed(
    seed: int,
    allowed: frozenset[Fault],
    database: WorldDatabase,
    tail: int = 60,
    scenario: Scenario = SCENARIOS[EVERYTHING],
) -> Ran:
    chance = Random(seed)
    hazards = drawn(sorted(allowed), chance)
    world = World(seed, hazards, chance.uniform(*TROUBLE_S))
    setting = scenario.setting(chance)
    streams, holders = chance.random() < STREAMED or setting.streams, chance.choice(HOLDERS)
    # Whoever holds a lease counts with the database's clock: when that is set forward, it is late without a fault.
    steady = not hazards.rate(Fault.CLOCK_JUMP)
    setting = replace(
        setting,
        streams=streams,
        holders=max(setting.holders, holders) if steady else 0,
        bootstrap=chance.random() < BOOTSTRAPPED,
        token_life=LONG_TOKEN if hazards.rate(Fault.DATABASE_OUT) else setting.token_life,
    )
    simulation = Simulation(world, database, setting)
    database.enter(world)
    simulation.start()
    world.scheduler.run(world.faults_until)
    simulation.repair()
    quiet = _settle(simulation)
    wrong = [
        f"broken: {strand.process.name}/{strand.name} ended with {''.join(traceback.format_exception(error))}"
        for strand, error in world.scheduler.broken
    ]
    if not wrong:
        unrest = [] if quiet else [f"unrest: not everything came to its end until {world.now:.3f}"]
        wrong = [*unrest, *violations(history_of(simulation, quiet=True))]
    world.scheduler.close()
    return Ran(
        seed=seed,
        hash=world.hash(),
        violations=tuple(wrong),
        notes=dict(world.notes),
        story=tuple(f"{at:9.3f}  {who:<14} {what}" for at, who, what in world.steps[-tail or len(world.steps) :]),
        jobs=len(world.books.submissions),
        turns=world.scheduler.turns,
        lasted_s=world.now,
    )


def _settle(simulation: Simulation) -> bool:
    """Whether everything came to its end in time.

    How long work takes is for the jobs to say: many long ones, each tried three times on one machine, take their time.
    """
    world, users = simulation.world, simulation.users
    scheduler: Scheduler = world.scheduler
    most_work_s = simulation.setting.demand.jobs * max(JOB_S) * simulation.timing.jobs.max_attempts
    idle_s, until = 0.0, max(scheduler.now, world.all_well_at) + PATIENCE_S + most_work_s
    while idle_s < PATIENCE_S and scheduler.now < until and not scheduler.broken:
        scheduler.run(scheduler.now + LOOK_S)
        if scheduler.now > world.all_well_at and all(run.ended is not None for run in world.books.runs):
            idle_s += LOOK_S
        awake = scheduler.now > world.all_well_at + AWAKE_S
        if awake and users.content and _is_quiet(simulation) and at_rest(simulation):
            return True
    return False


def _is_quiet(simulation: Simulation) -> bool:
    ended = ", ".join(f"'{status}'" for status in sorted(JOB.terminal))
    with simulation.database.aside() as database:
        unended, unsettled, active = database.read(
            lambda tx: (
                tx.scalar(f"SELECT count(*) FROM orchestrator_jobs WHERE status NOT IN ({ended})"),
                tx.scalar("SELECT count(*) FROM workers WHERE status NOT IN ('active', 'terminated')")
                + tx.scalar("SELECT count(*) FROM orchestrator_leases WHERE status = 'active'"),
                tx.scalar("SELECT count(*) FROM workers WHERE status = 'active'"),
            )
        )
    settled = active == len(simulation.cloud.living()) and active <= simulation.setting.min_workers
    return unended == 0 and unsettled == 0 and settled


STEPS = 60
"""So many of the last steps of a seed are shown."""
LONGEST_S = 60.0
"""Of computing: hundreds of times what a seed takes, so who needs more goes in circles."""
NO_HASH = "-" * 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to run; the words are those of the command line, so that each seed can be run again by itself."""

    seeds: range
    scenario: str = EVERYTHING
    faults: str = "all"
    steps: int = STEPS

    def replay(self, seed: int) -> str:
        return f"herdsman sim run --seed {seed} --faults {self.faults} --scenario {self.scenario}"


class TooLong(BaseException):
    """No `Exception`: the programs of the world would take it for one of their own troubles, and go on."""


class Runner:
    """Runs one seed at a time; to be used by the main thread."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._scenario = scenario_named(order.scenario)
        self._allowed = parse_faults(order.faults)
        self._database = WorldDatabase()

    def run(self, seed: int) -> Ran:
        def end(*_: object) -> None:
            raise TooLong(f"it computed for more than {LONGEST_S:g} s")

        # By the time that this process computes, so that neither a busy machine nor a stopped one is taken for a circle.
        before = signal.signal(signal.SIGPROF, end)
        signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
        try:
            return run_seed(seed, self._allowed, self._database, self._order.steps, self._scenario)
        except (Exception, TooLong) as error:  # noqa: BLE001  (the outermost of this seed)
            # Nobody knows what was left half done in it.
            self._database = WorldDatabase()
            return broken(seed, "".join(traceback.format_exception(error)))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)


def broken(seed: int, reason: str) -> Ran:
    """Of a seed that told no story."""
    return Ran(seed=seed, hash=NO_HASH, violations=(f"broken: {reason.rstrip()}",))


def sweep(order: Order, processes: int) -> Generator[Ran]:
    """Every seed in its order, as soon as it and all before it have been run. Closing it ends the processes."""
    left, done, busy = iter(order.seeds), dict[int, Ran](), dict[Connection, tuple[SpawnProcess, int]]()
    # Each has a hash seed of its own, so that an order that only a set gives would be noticed.
    context = get_context("spawn")
    # It unblocks the signals of whoever starts it, so it is started before they are blocked.
    resource_tracker.ensure_running()

    def start() -> tuple[Connection, SpawnProcess]:
        """A process that does not hear the Ctrl-C of its terminal: who started it will end it."""
        ours, theirs = cast("tuple[Connection, Connection]", connection.Pipe())
        process = context.Process(target=_work, args=(order, theirs), daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        return ours, process

    def end(pipe: Connection, process: SpawnProcess) -> None:
        pipe.close()
        process.join()

    try:
        for seed in islice(left, processes):
            pipe, process = start()
            busy[pipe] = process, seed
            pipe.send(seed)
        for seed in order.seeds:
            while seed not in done:
                for ready in cast("list[Connection]", connection.wait(list(busy))):
                    pipe, (process, at) = ready, busy.pop(ready)
                    following = next(left, None)
                    try:
                        done[at] = pipe.recv()
                    except (EOFError, OSError):
                        # A process that died is the finding of the seed that it was at; another takes its place.
                        end(pipe, process)
                        done[at] = broken(at, f"its process ended with status {process.exitcode}")
                        if following is None:
                            continue
                        pipe, process = start()
                    if following is None:
                        end(pipe, process)
                    else:
                        busy[pipe] = process, following
                        # One that has just died is noticed when its answer is waited for.
                        with suppress(OSError):
                            pipe.send(following)
            yield done.pop(seed)
    finally:
        for process, _ in busy.values():
            process.kill()
        for pipe, (process, _) in busy.items():
            end(pipe, process)


def _work(order: Order, pipe: Connection) -> None:
    """Until nobody is there any more to give seeds."""
    # The programs of the world log as in production, and say things that only its story should tell.
    configure_logs("CRITICAL", "json")
    runner = Runner(order)
    with suppress(EOFError, OSError):
        while True:
            pipe.send(runner.run(pipe.recv()))
