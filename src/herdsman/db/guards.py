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
class Refusal:
    when: str
    message: str
    unless: str = "1 = 0"
    """May look into other tables, which `when` may not."""


@dataclass(frozen=True, slots=True)
class Guard:
    """When a row changes like this, the change is refused, or another row is written in the same transaction."""

    name: str
    table: str
    event: Literal["INSERT", "UPDATE", "DELETE"]
    refusals: tuple[Refusal, ...] = ()
    """The first that fits says why. Else `write` is run, where `when` holds."""
    when: str = "1 = 1"
    write: str = ""
    of: tuple[str, ...] = ()
    """Only a statement that sets one of these columns can fulfil the condition; MariaDB looks at all."""
    bulk: str = ""
    """Of PostgreSQL: the same write once for all rows of a statement, which stand in `new_rows` and `old_rows`."""

    def timing(self, *, columns: bool) -> str:
        of = f" OF {', '.join(self.of)}" if columns and self.of else ""
        return f"{'BEFORE' if self.refusals else 'AFTER'} {self.event}{of}"


def all_guards() -> tuple[Guard, ...]:
    return (*(guard for machine in MACHINES for guard in _machine_guards(machine)), *_OTHERS)


# An end state is left only by a person's requeue, which also makes every old claim stale (J6).
_REQUEUES = in_states((Reason.REQUEUED, Reason.REQUEUED_EDITED), "NEW.reason")
_REOPENING = {JOB.kind: f"{_REQUEUES} AND NEW.claim_token = OLD.claim_token + 1"}
# What counts as a step although the state stays: a cancellation has to be seen in the audit at once.
_STEPS_IN_PLACE = {JOB.kind: "(OLD.cancel_requested_at IS NULL AND NEW.cancel_requested_at IS NOT NULL)"}
_CLAIMS = f"(OLD.status = '{JobStatus.PENDING}' AND NEW.status = '{JobStatus.CLAIMED}')"
_RELEASES = f"{in_states(HELD, 'OLD.status')} AND NOT ({in_states(HELD, 'NEW.status')})"
_BIRTHS = {
    JOB.kind: Refusal(
        "NEW.claim_token <> 0 OR NEW.attempts <> 0",
        "a new job has no claims",
        # A database that went back in time begins above the tokens that it has forgotten (P11).
        unless="NEW.attempts = 0 AND NEW.claim_token ="
        " COALESCE((SELECT MAX(first_token) FROM orchestrator_installation), 0)",
    )
}
_MOVES = {
    JOB.kind: (
        Refusal(
            f"NEW.claim_token < OLD.claim_token OR ({_CLAIMS} AND NEW.claim_token <> OLD.claim_token + 1)",
            "claim_token only rises, by one with each claim",
        ),
        Refusal(
            f"NEW.status = '{JobStatus.DONE}' AND OLD.status <> NEW.status AND OLD.cancel_requested_at IS NOT NULL",
            "a cancelled job is never done",
        ),
    )
}
_RULED = {JOB.kind: ("claim_token", "cancel_requested_at")}
_RECORDED = {JOB.kind: ("claim_token", "attempts", "worker_id")}
"""Columns that the audit has of a thing beside its state."""


