"""What the database refuses or writes by itself, made from the state tables.

Two programs may race, an old one may wake up, a person may type SQL: the rules hold all the same.
Conditions and statements are plain SQL over NEW and OLD that all three databases read alike;
the second half of this file wraps them in each database's words.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Literal

from sqlalchemy import Connection, text

from herdsman.db.schema import in_states
from herdsman.states import HELD, JOB, LEASE, MACHINES, AnyMachine, JobState, LeaseState, Reason

Event = Literal["INSERT", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """No row may change like this."""

    name: str
    table: str
    event: Event
    when: str
    unless: str = "1 = 0"
    """May look into other tables, which `when` may not."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """When a row has changed like this, another is written in the same transaction."""

    name: str
    table: str
    event: Event
    when: str
    statement: str


Guard = Refuse | Write


def all_guards() -> tuple[Guard, ...]:
    machines = (guard for machine in MACHINES for guard in _machine_guards(machine))
    return (*machines, *_job_guards(), *_attempt_guards(), *_lease_guards(), *_audit_guards())


# An end state is left only by a person's requeue, which also makes every old claim stale (J6).
_REQUEUES = in_states((Reason.REQUEUED, Reason.REQUEUED_EDITED), "NEW.reason")
_REOPENING = {JOB.kind: f"{_REQUEUES} AND NEW.claim_token = OLD.claim_token + 1"}

# What counts as a step although the state stays: a cancellation has to be seen in the audit at once.
_CANCEL_ASKED = "(OLD.cancel_requested_at IS NULL AND NEW.cancel_requested_at IS NOT NULL)"
_STEPS_IN_PLACE = {JOB.kind: _CANCEL_ASKED}

_DETAILS = {
    JOB.kind: (
        "'claim_token', NEW.claim_token, 'attempts', NEW.attempts, 'worker_id', NEW.worker_id,"
        " 'last_worker_id', NEW.last_worker_id, 'failure_class', NEW.failure_class"
    )
}


def _machine_guards(machine: AnyMachine) -> Iterator[Guard]:
    kind, table = machine.kind, machine.table
    moved = f"(NEW.status <> OLD.status OR {_STEPS_IN_PLACE.get(kind, '1 = 0')})"
    yield Refuse(
        name=f"{kind}_birth",
        table=table,
        event="INSERT",
        when=f"NOT ({in_states(machine.initial, 'NEW.status')} AND NEW.version = 1)",
        message=f"a new {kind} must begin in an initial state with version 1",
    )
    moves = [_pair(here, there) for here, there in machine.moves.items() if there]
    condition = _REOPENING.get(machine.kind, "1 = 0")
    moves += [f"({_pair(here, there)} AND {condition})" for here, there in machine.reopens.items()]
    legal = " OR ".join(moves)
    yield Refuse(
        name=f"{kind}_moves",
        table=table,
        event="UPDATE",
        when=f"NEW.status <> OLD.status AND NOT ({legal})",
        message=f"illegal move of {table}.status",
    )
    yield Refuse(
        name=f"{kind}_version",
        table=table,
        event="UPDATE",
        when=f"({moved} AND NEW.version <> OLD.version + 1) OR (NOT {moved} AND NEW.version <> OLD.version)",
        message=f"a move of {table} must raise version by one, and nothing else may",
    )
    yield Refuse(
        name=f"{kind}_identity",
        table=table,
        event="UPDATE",
        when=f"NEW.{machine.key} <> OLD.{machine.key}",
        message=f"{table}.{machine.key} never changes",
    )
    yield from _recorded(machine)


def _pair(here: StrEnum, there: frozenset[StrEnum]) -> str:
    return f"(OLD.status = '{here}' AND {in_states(there, 'NEW.status')})"


def _recorded(machine: AnyMachine) -> Iterator[Guard]:
    """One audit row for each step, numbered by the row's own version: no gap, no second one (A1)."""
    steps: tuple[tuple[Event, str, str], ...] = (
        ("INSERT", "NULL", "1 = 1"),
        ("UPDATE", "OLD.status", "NEW.version > OLD.version"),
    )
    for event, before, when in steps:
        yield Write(
            name=f"{machine.kind}_audit_{event.lower()}",
            table=machine.table,
            event=event,
            when=when,
            statement=(
                "INSERT INTO orchestrator_audit (ts, event_type, object_kind, object_id, seq,"
                " from_status, to_status, reason, actor, details)"
                f" VALUES (NEW.updated_at, {_event_type(machine, before)}, '{machine.kind}', NEW.{machine.key},"
                f" NEW.version, {before}, NEW.status, NEW.reason, NEW.actor,"
                f" json_object({_DETAILS.get(machine.kind, '')}))"
            ),
        )


