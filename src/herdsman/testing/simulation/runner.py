"""Runs one seed: builds a simulation, injects faults, waits until it settles, and checks what happened."""

import json
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from math import inf
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from random import Random
from typing import Any, TypeVar, cast

from sqlalchemy import Select, select

from herdsman.db.connection import Database, Tx
from herdsman.db.schema import audit, job_attempts, job_view, leases, pools, workers
from herdsman.db.statements import PreparedStatement
from herdsman.errors import InvalidRequest
from herdsman.redis.sql import recent_dead
from herdsman.states import JOB
from herdsman.telemetry.logs import configure_logs
from herdsman.testing.simulation.checks import history as told
from herdsman.testing.simulation.checks import violations
from herdsman.testing.simulation.checks.audit import end_of
from herdsman.testing.simulation.faults import Fault, drawn, parse_faults
from herdsman.testing.simulation.scheduler import Scheduler
from herdsman.testing.simulation.setup import GPUS, REOPENED_S, TOTAL_MB, Setting, Simulation, worker_of
from herdsman.testing.simulation.sim_bus import NAMES
from herdsman.testing.simulation.sim_database import WorldDatabase
from herdsman.testing.simulation.users import JOB_S, Demand
from herdsman.testing.simulation.world import ZERO, World

T = TypeVar("T")
_SECOND = timedelta(seconds=1)


class _Reading:
    """All rows of a table, as objects of a class: each field comes from the column of its name, or from the one given."""

    def __init__(self, table: Any, row: type[Any], order: str = "", **given: str) -> None:
        columns = {**{each.name: each.name for each in fields(row)}, **given}
        self.names = tuple(name for name, column in columns.items() if column in table.c)
        query: Select[Any, *tuple[Any, ...]] = select(*(table.c[columns[name]] for name in self.names))
        self.statement = PreparedStatement(query.order_by(table.c[order]) if order else query)


# Moves are in the order of the numbers, which on a server is nearly that of the commits; of one object it is exactly that.
_MOVED = {"kind": "object_kind", "id": "object_id", "old": "from_status", "new": "to_status", "at": "ts"}
_MOVES = _Reading(audit, told.Move, "id", details="details", **_MOVED)
_JOBS = _Reading(job_view, told.JobRow, id="job_id")
_WORKERS = _Reading(workers, told.WorkerRow, instance="instance_name")
_POOLS = _Reading(pools, told.Row, id="pool_id")
_LEASES = _Reading(leases, told.LeaseRow, id="token", gpu="gpu_uuid", seq="lease_seq")
_ATTEMPTS = _Reading(job_attempts, told.AttemptRow, token="claim_token", worker="worker_id")


def read_history(database: Database, *, zero: datetime) -> told.History:
    """Moves, rows and attempts of everything, seen at one moment; times are seconds since `zero`.

    What happened outside of the database is the caller's to add, with `dataclasses.replace`.
    """

    def load(tx: Tx, make: Callable[..., T], reading: _Reading) -> Iterator[T]:
        for row in tx.rows(reading.statement, {}):
            values = ((each - zero) / _SECOND if isinstance(each, datetime) else each for each in row)
            yield make(**dict(zip(reading.names, values, strict=True)))

    def read(tx: Tx) -> told.History:
        return told.History(
            moves=tuple(load(tx, _move, _MOVES)),
            rows=(
                *load(tx, _job, _JOBS),
                *load(tx, told.WorkerRow, _WORKERS),
                *load(tx, partial(told.Row, kind="pool"), _POOLS),
                *load(tx, told.LeaseRow, _LEASES),
            ),
            attempts=tuple(load(tx, told.AttemptRow, _ATTEMPTS)),
        )

    return database.read(read)


def _move(*, kind: str, details: Mapping[str, Any], **known: Any) -> told.Move:
    return told.Move(kind=kind, token=details.get("claim_token") if kind == "job" else None, **known)


def _job(*, result: str | None, **known: Any) -> told.JobRow:
    return told.JobRow(result=None if result is None else json.loads(result), **known)


def only(history: told.History, *kinds: str) -> told.History:
    """Without the moves and rows of all other kinds: for those that were not left alone long enough."""
    return replace(
        history,
        moves=tuple(move for move in history.moves if move.kind in kinds),
        rows=tuple(row for row in history.rows if row.kind in kinds),
    )


