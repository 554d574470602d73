"""The tables, and the views that people read them by; migrations/ holds the steps that lead here."""

from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Constraint,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import TypeEngine

from herdsman.db.dialects import Instant, JsonObject, JsonText, long_text, name, packed, real
from herdsman.ids import HIGHEST, LOWEST
from herdsman.states import HELD, JOB, LEASE, POOL, WAITING, WORKER, AnyMachine, JobStatus

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
    }
)

# Keys that grow by themselves; SQLite only does that for a plain INTEGER.
SERIAL = BigInteger().with_variant(Integer(), "sqlite")


def _table(named: str, *parts: Column[Any] | Constraint | Index, **more: Any) -> Table:
    return Table(named, metadata, *parts, mysql_engine="InnoDB", mysql_default_charset="utf8mb4", **more)


def in_states(states: tuple[StrEnum, ...] | frozenset[StrEnum], column: str = "status") -> str:
    """SQL: `column` is one of `states`. Sorted, so that generated text is the same every time."""
    return f"{column} IN ({', '.join(repr(str(state)) for state in sorted(states))})"


def _moving(machine: AnyMachine) -> list[Column[Any] | CheckConstraint]:
    """What every table of a state machine has: the state, why, by whom, and how many moves so far."""
    return [
        Column("version", BigInteger(), nullable=False),
        Column("updated_at", Instant(), nullable=False),
        Column("status", name(32), nullable=False),
        Column("reason", name(64), nullable=False),
        Column("actor", name(255), nullable=False),
        CheckConstraint(in_states(machine.states), name="status"),
    ]


def _in_part(where: str) -> dict[str, Any]:
    """Of an index: only these rows are in it. MariaDB has no such indexes; there it holds all rows."""
    return {"postgresql_where": text(where), "sqlite_where": text(where)}


def _any_of(*states: StrEnum) -> str:
    """SQLite sees that one state implies this, which it does not see of an IN."""
    return " OR ".join(f"status = '{state}'" for state in states)


