"""Reads the part of a history that the database recorded.

There is no limit on any of these reads: they are for fleets that are over and small, those of tests and simulations.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from functools import partial
from math import inf
from typing import Any, TypeVar

from sqlalchemy import Select, select

from herdsman.db.connection import Database, Tx
from herdsman.db.schema import audit, job_attempts, job_view, leases, pools, workers
from herdsman.db.statements import PreparedStatement
from herdsman.redis.sql import recent_dead
from herdsman.testing.simulation.checks import history as told
from herdsman.testing.simulation.checks.audit import end_of
from herdsman.testing.simulation.faults import Fault
from herdsman.testing.simulation.lease_clients import GPUS, TOTAL_MB
from herdsman.testing.simulation.setup import REOPENED_S, Simulation, worker_of
from herdsman.testing.simulation.sim_bus import NAMES
from herdsman.testing.simulation.world import ZERO

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