_WORK = (NAMES.jobs, NAMES.ingest, NAMES.preloads)
_EVER, _ALL = timedelta(days=1), 1000
_MADE_UP = "there is no job"
"""So begins the reason of a letter about an entry that no job stands behind."""


def hints_of(simulation: Simulation) -> told.Hints | None:
    """None in a world without streams."""
    if simulation.redis is None:
        return None
    logs = simulation.redis.logs
    found = {stream.name: logs[stream.name] for stream in _WORK if stream.name in logs}
    left = {name: len(log.entries) for name, log in found.items() if log.entries}
    held = {name: sum(len(group.held) for group in log.groups.values()) for name, log in found.items()}
    dead = logs[NAMES.dead].entries.values() if NAMES.dead in logs else ()
    letters = Counter(each["job_id"] for each in dead if not each["last_error"].startswith(_MADE_UP))
    return told.Hints(left=left, held={name: number for name, number in held.items() if number}, letters=letters)


def at_rest(simulation: Simulation) -> bool:
    """Nothing is left over, and every death is announced."""
    hints = hints_of(simulation)
    if hints is None:
        return True
    with simulation.database.aside() as database:
        dead = database.read(lambda tx: recent_dead(tx, _EVER, _ALL))
    return not hints.left and not hints.held and all(each.job_id in hints.letters for each in dead)


FENCED_LATE_S = 4.0
"""What a worker that has woken needs at most to notice it."""
LATE_S = 13.0
"""What words on their way may add to a time that is promised."""
REPORT_S = 10.0
"""What a supervisor needs at most to report an end that it can report, after requests and replies that are lost."""
REPLACED_S = 45.0
"""A leader is elected, three cycles pass, and words on their way may add something."""
MOST_OVERTAKES = 24
"""Some wait for a service that is away, or for a type that is paused."""


_AS_BOOKED = ("cancels", "receipts", "saves", "renderings", "outages", "cuts", "uses")


def history_of(simulation: Simulation, *, quiet: bool) -> told.History:
    world, books = simulation.world, simulation.world.books
    with simulation.database.aside() as database:
        recorded = read_history(database, zero=ZERO)
    # Which ways jobs and workers went, and whether the lead passed on.
    for kind, reason in {(move.kind, move.reason) for move in recorded.moves}:
        world.note(f"{kind}:{reason}")
    writes = [each for each in books.writes if each.holder not in simulation.second_replicas]
    if len(writes) < len(books.writes):
        world.note("second_database_led")
    if len({write.epoch for write in writes}) > 1:
        world.note("leader_changed")
    return replace(
        recorded,
        **{name: tuple(getattr(books, name)) for name in _AS_BOOKED},
        submissions=tuple(books.submissions.values()),
        runs=tuple(_measured(simulation, run, recorded) for run in books.runs),
        healthy=tuple(_healthy(simulation)),
        pods=simulation.cloud.ledger(),
        ends=tuple(simulation.cloud.ends),
        copies=tuple(simulation.copies),
        restores=tuple(simulation.restores),
        writes=tuple(writes),
        gpu_mb=dict.fromkeys(GPUS, TOTAL_MB),
        hints=hints_of(simulation),
        limits=_limits(simulation),
        last_fault_at=max(world.last_fault_at, world.all_well_at) + REOPENED_S,
        ended_at=world.now,
        quiet=quiet,
        notes=dict(world.notes),
    )


def _measured(simulation: Simulation, run: told.Run, recorded: told.History) -> told.Run:
    """How long its supervisor lived on, awake, not cut off, and with a database, before the claim was over.

    A clock that is set forward ends claims at once, which excuses a run. A supervisor that stands still does not: its
    handler ends itself.
    """
    jumped = max((at for at in simulation.world.books.jumped if at < end_of(run)), default=-inf)
    run = replace(run, excused_until=jumped + _fence_s(simulation))
    attempt = next((each for each in recorded.attempts if (each.job_id, each.token) == (run.job_id, run.token)), None)
    if run.ended is None or attempt is None or attempt.ended_at is None:
        return run
    books = simulation.world.books
    until = min(attempt.ended_at, simulation.supervisors[run.process].over_at or inf)
    unable = [
        *books.outages,
        *((since, woken) for name, since, woken in books.stood if name == run.process.partition(" of ")[0]),
        *((cut.since, cut.until) for cut in books.cuts if cut.process == run.process),
    ]
    # What is left of a span without those that are taken out of it, which may overlap.
    left, at = 0.0, run.ended
    for begins, ends in sorted(unable):
        left += max(0.0, min(begins, until) - at)
        at = max(at, ends)
    return replace(run, able_s=left + max(0.0, until - at))