def _machine_guards(machine: AnyMachine) -> Iterator[Guard]:
    kind, table = machine.kind, machine.table
    moved = f"(NEW.status <> OLD.status OR {_STEPS_IN_PLACE.get(kind, '1 = 0')})"

    def pair(here: StrEnum, there: frozenset[StrEnum]) -> str:
        return f"(OLD.status = '{here}' AND {in_states(there, 'NEW.status')})"

    moves = [pair(here, there) for here, there in machine.moves.items() if there]
    reopening = _REOPENING.get(kind, "1 = 0")
    moves += [f"({pair(here, there)} AND {reopening})" for here, there in machine.reopens.items()]
    legal = " OR ".join(moves)
    birth = Refusal(
        f"NOT ({in_states(machine.initial, 'NEW.status')} AND NEW.version = 1)",
        f"a new {kind} must begin in an initial state with version 1",
    )
    unclaimed = _BIRTHS.get(kind)
    yield Guard(f"{kind}_birth", table, "INSERT", (birth, *([unclaimed] if unclaimed else ())))
    refusals = (
        Refusal(f"NEW.status <> OLD.status AND NOT ({legal})", f"illegal move of {machine.public}.status"),
        Refusal(
            f"({moved} AND NEW.version <> OLD.version + 1) OR (NOT {moved} AND NEW.version <> OLD.version)",
            f"a move of {machine.public} must raise version by one, and nothing else may",
        ),
        Refusal(f"NEW.{machine.key} <> OLD.{machine.key}", f"{machine.public}.{machine.key} never changes"),
    )
    ruled = ("status", "version", machine.key, *_RULED.get(kind, ()))
    yield Guard(f"{kind}_moves", table, "UPDATE", (*refusals, *_MOVES.get(kind, ())), of=ruled)
    # One audit row for each step, numbered by the row's own version: no gap, no second one (A1).
    more = _RECORDED.get(kind, ())
    columns = ", ".join(("kind", "object_id", "seq", "ts", "status", "reason", "actor", *more))
    told = (machine.key, "version", "updated_at", "status", "reason", "actor", *more)

    def record(row: str) -> str:
        return f"'{kind}', {', '.join(f'{row}.{column}' for column in told)}"

    head = f"INSERT INTO audit_entries ({columns})"
    every = f"{head} SELECT {record('n')} FROM new_rows n"
    stepped = f"{every} WHERE (n.{machine.key}, n.version) NOT IN (SELECT o.{machine.key}, o.version FROM old_rows o)"
    single = f"{head} VALUES ({record('NEW')})"
    yield Guard(f"{kind}_audit_insert", table, "INSERT", write=single, bulk=every)
    yield Guard(
        f"{kind}_audit_update",
        table,
        "UPDATE",
        when="NEW.version > OLD.version",
        of=("version",),
        write=single,
        bulk=stepped,
    )


_LOST = in_states((Reason.CLAIM_EXPIRED, Reason.KILLS_WORKERS), "NEW.reason")


def _at_end(new: str, old: str) -> str:
    """Of an attempt that is put away: it has ended in this very step, or with a job that is requeued now."""
    return f"CASE WHEN OLD.finished_at IS NULL THEN NEW.{new} ELSE OLD.{old} END"