def _event_type(machine: AnyMachine, before: str) -> str:
    cases = " ".join(f"WHEN '{state}' THEN '{machine.kind}.{state}'" for state in machine.states)
    named = f"CASE NEW.status {cases} END"
    if before == "NULL" or machine.kind not in _STEPS_IN_PLACE:
        return named
    return f"CASE WHEN NEW.status = {before} THEN 'job.{Reason.CANCEL_REQUESTED}' ELSE {named} END"


def _job_guards() -> Iterator[Guard]:
    claims = _moves(JobState.PENDING, JobState.CLAIMED)
    rules: Mapping[str, tuple[Event, str, str]] = {
        "job_unclaimed": ("INSERT", "NEW.claim_token <> 0 OR NEW.attempts <> 0", "a new job has no claims"),
        "job_token": (
            "UPDATE",
            f"NEW.claim_token < OLD.claim_token OR ({claims} AND NEW.claim_token <> OLD.claim_token + 1)",
            "claim_token only rises, by one with each claim",
        ),
        "job_cancel": (
            "UPDATE",
            f"NEW.status = '{JobState.DONE}' AND OLD.status <> NEW.status AND OLD.cancel_requested_at IS NOT NULL",
            "a cancelled job is never done",
        ),
        "job_kept": (
            "DELETE",
            f"NOT ({in_states(JOB.terminal, 'OLD.status')})",
            "an accepted job is not deleted before it has ended",
        ),
    }
    for name, (event, when, message) in rules.items():
        yield Refuse(name=name, table=JOB.table, event=event, when=when, message=message)


def _attempt_guards() -> Iterator[Guard]:
    """The history of a job's attempts follows from its moves, so it is written by them."""
    held = in_states(HELD, "OLD.status")
    this = "WHERE job_id = NEW.job_id AND claim_token ="
    opened = (
        "INSERT INTO job_attempts (job_id, claim_token, attempt, worker_id, pool, claimed_at)"
        " VALUES (NEW.job_id, NEW.claim_token, NEW.attempts, NEW.worker_id, NEW.pool, NEW.updated_at)"
    )
    started = f"UPDATE job_attempts SET started_at = NEW.updated_at {this} NEW.claim_token"
    closed = (
        "UPDATE job_attempts SET ended_at = NEW.updated_at, outcome = NEW.status, reason = NEW.reason,"
        f" failure_class = NEW.failure_class, error = NEW.last_error {this} OLD.claim_token"
    )
    writes = {
        "attempt_opened": (_moves(JobState.PENDING, JobState.CLAIMED), opened),
        "attempt_started": (_moves(JobState.CLAIMED, JobState.RUNNING), started),
        "attempt_closed": (f"{held} AND NOT ({in_states(HELD, 'NEW.status')})", closed),
    }
    for name, (when, statement) in writes.items():
        yield Write(name=name, table=JOB.table, event="UPDATE", when=when, statement=statement)


def _lease_guards() -> Iterator[Guard]:
    """A worker's leases end with its last job, whoever ends it: a lease without a claim has no holder (L4, L5)."""
    lost = in_states((Reason.CLAIM_EXPIRED, Reason.KILLS_WORKERS), "NEW.reason")
    yield Write(
        name="lease_follows_claim",
        table=JOB.table,
        event="UPDATE",
        when=f"{in_states(HELD, 'OLD.status')} AND NOT ({in_states(HELD, 'NEW.status')})",
        statement=(
            f"UPDATE {LEASE.table} SET"
            f" status = CASE WHEN {lost} THEN '{LeaseState.EXPIRED}' ELSE '{LeaseState.RELEASED}' END,"
            f" reason = CASE WHEN {lost} THEN '{Reason.CLAIM_EXPIRED}' ELSE '{Reason.JOB_ENDED}' END,"
            " actor = NEW.actor, version = version + 1, updated_at = NEW.updated_at, ended_at = NEW.updated_at"
            f" WHERE worker_id = OLD.worker_id AND status = '{LeaseState.ACTIVE}'"
            f" AND NOT EXISTS (SELECT 1 FROM {JOB.table} j WHERE j.worker_id = OLD.worker_id)"
        ),
    )


def _moves(here: JobState, there: JobState) -> str:
    return f"(OLD.status = '{here}' AND NEW.status = '{there}')"


_OLD_ENOUGH = (
    "EXISTS (SELECT 1 FROM orchestrator_retention r WHERE r.name = 'audit' AND r.prune_before > OLD.ts)"
)
_JOB_GONE = (
    f"OLD.object_kind = '{JOB.kind}' AND NOT EXISTS"
    f" (SELECT 1 FROM {JOB.table} j WHERE j.{JOB.key} = OLD.object_id)"
)