_PENDING = f"status = '{JobStatus.PENDING}'"
_WAITING = _any_of(*WAITING)
jobs = _table(
    JOB.table,
    # The row that moves: what moving, choosing and sweeping need, and nothing else.
    Column("job_id", name(128), primary_key=True),
    # Numbers and instants stand together: PostgreSQL leaves no gaps between them then.
    Column("place", BigInteger(), nullable=False),
    Column("claim_token", BigInteger(), nullable=False),
    Column("run_at", Instant(), nullable=False),
    Column("created_at", Instant(), nullable=False),
    Column("claim_expires_at", Instant()),
    # Of the attempt that it is in, or that it ended with; the attempts before stand in `past_attempts`.
    Column("claimed_at", Instant()),
    Column("started_at", Instant()),
    Column("deadline_at", Instant()),
    Column("cancel_requested_at", Instant()),
    Column("finished_at", Instant()),
    Column("timeout_s", real()),
    Column("attempts", Integer(), nullable=False),
    Column("interruptions", Integer(), nullable=False),
    Column("worker_losses", Integer(), nullable=False),
    Column("out_of_memory", Integer(), nullable=False),
    Column("slot", Integer(), nullable=False, server_default=text("0")),
    # Memory of the GPU that it needs; without a number, all of it.
    Column("gpu_memory_mb", Integer()),
    # It may run on a worker without a GPU, though it names how much memory it would need of one.
    Column("allow_cpu", Integer(), nullable=False, server_default=text("0")),
    *_moving(JOB),
    Column("type", name(64), nullable=False),
    Column("agent", name(255), nullable=False),
    Column("pool", name(128), nullable=False),
    # The model that it runs with: a worker that has it loaded is preferred.
    Column("model", name(255)),
    # Only so many jobs of one key run at a time.
    Column("concurrency_key", name(128)),
    Column("worker_id", name(128), ForeignKey("workers.id")),
    Column("last_worker_id", name(128)),
    # Which incarnation of its worker has begun the claim: one token, one execution.
    Column("begun_by", name(64)),
    # Most jobs have none of these, and then they take no room.
    Column("progress", real()),
    Column("progress_note", name(255)),
    Column("progress_at", Instant()),
    Column("service_job_id", name(255)),
    Column("service_status", name(64)),
    Column("service_submitted_at", Instant()),
    Column("last_service_check", Instant()),
    CheckConstraint(f"({in_states(HELD)}) = (worker_id IS NOT NULL)", name="owned"),
    CheckConstraint(f"({in_states(HELD)}) = (claim_expires_at IS NOT NULL)", name="expires"),
    CheckConstraint(f"({in_states(JOB.terminal)}) = (finished_at IS NOT NULL)", name="finished"),
    CheckConstraint(
        f"CASE WHEN {in_states(HELD)} THEN claimed_at IS NOT NULL AND last_worker_id IS NOT NULL"
        f" AND last_worker_id = worker_id WHEN {in_states(WAITING)} THEN claimed_at IS NULL"
        " ELSE 1 = 1 END",
        name="attempted",
    ),
    CheckConstraint("status <> 'done' OR cancel_requested_at IS NULL", name="cancelled"),
    CheckConstraint("attempts >= 0 AND interruptions >= 0 AND claim_token >= attempts", name="counted"),
    CheckConstraint("progress IS NULL OR (progress >= 0 AND progress <= 1)", name="progress"),
    # A job is in the indexes of its state alone, so that those of a long history do not slow down what moves.
    Index("ix_job_states_next", "status", "pool", "place", **_in_part(_PENDING)),
    Index("ix_job_states_type", "status", "pool", "type", "place", **_in_part(_PENDING)),
    # Whose turn it is, and the next of each model, are found by a few looks into it.
    Index("ix_job_states_turn", "status", "pool", "agent", "model", "place", **_in_part(_PENDING)),
    Index("ix_job_states_due", "status", "run_at", **_in_part(_WAITING)),
    Index("ix_job_states_agent", "agent", "status", **_in_part(_WAITING)),
    # One job per slot: a worker that takes no batches has slot 0 alone, and so one job at a time.
    Index("uq_job_states_held", "worker_id", "slot", unique=True, **_in_part("worker_id IS NOT NULL")),
    Index("ix_job_states_list", "created_at"),
    Index(
        "ix_job_states_list_status",
        *("status", "created_at"),
        **_in_part(_any_of(*WAITING, JobStatus.CANCELLED, JobStatus.DEAD_LETTER)),
    ),
    Index("ix_job_states_finished", "finished_at", **_in_part("finished_at IS NOT NULL")),
    Index("ix_job_states_worker", "last_worker_id", "finished_at", **_in_part("finished_at IS NOT NULL")),
)

job_bodies = _table(
    "job_bodies",
    # What was asked for: written once, and again only by a requeue with another payload.
    Column("job_id", name(128), ForeignKey(f"{JOB.table}.job_id"), primary_key=True),
    Column("payload", JsonText(), nullable=False),
    Column("tags", JsonText(), nullable=False),
    Column("body_hash", name(64), nullable=False),
    # Stands beside its job's row for the sake of the key alone.
    Column("agent", name(255), nullable=False),
    Column("idempotency_key", name(255)),
    Column("priority", Integer(), nullable=False),
    Column("max_attempts", Integer(), nullable=False),
    Column("retry_base_s", real()),
    Column("retry_cap_s", real()),
    # Why it was put off or sent to another pool when it was accepted.
    Column("admission", name(64)),
    CheckConstraint(f"priority BETWEEN {LOWEST} AND {HIGHEST}", name="priority"),
    Index(
        "uq_job_bodies_agent_idempotency_key",
        *("agent", "idempotency_key"),
        unique=True,
        **_in_part("idempotency_key IS NOT NULL"),
    ),
)

job_ends = _table(
    "job_ends",
    # What a claim left: its result or its error. Written once, and shown while its token is the job's.
    Column("job_id", name(128), ForeignKey(f"{JOB.table}.job_id"), primary_key=True),
    Column("claim_token", BigInteger(), primary_key=True, autoincrement=False),
    Column("result", JsonText()),
    Column("failure_class", name(32)),
    Column("last_error", long_text()),
    # GPU time that was spared because the result was found at the service, not made again.
    Column("saved_gpu_s", real()),
    CheckConstraint("result IS NULL OR failure_class IS NULL", name="one"),
    Index("ix_job_ends_saved", "saved_gpu_s", **_in_part("saved_gpu_s IS NOT NULL")),
)