_OTHERS = (
    Guard(
        "job_kept",
        JOB.table,
        "DELETE",
        (
            Refusal(
                f"NOT ({in_states(JOB.terminal, 'OLD.status')})", "an accepted job is not deleted before it has ended"
            ),
        ),
    ),
    # The last attempt of a job is in its row; it is put away when the job is to be claimed again.
    Guard(
        "attempt_kept",
        JOB.table,
        "UPDATE",
        when="OLD.claimed_at IS NOT NULL AND NEW.claimed_at IS NULL",
        of=("claimed_at",),
        write="INSERT INTO past_attempts (job_id, claim_token, attempt, worker_id, pool, claimed_at, started_at,"
        " ended_at, outcome, reason) VALUES (OLD.job_id, OLD.claim_token, OLD.attempts, OLD.last_worker_id,"
        f" OLD.pool, OLD.claimed_at, COALESCE(OLD.started_at, NEW.started_at), {_at_end('updated_at', 'finished_at')},"
        f" {_at_end('status', 'status')}, {_at_end('reason', 'reason')})",
    ),
    # A worker's leases end with its last job, whoever ends it: a lease without a claim has no holder (L4, L5).
    Guard(
        "lease_follows_claim",
        JOB.table,
        "UPDATE",
        when=_RELEASES,
        of=("status",),
        write=f"UPDATE {LEASE.table} SET"
        f" status = CASE WHEN {_LOST} THEN '{LeaseStatus.EXPIRED}' ELSE '{LeaseStatus.RELEASED}' END,"
        f" reason = CASE WHEN {_LOST} THEN '{Reason.CLAIM_EXPIRED}' ELSE '{Reason.JOB_ENDED}' END,"
        " actor = NEW.actor, version = version + 1, updated_at = NEW.updated_at, ended_at = NEW.updated_at"
        f" WHERE worker_id = OLD.worker_id AND status = '{LeaseStatus.ACTIVE}'"
        f" AND NOT EXISTS (SELECT 1 FROM {JOB.table} j WHERE j.worker_id = OLD.worker_id)",
    ),
    Guard(
        "end_left",
        "job_ends",
        "INSERT",
        (
            Refusal(
                "1 = 1",
                "only a claim that has ended leaves an error, and a result only where the job is done",
                unless=f"EXISTS (SELECT 1 FROM {JOB.table} j WHERE j.{JOB.key} = NEW.job_id"
                " AND j.claim_token = NEW.claim_token AND j.worker_id IS NULL"
                f" AND (NEW.result IS NULL OR j.status = '{JobStatus.DONE}'))",
            ),
        ),
    ),
    Guard("end_final", "job_ends", "UPDATE", (Refusal("1 = 1", "what a claim left is written once"),)),
    Guard("attempt_final", "past_attempts", "UPDATE", (Refusal("1 = 1", "an attempt that has ended is final"),)),
    Guard("audit_final", "audit_entries", "UPDATE", (Refusal("1 = 1", "orchestrator_audit is append-only"),)),
    Guard(
        "audit_kept",
        "audit_entries",
        "DELETE",
        (
            Refusal(
                "1 = 1",
                "orchestrator_audit is append-only; only retention removes old rows",
                unless="(EXISTS (SELECT 1 FROM orchestrator_retention r"
                " WHERE r.name = 'audit' AND r.prune_before > OLD.ts))"
                f" OR (OLD.kind = '{JOB.kind}' AND NOT EXISTS"
                f" (SELECT 1 FROM {JOB.table} j WHERE j.{JOB.key} = OLD.object_id))",
            ),
        ),
    ),
)

PREFIX = "herdsman_"
MARK = "herdsman: "
"""How our refusals begin, so that they can be told from any other error of the database."""
_EDITION = 3
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
    # PostgreSQL has no table of changed rows for a trigger of some columns.
    columns = dialect == "sqlite" or (dialect == "postgresql" and not guard.bulk)
    head = f"TRIGGER {name} {guard.timing(columns=columns)} ON {guard.table}"
    # All refusals in one condition: a change that breaks no rule costs one look.
    when = " OR ".join(f"({each.when})" for each in guard.refusals) or guard.when
    rules = [(f"({each.when}) AND NOT ({each.unless})", f"'{MARK}{each.message}'") for each in guard.refusals]
    match dialect:
        case "sqlite":
            body = "; ".join(f"SELECT RAISE(ABORT, {said}) WHERE {rule}" for rule, said in rules) or guard.write
            yield f"CREATE {head} FOR EACH ROW WHEN {when} BEGIN {body}; END"
        case "mysql":
            said = [f"IF {rule} THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = {said}" for rule, said in rules]
            body = f"{' ELSE'.join(f'{each};' for each in said)} END IF" if said else guard.write
            yield f"CREATE OR REPLACE {head} FOR EACH ROW IF {when} THEN {body}; END IF"
        case _:
            refuse = "RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE ="
            body = " ".join(f"IF {rule} THEN {refuse} {said}; END IF;" for rule, said in rules)
            if not guard.refusals:
                body = f"{guard.bulk or guard.write};"
            result = "NULL" if not guard.refusals else "OLD" if guard.event == "DELETE" else "NEW"
            # A session keeps the plan that it made while the table was empty: reading all of it, row after row, for
            # ever.
            planned = " SET enable_seqscan = off" if f" FROM {JOB.table} " in body else ""
            yield (
                f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql{planned}"
                f" AS $$ BEGIN {body} RETURN {result}; END $$"
            )
            rows = "REFERENCING NEW TABLE AS new_rows" + (" OLD TABLE AS old_rows" if guard.event == "UPDATE" else "")
            each = f"{rows} FOR EACH STATEMENT" if guard.bulk else f"FOR EACH ROW WHEN ({when})"
            yield f"CREATE {head} {each} EXECUTE FUNCTION {name}()"