def _healthy(simulation: Simulation) -> Iterator[told.Health]:
    """Only of workers that had one process: of two that share a name, nobody can tell which one was heard."""
    books, names = simulation.world.books, Counter(worker_of(name) for name in simulation.supervisors)
    for name, process in simulation.supervisors.items():
        if names[worker_of(name)] > 1:
            continue
        since, over = process.started_at, process.over_at or inf
        ill = [(began, woken) for short, began, woken in books.stood if short == process.name]
        ill += [(cut.since, cut.until) for cut in books.cuts if cut.process == name]
        for began, ended in (*sorted(ill), (over, over)):
            yield told.Health(worker=worker_of(name), since=since, until=min(began, over))
            since = max(since, ended)


def _fence_s(simulation: Simulation) -> float:
    return simulation.timing.self_fence.total_seconds() + FENCED_LATE_S


def _limits(simulation: Simulation) -> told.Limits:
    """A clock that jumps leaves no way to tell how long something took."""
    jumped = simulation.world.notes[f"fault:{Fault.CLOCK_JUMP}"]
    timing = simulation.timing
    # A leader that was lost without a trace may have promised workers to let them go on (docs/decisions/0021).
    rescue = timing.jobs.claim_ttl + timing.loops.sweep + timing.leader.hold
    return told.Limits(
        most_pods=simulation.setting.most_workers,
        most_worker_losses=timing.jobs.retry.max_worker_losses,
        most_interruptions=timing.jobs.retry.max_interruptions,
        most_overtakes=MOST_OVERTAKES,
        fence_s=_fence_s(simulation),
        one_clock=not jumped,
        report_s=None if jumped else REPORT_S,
        replaced_s=None if jumped else REPLACED_S,
        rescue_s=None if jumped else rescue.total_seconds() + LATE_S,
    )