past_attempts = _table(
    "past_attempts",
    # The attempts that were followed by something else; a job's last one is read from its own row.
    Column("job_id", name(128), ForeignKey(f"{JOB.table}.job_id"), primary_key=True),
    Column("claim_token", BigInteger(), primary_key=True, autoincrement=False),
    Column("attempt", Integer(), nullable=False),
    Column("worker_id", name(128), nullable=False),
    Column("pool", name(128), nullable=False),
    Column("claimed_at", Instant(), nullable=False),
    Column("started_at", Instant()),
    Column("ended_at", Instant(), nullable=False),
    Column("outcome", name(32), nullable=False),
    Column("reason", name(64), nullable=False),
    Index("ix_past_attempts_worker", "worker_id", "ended_at"),
    Index("ix_past_attempts_ended", "ended_at"),
    # Its rows are small; one with a long text would be read whole at each comparison of keys.
    sqlite_with_rowid=False,
)

SERVICE = ("service_job_id", "service_status", "service_submitted_at", "last_service_check")
"""The columns that say where a job is on an external service."""

job_tags = _table(
    "job_tags",
    Column("tag", name(64), primary_key=True),
    Column("job_id", name(128), ForeignKey(f"{JOB.table}.job_id"), primary_key=True, index=True),
    # The job's own, so that a page of a tag's jobs is a piece of one index.
    Column("created_at", Instant(), nullable=False),
    Index("ix_job_tags_list", "tag", "created_at", "job_id"),
)

workers = _table(
    WORKER.table,
    Column("id", name(128), primary_key=True),
    Column("instance_type", name(128)),
    Column("created_at", Instant(), nullable=False, index=True),
    # No default: a heartbeat that nobody sent would look like a worker that lives.
    Column("last_heartbeat", Instant(), index=True),
    *_moving(WORKER),
    Column("pool", name(128), nullable=False),
    Column("entered_state_at", Instant(), nullable=False),
    Column("metadata", JsonObject(), nullable=False),
    Column("provider", name(64)),
    # Unique for ever: a creation whose answer was lost is found again by it.
    Column("instance_name", name(255)),
    Column("instance_ref", name(128)),
    Column("cost_per_hour", real()),
    Column("ready", Integer()),
    Column("gpu_seen", Integer()),
    Column("gpu_fault", name(255)),
    Column("vram_at", Instant()),
    # Of the disk that it was started on, in millions of bytes.
    Column("disk_total_mb", BigInteger()),
    Column("disk_free_mb", BigInteger()),
    Column("promoted_at", Instant()),
    Column("failed_at", Instant(), index=True),
    Column("error_code", name(64)),
    Column("error_reason", long_text()),
    Column("end_asked_at", Instant()),
    Column("absent_since", Instant()),
    # When a listing first had its instance: from then on it is known to have been there.
    Column("listed_at", Instant()),
    # When its process last got a token of its own: from then on heartbeats are due.
    Column("registered_at", Instant()),
    Column("node_id", name(128)),
    # Which edition of its pool's model it has loaded, which it was told to load, and when it last changed.
    Column("revision", Integer(), nullable=False, server_default=text("0")),
    Column("wanted_revision", Integer(), nullable=False, server_default=text("0")),
    Column("loaded_at", Instant()),
    Index("uq_workers_instance_name", "instance_name", unique=True),
    Index("ix_workers_status", "status", "pool"),
)

pools = _table(
    POOL.table,
    Column("pool_id", name(128), primary_key=True),
    Column("agent_name", name(255), nullable=False),
    Column("model_id", name(255)),
    Column("adapter", name(255)),
    Column("desired_workers", Integer(), nullable=False, server_default=text("0")),
    Column("spawned_workers", Integer(), nullable=False, server_default=text("0")),
    Column("started_at", Instant(), nullable=False),
    Column("last_heartbeat", Instant()),
    *_moving(POOL),
    Column("hold_seconds", Integer(), nullable=False, server_default=text("600")),
    Column("metadata", JsonObject(), nullable=False),
    Column("variant", name(64)),
    # Raised by each change of model, adapter or variant; workers follow one after the other.
    Column("revision", Integer(), nullable=False, server_default=text("1")),
    # What this pool has of its own, instead of the settings: sizes, times, schedule, preloads.
    Column("rules", JsonObject()),
    # `herdsman` spawns its workers; `hand` leaves that to somebody else.
    Column("served_by", name(16), nullable=False, server_default=text("'herdsman'")),
    # An isolated pool has a stream of its own.
    Column("isolated", Integer(), nullable=False, server_default=text("0")),
    Column("used_at", Instant()),
    CheckConstraint("desired_workers >= 0 AND spawned_workers >= 0 AND hold_seconds >= 0", name="counted"),
)