def _audit_guards() -> Iterator[Guard]:
    yield Refuse(
        name="audit_final",
        table="orchestrator_audit",
        event="UPDATE",
        when="1 = 1",
        message="orchestrator_audit is append-only",
    )
    yield Refuse(
        name="audit_kept",
        table="orchestrator_audit",
        event="DELETE",
        when="1 = 1",
        unless=f"({_OLD_ENOUGH}) OR ({_JOB_GONE})",
        message="orchestrator_audit is append-only; only retention removes old rows",
    )


PREFIX = "herdsman_"
MARK = "herdsman: "
"""How our refusals begin, so that they can be told from any other error of the database."""


_EDITION = 2
"""Raised when the words around the guards change, so that those of before are replaced."""


def install(connection: Connection) -> None:
    """Put every guard in place: new ones first, so that no moment is unguarded; then drop the stale."""
    wanted = {trigger_name(guard): guard for guard in all_guards()}
    there = installed(connection)
    for name, guard in wanted.items():
        if name not in there:
            wrap = {"sqlite": _sqlite, "mysql": _mariadb, "postgresql": _postgres}[connection.dialect.name]
            create = wrap(name, guard)
            _run(connection, create)
    drop = "DROP FUNCTION {}() CASCADE" if connection.dialect.name == "postgresql" else "DROP TRIGGER {}"
    _run(connection, (drop.format(name) for name in there - wanted.keys()))


def missing(connection: Connection) -> list[str]:
    """The guards that should be here and are not, or are here in another version."""
    there = installed(connection)
    return [guard.name for guard in all_guards() if trigger_name(guard) not in there]


def trigger_name(guard: Guard) -> str:
    """The name carries a digest, so a guard that has changed is a guard that is missing."""
    return f"{PREFIX}{guard.name}_{sha256(f'{_EDITION}{guard!r}'.encode()).hexdigest()[:8]}"


def installed(connection: Connection) -> set[str]:
    """The names of our triggers that are there and switched on."""
    names = connection.scalars(text(_INSTALLED[connection.dialect.name]))
    return {name for name in names if name.startswith(PREFIX)}


_INSTALLED = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    "mysql": "SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = DATABASE()",
    "postgresql": "SELECT t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
    " JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND n.nspname = current_schema()",
}


def _run(connection: Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.exec_driver_sql(statement)


def _timing(guard: Guard) -> str:
    return f"{'BEFORE' if isinstance(guard, Refuse) else 'AFTER'} {guard.event}"


def _sqlite(name: str, guard: Guard) -> list[str]:
    if isinstance(guard, Refuse):
        when = f"({guard.when}) AND NOT ({guard.unless})"
        body = f"SELECT RAISE(ABORT, '{MARK}{guard.message}')"
    else:
        when, body = guard.when, guard.statement
    head = f"CREATE TRIGGER {name} {_timing(guard)} ON {guard.table} FOR EACH ROW WHEN {when}"
    return [f"{head} BEGIN {body}; END"]


def _mariadb(name: str, guard: Guard) -> list[str]:
    if isinstance(guard, Refuse):
        when = f"({guard.when}) AND NOT ({guard.unless})"
        body = f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{MARK}{guard.message}'"
    else:
        when, body = guard.when, guard.statement
    head = f"CREATE OR REPLACE TRIGGER {name} {_timing(guard)} ON {guard.table} FOR EACH ROW"
    return [f"{head} IF {when} THEN {body}; END IF"]


def _postgres(name: str, guard: Guard) -> list[str]:
    if isinstance(guard, Refuse):
        refuse = f"RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = '{MARK}{guard.message}'"
        result = "OLD" if guard.event == "DELETE" else "NEW"
        body = f"IF NOT ({guard.unless}) THEN {refuse}; END IF; RETURN {result};"
    else:
        body = f"{guard.statement.replace('json_object(', 'jsonb_build_object(')}; RETURN NULL;"
    # A session keeps the plan that it made while the table was empty: reading all of it, row after row, for
    # ever.
    updates = not isinstance(guard, Refuse) and guard.statement.startswith("UPDATE")
    planned = " SET enable_seqscan = off" if updates else ""
    function = (
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql{planned}"
        f" AS $$ BEGIN {body} END $$"
    )
    head = f"CREATE TRIGGER {name} {_timing(guard)} ON {guard.table} FOR EACH ROW WHEN ({guard.when})"
    return [function, f"{head} EXECUTE FUNCTION {name}()"]