EVERYTHING = "all"
NAMED_SHARE = 0.25
"""Of the worlds in which there is room for it, so many have a pool that a person asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    said: str
    """One sentence for a person who chooses."""
    faults: str
    """What may go wrong, as `parse_faults` reads it; each seed draws some of them."""
    setting: Callable[[Random], Setting]
    """The same for the same state of chance."""


def scenario_named(name: str) -> Scenario:
    """`InvalidRequest` with the names that there are, for one that is not among them."""
    if name not in SCENARIOS:
        raise InvalidRequest(f"--scenario is {name!r}: write one of {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


def _anything(chance: Random) -> Setting:
    most_workers, min_workers = chance.randint(1, 3), chance.choice((0, 0, 1, 2))
    unserved = chance.choice((0, 0, 0, 1, 2))
    demand = Demand(
        jobs=chance.randint(4, 14),
        cancels=chance.randint(0, 3),
        drains=chance.choice((0, 0, 1)),
        requeues=chance.choice((0, 0, 1)),
        pauses=chance.choice((0, 0, 0, 1)),
        unserved=unserved,
        # What nobody can run keeps the workers of the default pool, and they share one ceiling.
        named_pool=not unserved and most_workers > max(1, min_workers) and chance.random() < NAMED_SHARE,
    )
    return Setting(
        orchestrators=chance.choice((1, 1, 2, 3)), demand=demand, most_workers=most_workers, min_workers=min_workers
    )


def _cancel(chance: Random) -> Setting:
    jobs = chance.randint(6, 14)
    demand = Demand(jobs=jobs, cancels=jobs, requeues=chance.randint(0, 2))
    return Setting(orchestrators=chance.choice((1, 2)), demand=demand, most_workers=2)


def _drawn(**wanted: range | tuple[int, ...] | int) -> Callable[[Random], Setting]:
    """From fields of `Demand` and `Setting`: of a range or a tuple each seed draws one, in the order in which they stand."""

    def setting(chance: Random) -> Setting:
        found: dict[str, Any] = {
            name: chance.choice(each) if isinstance(each, range | tuple) else each for name, each in wanted.items()
        }
        asked = {each.name: found.pop(each.name) for each in fields(Demand) if each.name in found}
        return Setting(demand=Demand(**asked), **found)

    return setting


SCENARIOS: Mapping[str, Scenario] = {
    EVERYTHING: Scenario(said="Something of everything, drawn anew by each seed.", faults="all", setting=_anything),
    "jobs": Scenario(
        said="One replica and many jobs, over a network and to a database that lose words.",
        faults="cut_before,cut_after,rolled_back,contended,lost_request,lost_reply,doubled_request,"
        "crash,failing_handler",
        setting=_drawn(jobs=range(20, 31), requeues=1, orchestrators=1, most_workers=range(1, 4)),
    ),
    "fleet": Scenario(
        said="At most two machines, of a provider that lies, forgets and is slow.",
        faults="no_capacity,provider_away,rejected,spawn_unanswered,spawn_vanished,spawn_late,listing_lag,"
        "listing_empty,find_lies,end_ignored,end_unanswered,preempted,leftover,"
        "provider_out,dies_at_start,never_boots,crash",
        setting=_drawn(jobs=range(4, 11), drains=range(3), orchestrators=1, most_workers=2, min_workers=(0, 1, 2)),
    ),
    "leader": Scenario(
        said="Three replicas that die, stand still, are replaced too early, and wake again.",
        faults="crash,stop,twin,partition,cut_after,rolled_back,database_away,clock_jump",
        setting=_drawn(jobs=range(4, 11), cancels=range(2), orchestrators=3, most_workers=2),
    ),
    "poison": Scenario(
        said="Jobs that kill, crash, fail, or hang whatever runs them.",
        faults="poison,crashing_handler,failing_handler,hanging_handler,deaf_handler,lost_reply",
        setting=_drawn(jobs=range(6, 15), requeues=range(3), orchestrators=1, most_workers=range(1, 4)),
    ),
    "cancel": Scenario(
        said="As many cancels as jobs, some of which do not hear them.",
        faults="deaf_handler,hanging_handler,crash,stop,lost_request,lost_reply,doubled_request,cut_after",
        setting=_cancel,
    ),
    "agents": Scenario(
        said="Agents that take turns, and some of whose jobs no worker can run.",
        faults="crash,stop,lost_request,lost_reply,cut_after,contended,failing_handler",
        setting=_drawn(
            jobs=range(6, 13), unserved=range(1, 4), pauses=range(2), orchestrators=(1, 2), most_workers=range(1, 3)
        ),
    ),
    "pools": Scenario(
        said="A pool that a person asks for, beside the one of the settings.",
        faults="crash,stop,lost_reply,cut_after,no_capacity,preempted,never_boots",
        setting=_drawn(
            jobs=range(6, 13), drains=(0, 1), named_pool=True, orchestrators=(1, 2), most_workers=range(2, 4)
        ),
    ),
    "leases": Scenario(
        said="Programs of others that lease GPUs, die, stand still, and are cut off.",
        faults="crash,stop,partition,cut_before,cut_after,rolled_back,contended,database_away",
        setting=_drawn(jobs=range(2, 7), orchestrators=(1, 2), most_workers=1, holders=5),
    ),
    "streams": Scenario(
        said="A Redis that comes and goes, forgets, and holds what nobody of ours has put there.",
        faults="bus_away,bus_flushed,bus_unanswered,stream_deleted,entry_lost,entry_doubled,entry_forged,"
        "crash,cut_after",
        setting=_drawn(
            jobs=range(6, 15), cancels=range(2), drains=(0, 0, 1), orchestrators=(1, 2), most_workers=2, streams=True
        ),
    ),
    "databases": Scenario(
        said="A fleet with a second database beside its own, a copy or an empty one, or with a restored backup.",
        faults="copied_database,fresh_database,restored_database,database_out,crash,preempted,listing_lag,spawn_unanswered",
        setting=_drawn(jobs=range(4, 9), orchestrators=(1, 2), most_workers=2, min_workers=(1, 2)),
    ),
}


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