leases = _table(
    LEASE.table,
    Column("token", name(64), primary_key=True),
    Column("agent_name", name(255), nullable=False),
    Column("gpu_index", Integer()),
    Column("mode", name(8), nullable=False, server_default=text("'gpu'")),
    Column("created_at", Instant(), nullable=False),
    Column("expires_at", Instant(), nullable=False),
    Column("last_heartbeat", Instant()),
    *_moving(LEASE),
    Column("metadata", JsonObject(), nullable=False),
    Column("gpu_uuid", name(64)),
    Column("node_id", name(128)),
    Column("memory_mb", Integer(), nullable=False, server_default=text("0")),
    Column("exclusive", Integer(), nullable=False, server_default=text("0")),
    Column("ttl_s", real()),
    # Rises with each lease of a GPU: what carries an older number comes from a holder that has lost it.
    Column("lease_seq", BigInteger(), nullable=False, server_default=text("0")),
    # The worker whose claim this is; none for a lease that somebody asked for.
    Column("worker_id", name(128)),
    Column("ended_at", Instant()),
    # Given in shadow mode although it would have been refused, and why.
    Column("overruled", name(64)),
    CheckConstraint("mode IN ('gpu', 'cpu')", name="mode"),
    Index("idx_leases_agent", "agent_name"),
    Index("ix_orchestrator_leases_expiry", "status", "expires_at"),
    Index("ix_orchestrator_leases_gpu", "gpu_uuid", "status"),
    Index("ix_orchestrator_leases_ended", "gpu_uuid", "ended_at"),
    Index("ix_orchestrator_leases_worker", "worker_id", "status"),
    Index("ix_orchestrator_leases_list", "created_at", "token"),
)

audit_entries = _table(
    "audit_entries",
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    # Numbers first: PostgreSQL leaves no gaps between them then.
    Column("seq", BigInteger(), nullable=False),
    Column("ts", Instant(), nullable=False),
    # Of a job: its numbers then, and who held it.
    Column("claim_token", BigInteger()),
    Column("attempts", Integer()),
    Column("kind", name(16), nullable=False),
    Column("object_id", name(128), nullable=False),
    Column("status", name(32), nullable=False),
    Column("reason", name(64), nullable=False),
    Column("actor", name(255), nullable=False),
    Column("worker_id", name(128)),
    # Of what is no row of a state machine: a pause, the policy, a quarantined entry of a stream.
    Column("details", JsonObject()),
    UniqueConstraint("kind", "object_id", "seq"),
    sqlite_autoincrement=True,
)

retention = _table(
    "orchestrator_retention",
    Column("name", name(32), primary_key=True),
    Column("prune_before", Instant(), nullable=False),
)

leader = _table(
    "orchestrator_leader",
    Column("name", name(64), primary_key=True),
    Column("holder", name(255), nullable=False),
    # Only rises, by one with each change of leader: it fences every write of the control loop.
    Column("epoch", BigInteger(), nullable=False),
    Column("acquired_at", Instant(), nullable=False),
    Column("renewed_at", Instant(), nullable=False),
    Column("expires_at", Instant(), nullable=False),
    # Since when heartbeats could be written without a break: silence and expired claims count from then.
    Column("beats_since", Instant()),
    # Until then a leader that is cut off may let workers go on with their jobs; NULL where it does not.
    Column("holds_until", Instant()),
)

installation = _table(
    "orchestrator_installation",
    Column("name", name(64), primary_key=True),
    # In the name of every instance that this database has started: it ends no others.
    Column("id", name(32), nullable=False),
    # The number of the last one, in its name as well: a higher one shows that this database went back in time.
    Column("spawned", BigInteger(), nullable=False),
    # Where the claim tokens of new jobs begin: above those that it gave out before it went back in time.
    Column("first_token", BigInteger(), nullable=False),
    # Where it was when it was used last: elsewhere, it may be a copy.
    Column("place", JsonObject(), nullable=False),
    # Since when each instance that belongs to no worker has been listed.
    Column("orphans", JsonObject(), nullable=False),
    # What showed that it went back in time; until a person adopts it, it starts and ends nothing.
    Column("held", long_text()),
    # The same, by the word of a worker: that stops nothing.
    Column("hint", long_text()),
    Column("raised_at", Instant()),
    Column("created_at", Instant(), nullable=False),
)

