"""What the database refuses or writes by itself, made from the state tables.

Two programs may race, an old one may wake up, a person may type SQL: the rules hold all the same.
Conditions and statements are plain SQL over NEW and OLD that all three databases read alike;
the second half of this file wraps them in each database's words.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Literal

from sqlalchemy import Connection, text

from herdsman.db.schema import in_states
from herdsman.states import HELD, JOB, LEASE, MACHINES, AnyMachine, JobStatus, LeaseStatus, Reason


@dataclass(frozen=True, slots=True)
class Guard:
    """When a row changes like this, the change is refused, or another row is written in the same transaction."""

    name: str
    when: str
    refuse: str = ""
    """With this message. Else `write` is run."""
    write: str = ""
    unless: str = "1 = 0"
    """Of a refusal: may look into other tables, which `when` may not."""
    table: str = JOB.table
    event: Literal["INSERT", "UPDATE", "DELETE"] = "UPDATE"

    @property
    def timing(self) -> str:
        return f"{'BEFORE' if self.refuse else 'AFTER'} {self.event}"


def all_guards() -> tuple[Guard, ...]:
    return (*(guard for machine in MACHINES for guard in _machine_guards(machine)), *_OTHERS)


# An end state is left only by a person's requeue, which also makes every old claim stale (J6).
_REQUEUES = in_states((Reason.REQUEUED, Reason.REQUEUED_EDITED), "NEW.reason")
_REOPENING = {JOB.kind: f"{_REQUEUES} AND NEW.claim_token = OLD.claim_token + 1"}
# What counts as a step although the state stays: a cancellation has to be seen in the audit at once.
_STEPS_IN_PLACE = {JOB.kind: "(OLD.cancel_requested_at IS NULL AND NEW.cancel_requested_at IS NOT NULL)"}
_DETAILS = {
    JOB.kind: (
        "'claim_token', NEW.claim_token, 'attempts', NEW.attempts, 'worker_id', NEW.worker_id,"
        " 'last_worker_id', NEW.last_worker_id, 'failure_class', NEW.failure_class"
    )
}


def _machine_guards(machine: AnyMachine) -> Iterator[Guard]:
    kind, table = machine.kind, machine.table
    moved = f"(NEW.status <> OLD.status OR {_STEPS_IN_PLACE.get(kind, '1 = 0')})"

    def pair(here: StrEnum, there: frozenset[StrEnum]) -> str:
        return f"(OLD.status = '{here}' AND {in_states(there, 'NEW.status')})"

    moves = [pair(here, there) for here, there in machine.moves.items() if there]
    reopening = _REOPENING.get(kind, "1 = 0")
    moves += [f"({pair(here, there)} AND {reopening})" for here, there in machine.reopens.items()]
    legal = " OR ".join(moves)
    yield Guard(
        f"{kind}_birth",
        f"NOT ({in_states(machine.initial, 'NEW.status')} AND NEW.version = 1)",
        refuse=f"a new {kind} must begin in an initial state with version 1",
        table=table,
        event="INSERT",
    )
    refusals = {
        "moves": (f"NEW.status <> OLD.status AND NOT ({legal})", f"illegal move of {table}.status"),
        "version": (
            f"({moved} AND NEW.version <> OLD.version + 1) OR (NOT {moved} AND NEW.version <> OLD.version)",
            f"a move of {table} must raise version by one, and nothing else may",
        ),
        "identity": (f"NEW.{machine.key} <> OLD.{machine.key}", f"{table}.{machine.key} never changes"),
    }
    for name, (when, message) in refusals.items():
        yield Guard(f"{kind}_{name}", when, refuse=message, table=table)
    # One audit row for each step, numbered by the row's own version: no gap, no second one (A1).
    cases = " ".join(f"WHEN '{state}' THEN '{kind}.{state}'" for state in machine.states)
    named = f"CASE NEW.status {cases} END"
    stepped = named
    if kind in _STEPS_IN_PLACE:
        stepped = f"CASE WHEN NEW.status = OLD.status THEN 'job.{Reason.CANCEL_REQUESTED}' ELSE {named} END"
    steps: tuple[tuple[Literal["INSERT", "UPDATE"], str, str, str], ...] = (
        ("INSERT", "NULL", "1 = 1", named),
        ("UPDATE", "OLD.status", "NEW.version > OLD.version", stepped),
    )
    for event, before, when, event_type in steps:
        record = (
            "INSERT INTO orchestrator_audit (ts, event_type, object_kind, object_id, seq,"
            " from_status, to_status, reason, actor, details)"
            f" VALUES (NEW.updated_at, {event_type}, '{kind}', NEW.{machine.key},"
            f" NEW.version, {before}, NEW.status, NEW.reason, NEW.actor,"
            f" json_object({_DETAILS.get(kind, '')}))"
        )
        yield Guard(f"{kind}_audit_{event.lower()}", when, write=record, table=table, event=event)


_CLAIMS = f"(OLD.status = '{JobStatus.PENDING}' AND NEW.status = '{JobStatus.CLAIMED}')"
_STARTS = f"(OLD.status = '{JobStatus.CLAIMED}' AND NEW.status = '{JobStatus.RUNNING}')"
_RELEASES = f"{in_states(HELD, 'OLD.status')} AND NOT ({in_states(HELD, 'NEW.status')})"
_LOST = in_states((Reason.CLAIM_EXPIRED, Reason.KILLS_WORKERS), "NEW.reason")
_OTHERS = (
    Guard(
        "job_unclaimed",
        "NEW.claim_token <> 0 OR NEW.attempts <> 0",
        refuse="a new job has no claims",
        # A database that went back in time begins above the tokens that it has forgotten (P11).
        unless="NEW.attempts = 0 AND NEW.claim_token ="
        " COALESCE((SELECT MAX(first_token) FROM orchestrator_installation), 0)",
        event="INSERT",
    ),
    Guard(
        "job_token",
        f"NEW.claim_token < OLD.claim_token OR ({_CLAIMS} AND NEW.claim_token <> OLD.claim_token + 1)",
        refuse="claim_token only rises, by one with each claim",
    ),
    Guard(
        "job_cancel",
        f"NEW.status = '{JobStatus.DONE}' AND OLD.status <> NEW.status AND OLD.cancel_requested_at IS NOT NULL",
        refuse="a cancelled job is never done",
    ),
    Guard(
        "job_kept",
        f"NOT ({in_states(JOB.terminal, 'OLD.status')})",
        refuse="an accepted job is not deleted before it has ended",
        event="DELETE",
    ),
    # The history of a job's attempts follows from its moves, so it is written by them.
    Guard(
        "attempt_opened",
        _CLAIMS,
        write="INSERT INTO job_attempts (job_id, claim_token, attempt, worker_id, pool, claimed_at)"
        " VALUES (NEW.job_id, NEW.claim_token, NEW.attempts, NEW.worker_id, NEW.pool, NEW.updated_at)",
    ),
    Guard(
        "attempt_started",
        _STARTS,
        write="UPDATE job_attempts SET started_at = NEW.updated_at"
        " WHERE job_id = NEW.job_id AND claim_token = NEW.claim_token",
    ),
    Guard(
        "attempt_closed",
        _RELEASES,
        write="UPDATE job_attempts SET started_at = COALESCE(started_at, NEW.started_at),"
        " ended_at = NEW.updated_at, outcome = NEW.status, reason = NEW.reason,"
        " failure_class = NEW.failure_class, error = NEW.last_error"
        " WHERE job_id = NEW.job_id AND claim_token = OLD.claim_token",
    ),
    # A worker's leases end with its last job, whoever ends it: a lease without a claim has no holder (L4, L5).
    Guard(
        "lease_follows_claim",
        _RELEASES,
        write=f"UPDATE {LEASE.table} SET"
        f" status = CASE WHEN {_LOST} THEN '{LeaseStatus.EXPIRED}' ELSE '{LeaseStatus.RELEASED}' END,"
        f" reason = CASE WHEN {_LOST} THEN '{Reason.CLAIM_EXPIRED}' ELSE '{Reason.JOB_ENDED}' END,"
        " actor = NEW.actor, version = version + 1, updated_at = NEW.updated_at, ended_at = NEW.updated_at"
        f" WHERE worker_id = OLD.worker_id AND status = '{LeaseStatus.ACTIVE}'"
        f" AND NOT EXISTS (SELECT 1 FROM {JOB.table} j WHERE j.worker_id = OLD.worker_id)",
    ),
    Guard("audit_final", "1 = 1", refuse="orchestrator_audit is append-only", table="orchestrator_audit"),
    Guard(
        "audit_kept",
        "1 = 1",
        table="orchestrator_audit",
        event="DELETE",
        refuse="orchestrator_audit is append-only; only retention removes old rows",
        unless="(EXISTS (SELECT 1 FROM orchestrator_retention r WHERE r.name = 'audit' AND r.prune_before > OLD.ts))"
        f" OR (OLD.object_kind = '{JOB.kind}' AND NOT EXISTS"
        f" (SELECT 1 FROM {JOB.table} j WHERE j.{JOB.key} = OLD.object_id))",
    ),
)

PREFIX = "herdsman_"
MARK = "herdsman: "
"""How our refusals begin, so that they can be told from any other error of the database."""
_EDITION = 2
"""Raised when the words around the guards change, so that those of before are replaced."""
_INSTALLED = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    "mysql": "SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = DATABASE()",
    "postgresql": "SELECT t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
    " JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND n.nspname = current_schema()",
}


def install(connection: Connection) -> None:
    """Put every guard in place: new ones first, so that no moment is unguarded; then drop the stale."""
    dialect = connection.dialect.name
    wanted = {trigger_name(guard): guard for guard in all_guards()}
    there = installed(connection)
    for name, guard in wanted.items():
        if name not in there:
            for statement in _creation(dialect, name, guard):
                connection.exec_driver_sql(statement)
    for name in there - wanted.keys():
        drop = f"FUNCTION {name}() CASCADE" if dialect == "postgresql" else f"TRIGGER {name}"
        connection.exec_driver_sql(f"DROP {drop}")


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


def _creation(dialect: str, name: str, guard: Guard) -> Iterator[str]:
    head = f"TRIGGER {name} {guard.timing} ON {guard.table} FOR EACH ROW"
    when = f"({guard.when}) AND NOT ({guard.unless})" if guard.refuse else guard.when
    said = f"'{MARK}{guard.refuse}'"
    match dialect:
        case "sqlite":
            body = f"SELECT RAISE(ABORT, {said})" if guard.refuse else guard.write
            yield f"CREATE {head} WHEN {when} BEGIN {body}; END"
        case "mysql":
            body = f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = {said}" if guard.refuse else guard.write
            yield f"CREATE OR REPLACE {head} IF {when} THEN {body}; END IF"
        case _:
            if guard.refuse:
                refuse = f"RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = {said}"
                result = "OLD" if guard.event == "DELETE" else "NEW"
                body = f"IF NOT ({guard.unless}) THEN {refuse}; END IF; RETURN {result};"
            else:
                body = f"{guard.write.replace('json_object(', 'jsonb_build_object(')}; RETURN NULL;"
            # A session keeps the plan that it made while the table was empty: reading all of it, row after row, for
            # ever.
            planned = " SET enable_seqscan = off" if guard.write.startswith("UPDATE") else ""
            yield (
                f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql{planned}"
                f" AS $$ BEGIN {body} END $$"
            )
            yield f"CREATE {head} WHEN ({guard.when}) EXECUTE FUNCTION {name}()"