fleets = _table(
    "orchestrator_fleets",
    # Locked by whoever adds a worker to the pool, so that two cannot both take its last place.
    Column("pool", name(128), primary_key=True),
    Column("last_scaled_at", Instant()),
    Column("wait_until", Instant()),
    Column("waits", Integer(), nullable=False),
    Column("stopped_by", long_text()),
)

instances = _table(
    "orchestrator_instances",
    Column("name", name(255), primary_key=True),
    Column("worker_id", name(128), nullable=False, index=True),
    Column("pool", name(128), nullable=False),
    Column("provider", name(64), nullable=False),
    Column("ref", name(128)),
    Column("gpu_type", name(128)),
    Column("cost_per_hour", real(), nullable=False),
    Column("asked_at", Instant(), nullable=False, index=True),
    Column("started_at", Instant()),
    Column("ended_at", Instant(), index=True),
)

cycles = _table(
    "orchestrator_cycles",
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("epoch", BigInteger(), nullable=False),
    Column("started_at", Instant(), nullable=False, index=True),
    Column("finished_at", Instant(), nullable=False),
    Column("summary", JsonObject(), nullable=False),
    Column("steps", JsonObject(), nullable=False),
    sqlite_autoincrement=True,
)

sights = _table(
    "orchestrator_sights",
    # What the cycle of this number saw. Without a base it is whole, else what is different from what the base saw.
    Column("cycle_id", BigInteger(), primary_key=True, autoincrement=False),
    Column("base_id", BigInteger()),
    Column("data", packed(), nullable=False),
)

# The API: who may call it, and what attempts leave behind.

tokens = _table(
    "api_tokens",
    Column("id", name(32), primary_key=True),
    Column("role", name(16), nullable=False),
    Column("name", name(255), nullable=False),
    # Never the secret itself: a keyed hash of it.
    Column("hash", name(64), nullable=False),
    # What a token is good for beyond its role: one submitter's jobs, one worker, one pool.
    Column("agent", name(255)),
    Column("worker_id", name(128), index=True),
    Column("incarnation", name(64)),
    Column("pool", name(128)),
    Column("created_at", Instant(), nullable=False),
    Column("expires_at", Instant()),
    Column("revoked_at", Instant()),
    Column("used_at", Instant()),
)

logs = _table(
    "job_logs",
    Column("job_id", name(128), ForeignKey(f"{JOB.table}.job_id"), primary_key=True),
    Column("claim_token", BigInteger(), primary_key=True, autoincrement=False),
    # Counts the lines of the attempt from 0: the same piece sent twice is one row.
    Column("first_line", Integer(), primary_key=True, autoincrement=False),
    Column("ts", Instant(), nullable=False),
    Column("line_count", Integer(), nullable=False),
    Column("byte_count", Integer(), nullable=False),
    Column("lines", JsonText(), nullable=False),
)

system_logs = _table(
    "system_logs",
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    # By the clock of who said it; what is old is told by ours.
    Column("ts", Instant(), nullable=False),
    Column("stored_at", Instant(), nullable=False, index=True),
    Column("instance", name(255), nullable=False),
    Column("level", name(16), nullable=False),
    Column("event", name(255), nullable=False),
    Column("details", JsonObject(), nullable=False),
    Index("ix_system_logs_level", "level", "ts"),
    sqlite_autoincrement=True,
)

checkpoints = _table(
    "job_checkpoints",
    Column("job_id", name(128), ForeignKey(f"{JOB.table}.job_id"), primary_key=True),
    Column("claim_token", BigInteger(), nullable=False),
    Column("updated_at", Instant(), nullable=False),
    Column("value", JsonText(), nullable=False),
)

# What is shared out: GPUs, models, rights to submit, and what people have stopped.

gpus = _table(
    "orchestrator_gpus",
    # The driver's own name of the card: two containers that see one card speak of the same.
    Column("uuid", name(64), primary_key=True),
    Column("node_id", name(128), nullable=False, index=True),
    Column("gpu_index", Integer(), nullable=False),
    Column("name", name(64), nullable=False),
    # The worker that reports it; none where a node is reported by itself.
    Column("worker_id", name(128), index=True),
    Column("total_mb", Integer(), nullable=False),
    Column("used_mb", Integer(), nullable=False),
    # Memory of processes that hold no lease, as far as that can be told.
    Column("outside_mb", Integer(), nullable=False, server_default=text("0")),
    Column("utilisation", Integer()),
    Column("processes", JsonText()),
    Column("measured_at", Instant(), nullable=False),
    # The last measurement that found nothing on it but what leases and known outsiders explain.
    Column("proven_at", Instant(), nullable=False),
    Column("lease_seq", BigInteger(), nullable=False, server_default=text("0")),
    Column("quarantined_at", Instant()),
    Column("quarantine_reason", name(255)),
)

worker_gpus = _table(
    "worker_gpus",
    # Several workers may see one card; one of them reports it, all of them need it.
    Column("worker_id", name(128), primary_key=True),
    Column("uuid", name(64), primary_key=True, index=True),
)

worker_models = _table(
    "worker_models", Column("worker_id", name(128), primary_key=True), Column("model", name(255), primary_key=True)
)

holds = _table(
    "orchestrator_holds",
    # `all`, `pool:NAME` or `type:NAME`.
    Column("scope", name(160), primary_key=True),
    # `pause` gives out no jobs; `drain` also lets the workers go, and spawns none.
    Column("kind", name(16), nullable=False),
    Column("reason", name(255), nullable=False),
    Column("actor", name(255), nullable=False),
    Column("since", Instant(), nullable=False),
    Column("until", Instant()),
)

policies = _table(
    "orchestrator_policies",
    Column("version", Integer(), primary_key=True, autoincrement=False),
    Column("document", JsonText(), nullable=False),
    Column("note", name(255), nullable=False),
    Column("actor", name(255), nullable=False),
    Column("created_at", Instant(), nullable=False),
)

buckets = _table(
    "admission_buckets",
    Column("agent", name(255), primary_key=True),
    Column("tokens", real(), nullable=False),
    Column("filled_at", Instant(), nullable=False),
)

gates = _table(
    "admission_gates",
    Column("name", name(300), primary_key=True),
    Column("closed_at", Instant()),
    # It stays closed at least until then.
    Column("until", Instant()),
    Column("detail", name(255)),
)

usage = _table(
    "agent_usage",
    Column("agent", name(255), primary_key=True),
    Column("day", name(10), primary_key=True),
    Column("gpu_seconds", real(), nullable=False),
    Column("updated_at", Instant(), nullable=False),
)

concurrency = _table(
    "concurrency_keys",
    # Locked by whoever gives out a job of the key, so that two cannot both take its last place.
    Column("key", name(128), primary_key=True),
)

requests = _table(
    "control_requests",
    Column("id", name(32), primary_key=True),
    Column("kind", name(32), nullable=False),
    Column("actor", name(255), nullable=False),
    Column("asked_at", Instant(), nullable=False),
    Column("taken_at", Instant()),
    Column("done_at", Instant()),
    Column("outcome", JsonObject()),
    Column("error", long_text()),
    Index("ix_control_requests_done", "done_at", "asked_at"),
)

# Views: what people and slow paths read. views.sql says what stands behind each column.

_views = MetaData()


def _view(named: str, *given: Column[Any] | tuple[str, TypeEngine[Any]]) -> Table:
    columns = dict((each.name, each.type) if isinstance(each, Column) else each for each in given)
    return Table(named, _views, *(Column(called, kind) for called, kind in columns.items()))


job_view = _view("orchestrator_jobs", *jobs.c, *job_bodies.c, *job_ends.c, ("owner_pool", name(128)))
job_attempts = _view("job_attempts", *past_attempts.c, ("failure_class", name(32)), ("error", long_text()))
audit = _view(
    "orchestrator_audit",
    *(audit_entries.c[each] for each in ("id", "ts", "object_id", "seq", "reason", "actor", "details")),
    *(("event_type", name(128)), ("object_kind", name(16)), ("from_status", name(32)), ("to_status", name(32))),
)
