"""The tables, and the views that people read them by; migrations/ holds the steps that lead here."""

from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from herdsman.db.dialects import Instant, JsonObject, JsonText, long_text, name, packed, real
from herdsman.ids import HIGHEST, LOWEST
from herdsman.states import HELD, JOB, LEASE, POOL, WAITING, WORKER, AnyMachine, JobStatus

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
    }
)

# Keys that grow by themselves; SQLite only does that for a plain INTEGER.
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _table(named: str, *parts: sa.Column[Any] | sa.Constraint | sa.Index, **more: Any) -> sa.Table:
    return sa.Table(named, metadata, *parts, mysql_engine="InnoDB", mysql_default_charset="utf8mb4", **more)


def in_states(states: tuple[StrEnum, ...] | frozenset[StrEnum], column: str = "status") -> str:
    """SQL: `column` is one of `states`. Sorted, so that generated text is the same every time."""
    return f"{column} IN ({', '.join(repr(str(state)) for state in sorted(states))})"


def _moving(machine: AnyMachine) -> list[sa.Column[Any] | sa.CheckConstraint]:
    """What every table of a state machine has: the state, why, by whom, and how many moves so far."""
    return [
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", Instant(), nullable=False),
        sa.Column("status", name(32), nullable=False),
        sa.Column("reason", name(64), nullable=False),
        sa.Column("actor", name(255), nullable=False),
        sa.CheckConstraint(in_states(machine.states), name="status"),
    ]


def _in_part(where: str) -> dict[str, Any]:
    """Of an index: only these rows are in it. MariaDB has no such indexes; there it holds all rows."""
    return {"postgresql_where": sa.text(where), "sqlite_where": sa.text(where)}


def _any_of(*states: StrEnum) -> str:
    """SQLite sees that one state implies this, which it does not see of an IN."""
    return " OR ".join(f"status = '{state}'" for state in states)


_PENDING = f"status = '{JobStatus.PENDING}'"
_WAITING = _any_of(*WAITING)
jobs = _table(
    JOB.table,
    # The row that moves: what moving, choosing and sweeping need, and nothing else.
    sa.Column("job_id", name(128), primary_key=True),
    # Numbers and instants stand together: PostgreSQL leaves no gaps between them then.
    sa.Column("place", sa.BigInteger(), nullable=False),
    sa.Column("claim_token", sa.BigInteger(), nullable=False),
    sa.Column("run_at", Instant(), nullable=False),
    sa.Column("created_at", Instant(), nullable=False),
    sa.Column("claim_expires_at", Instant()),
    # Of the attempt that it is in, or that it ended with; the attempts before stand in `past_attempts`.
    sa.Column("claimed_at", Instant()),
    sa.Column("started_at", Instant()),
    sa.Column("deadline_at", Instant()),
    sa.Column("cancel_requested_at", Instant()),
    sa.Column("finished_at", Instant()),
    sa.Column("timeout_s", real()),
    sa.Column("attempts", sa.Integer(), nullable=False),
    sa.Column("interruptions", sa.Integer(), nullable=False),
    sa.Column("worker_losses", sa.Integer(), nullable=False),
    sa.Column("out_of_memory", sa.Integer(), nullable=False),
    sa.Column("slot", sa.Integer(), nullable=False, server_default=sa.text("0")),
    # Memory of the GPU that it needs; without a number, all of it.
    sa.Column("gpu_memory_mb", sa.Integer()),
    # It may run on a worker without a GPU, though it names how much memory it would need of one.
    sa.Column("allow_cpu", sa.Integer(), nullable=False, server_default=sa.text("0")),
    *_moving(JOB),
    sa.Column("type", name(64), nullable=False),
    sa.Column("agent", name(255), nullable=False),
    sa.Column("pool", name(128), nullable=False),
    # The model that it runs with: a worker that has it loaded is preferred.
    sa.Column("model", name(255)),
    # Only so many jobs of one key run at a time.
    sa.Column("concurrency_key", name(128)),
    sa.Column("worker_id", name(128), sa.ForeignKey("workers.id")),
    sa.Column("last_worker_id", name(128)),
    # Which incarnation of its worker has begun the claim: one token, one execution.
    sa.Column("begun_by", name(64)),
    # Most jobs have none of these, and then they take no room.
    sa.Column("progress", real()),
    sa.Column("progress_note", name(255)),
    sa.Column("progress_at", Instant()),
    sa.Column("service_job_id", name(255)),
    sa.Column("service_status", name(64)),
    sa.Column("service_submitted_at", Instant()),
    sa.Column("last_service_check", Instant()),
    sa.CheckConstraint(f"({in_states(HELD)}) = (worker_id IS NOT NULL)", name="owned"),
    sa.CheckConstraint(f"({in_states(HELD)}) = (claim_expires_at IS NOT NULL)", name="expires"),
    sa.CheckConstraint(f"({in_states(JOB.terminal)}) = (finished_at IS NOT NULL)", name="finished"),
    sa.CheckConstraint(
        f"CASE WHEN {in_states(HELD)} THEN claimed_at IS NOT NULL AND last_worker_id IS NOT NULL"
        f" AND last_worker_id = worker_id WHEN {in_states(WAITING)} THEN claimed_at IS NULL"
        " ELSE 1 = 1 END",
        name="attempted",
    ),
    sa.CheckConstraint("status <> 'done' OR cancel_requested_at IS NULL", name="cancelled"),
    sa.CheckConstraint("attempts >= 0 AND interruptions >= 0 AND claim_token >= attempts", name="counted"),
    sa.CheckConstraint("progress IS NULL OR (progress >= 0 AND progress <= 1)", name="progress"),
    # A job is in the indexes of its state alone, so that those of a long history do not slow down what moves.
    sa.Index("ix_job_states_next", "status", "pool", "place", **_in_part(_PENDING)),
    sa.Index("ix_job_states_type", "status", "pool", "type", "place", **_in_part(_PENDING)),
    # Whose turn it is, and the next of each model, are found by a few looks into it.
    sa.Index("ix_job_states_turn", "status", "pool", "agent", "model", "place", **_in_part(_PENDING)),
    sa.Index("ix_job_states_due", "status", "run_at", **_in_part(_WAITING)),
    sa.Index("ix_job_states_agent", "agent", "status", **_in_part(_WAITING)),
    # One job per slot: a worker that takes no batches has slot 0 alone, and so one job at a time.
    sa.Index("uq_job_states_held", "worker_id", "slot", unique=True, **_in_part("worker_id IS NOT NULL")),
    sa.Index("ix_job_states_list", "created_at"),
    sa.Index(
        "ix_job_states_list_status",
        *("status", "created_at"),
        **_in_part(_any_of(*WAITING, JobStatus.CANCELLED, JobStatus.DEAD_LETTER)),
    ),
    sa.Index("ix_job_states_finished", "finished_at", **_in_part("finished_at IS NOT NULL")),
    sa.Index("ix_job_states_worker", "last_worker_id", "finished_at", **_in_part("finished_at IS NOT NULL")),
)

job_bodies = _table(
    "job_bodies",
    # What was asked for: written once, and again only by a requeue with another payload.
    sa.Column("job_id", name(128), sa.ForeignKey(f"{JOB.table}.job_id"), primary_key=True),
    sa.Column("payload", JsonText(), nullable=False),
    sa.Column("tags", JsonText(), nullable=False),
    sa.Column("body_hash", name(64), nullable=False),
    # Stands beside its job's row for the sake of the key alone.
    sa.Column("agent", name(255), nullable=False),
    sa.Column("idempotency_key", name(255)),
    sa.Column("priority", sa.Integer(), nullable=False),
    sa.Column("max_attempts", sa.Integer(), nullable=False),
    sa.Column("retry_base_s", real()),
    sa.Column("retry_cap_s", real()),
    # Why it was put off or sent to another pool when it was accepted.
    sa.Column("admission", name(64)),
    sa.CheckConstraint(f"priority BETWEEN {LOWEST} AND {HIGHEST}", name="priority"),
    sa.Index(
        "uq_job_bodies_agent_idempotency_key",
        *("agent", "idempotency_key"),
        unique=True,
        **_in_part("idempotency_key IS NOT NULL"),
    ),
)

job_ends = _table(
    "job_ends",
    # What a claim left: its result or its error. Written once, and shown while its token is the job's.
    sa.Column("job_id", name(128), sa.ForeignKey(f"{JOB.table}.job_id"), primary_key=True),
    sa.Column("claim_token", sa.BigInteger(), primary_key=True, autoincrement=False),
    sa.Column("result", JsonText()),
    sa.Column("failure_class", name(32)),
    sa.Column("last_error", long_text()),
    # GPU time that was spared because the result was found at the service, not made again.
    sa.Column("saved_gpu_s", real()),
    sa.CheckConstraint("result IS NULL OR failure_class IS NULL", name="one"),
    sa.Index("ix_job_ends_saved", "saved_gpu_s", **_in_part("saved_gpu_s IS NOT NULL")),
)

past_attempts = _table(
    "past_attempts",
    # The attempts that were followed by something else; a job's last one is read from its own row.
    sa.Column("job_id", name(128), sa.ForeignKey(f"{JOB.table}.job_id"), primary_key=True),
    sa.Column("claim_token", sa.BigInteger(), primary_key=True, autoincrement=False),
    sa.Column("attempt", sa.Integer(), nullable=False),
    sa.Column("worker_id", name(128), nullable=False),
    sa.Column("pool", name(128), nullable=False),
    sa.Column("claimed_at", Instant(), nullable=False),
    sa.Column("started_at", Instant()),
    sa.Column("ended_at", Instant(), nullable=False),
    sa.Column("outcome", name(32), nullable=False),
    sa.Column("reason", name(64), nullable=False),
    sa.Index("ix_past_attempts_worker", "worker_id", "ended_at"),
    sa.Index("ix_past_attempts_ended", "ended_at"),
    # Its rows are small; one with a long text would be read whole at each comparison of keys.
    sqlite_with_rowid=False,
)

SERVICE = ("service_job_id", "service_status", "service_submitted_at", "last_service_check")
"""The columns that say where a job is on an external service."""

job_tags = _table(
    "job_tags",
    sa.Column("tag", name(64), primary_key=True),
    sa.Column("job_id", name(128), sa.ForeignKey(f"{JOB.table}.job_id"), primary_key=True, index=True),
    # The job's own, so that a page of a tag's jobs is a piece of one index.
    sa.Column("created_at", Instant(), nullable=False),
    sa.Index("ix_job_tags_list", "tag", "created_at", "job_id"),
)

workers = _table(
    WORKER.table,
    sa.Column("id", name(128), primary_key=True),
    sa.Column("instance_type", name(128)),
    sa.Column("created_at", Instant(), nullable=False, index=True),
    # No default: a heartbeat that nobody sent would look like a worker that lives.
    sa.Column("last_heartbeat", Instant(), index=True),
    *_moving(WORKER),
    sa.Column("pool", name(128), nullable=False),
    sa.Column("entered_state_at", Instant(), nullable=False),
    sa.Column("metadata", JsonObject(), nullable=False),
    sa.Column("provider", name(64)),
    # Unique for ever: a creation whose answer was lost is found again by it.
    sa.Column("instance_name", name(255)),
    sa.Column("instance_ref", name(128)),
    sa.Column("cost_per_hour", real()),
    sa.Column("ready", sa.Integer()),
    sa.Column("gpu_seen", sa.Integer()),
    sa.Column("gpu_fault", name(255)),
    sa.Column("vram_at", Instant()),
    # Of the disk that it was started on, in millions of bytes.
    sa.Column("disk_total_mb", sa.BigInteger()),
    sa.Column("disk_free_mb", sa.BigInteger()),
    sa.Column("promoted_at", Instant()),
    sa.Column("failed_at", Instant(), index=True),
    sa.Column("error_code", name(64)),
    sa.Column("error_reason", long_text()),
    sa.Column("end_asked_at", Instant()),
    sa.Column("absent_since", Instant()),
    # When a listing first had its instance: from then on it is known to have been there.
    sa.Column("listed_at", Instant()),
    # When its process last got a token of its own: from then on heartbeats are due.
    sa.Column("registered_at", Instant()),
    sa.Column("node_id", name(128)),
    # Which edition of its pool's model it has loaded, which it was told to load, and when it last changed.
    sa.Column("revision", sa.Integer(), nullable=False, server_default=sa.text("0")),
    sa.Column("wanted_revision", sa.Integer(), nullable=False, server_default=sa.text("0")),
    sa.Column("loaded_at", Instant()),
    sa.Index("uq_workers_instance_name", "instance_name", unique=True),
    sa.Index("ix_workers_status", "status", "pool"),
)

pools = _table(
    POOL.table,
    sa.Column("pool_id", name(128), primary_key=True),
    sa.Column("agent_name", name(255), nullable=False),
    sa.Column("model_id", name(255)),
    sa.Column("adapter", name(255)),
    sa.Column("desired_workers", sa.Integer(), nullable=False, server_default=sa.text("0")),
    sa.Column("spawned_workers", sa.Integer(), nullable=False, server_default=sa.text("0")),
    sa.Column("started_at", Instant(), nullable=False),
    sa.Column("last_heartbeat", Instant()),
    *_moving(POOL),
    sa.Column("hold_seconds", sa.Integer(), nullable=False, server_default=sa.text("600")),
    sa.Column("metadata", JsonObject(), nullable=False),
    sa.Column("variant", name(64)),
    # Raised by each change of model, adapter or variant; workers follow one after the other.
    sa.Column("revision", sa.Integer(), nullable=False, server_default=sa.text("1")),
    # What this pool has of its own, instead of the settings: sizes, times, schedule, preloads.
    sa.Column("rules", JsonObject()),
    # `herdsman` spawns its workers; `hand` leaves that to somebody else.
    sa.Column("served_by", name(16), nullable=False, server_default=sa.text("'herdsman'")),
    # An isolated pool has a stream of its own.
    sa.Column("isolated", sa.Integer(), nullable=False, server_default=sa.text("0")),
    sa.Column("used_at", Instant()),
    sa.CheckConstraint("desired_workers >= 0 AND spawned_workers >= 0 AND hold_seconds >= 0", name="counted"),
)

leases = _table(
    LEASE.table,
    sa.Column("token", name(64), primary_key=True),
    sa.Column("agent_name", name(255), nullable=False),
    sa.Column("gpu_index", sa.Integer()),
    sa.Column("mode", name(8), nullable=False, server_default=sa.text("'gpu'")),
    sa.Column("created_at", Instant(), nullable=False),
    sa.Column("expires_at", Instant(), nullable=False),
    sa.Column("last_heartbeat", Instant()),
    *_moving(LEASE),
    sa.Column("metadata", JsonObject(), nullable=False),
    sa.Column("gpu_uuid", name(64)),
    sa.Column("node_id", name(128)),
    sa.Column("memory_mb", sa.Integer(), nullable=False, server_default=sa.text("0")),
    sa.Column("exclusive", sa.Integer(), nullable=False, server_default=sa.text("0")),
    sa.Column("ttl_s", real()),
    # Rises with each lease of a GPU: what carries an older number comes from a holder that has lost it.
    sa.Column("lease_seq", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
    # The worker whose claim this is; none for a lease that somebody asked for.
    sa.Column("worker_id", name(128)),
    sa.Column("ended_at", Instant()),
    # Given in shadow mode although it would have been refused, and why.
    sa.Column("overruled", name(64)),
    sa.CheckConstraint("mode IN ('gpu', 'cpu')", name="mode"),
    sa.Index("idx_leases_agent", "agent_name"),
    sa.Index("ix_orchestrator_leases_expiry", "status", "expires_at"),
    sa.Index("ix_orchestrator_leases_gpu", "gpu_uuid", "status"),
    sa.Index("ix_orchestrator_leases_ended", "gpu_uuid", "ended_at"),
    sa.Index("ix_orchestrator_leases_worker", "worker_id", "status"),
    sa.Index("ix_orchestrator_leases_list", "created_at", "token"),
)

audit_entries = _table(
    "audit_entries",
    sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
    # Numbers first: PostgreSQL leaves no gaps between them then.
    sa.Column("seq", sa.BigInteger(), nullable=False),
    sa.Column("ts", Instant(), nullable=False),
    # Of a job: its numbers then, and who held it.
    sa.Column("claim_token", sa.BigInteger()),
    sa.Column("attempts", sa.Integer()),
    sa.Column("kind", name(16), nullable=False),
    sa.Column("object_id", name(128), nullable=False),
    sa.Column("status", name(32), nullable=False),
    sa.Column("reason", name(64), nullable=False),
    sa.Column("actor", name(255), nullable=False),
    sa.Column("worker_id", name(128)),
    # Of what is no row of a state machine: a pause, the policy, a quarantined entry of a stream.
    sa.Column("details", JsonObject()),
    sa.UniqueConstraint("kind", "object_id", "seq"),
    sqlite_autoincrement=True,
)

retention = _table(
    "orchestrator_retention",
    sa.Column("name", name(32), primary_key=True),
    sa.Column("prune_before", Instant(), nullable=False),
)

leader = _table(
    "orchestrator_leader",
    sa.Column("name", name(64), primary_key=True),
    sa.Column("holder", name(255), nullable=False),
    # Only rises, by one with each change of leader: it fences every write of the control loop.
    sa.Column("epoch", sa.BigInteger(), nullable=False),
    sa.Column("acquired_at", Instant(), nullable=False),
    sa.Column("renewed_at", Instant(), nullable=False),
    sa.Column("expires_at", Instant(), nullable=False),
    # Since when heartbeats could be written without a break: silence and expired claims count from then.
    sa.Column("beats_since", Instant()),
    # Until then a leader that is cut off may let workers go on with their jobs; NULL where it does not.
    sa.Column("holds_until", Instant()),
)

installation = _table(
    "orchestrator_installation",
    sa.Column("name", name(64), primary_key=True),
    # In the name of every instance that this database has started: it ends no others.
    sa.Column("id", name(32), nullable=False),
    # The number of the last one, in its name as well: a higher one shows that this database went back in time.
    sa.Column("spawned", sa.BigInteger(), nullable=False),
    # Where the claim tokens of new jobs begin: above those that it gave out before it went back in time.
    sa.Column("first_token", sa.BigInteger(), nullable=False),
    # Where it was when it was used last: elsewhere, it may be a copy.
    sa.Column("place", JsonObject(), nullable=False),
    # Since when each instance that belongs to no worker has been listed.
    sa.Column("orphans", JsonObject(), nullable=False),
    # What showed that it went back in time; until a person adopts it, it starts and ends nothing.
    sa.Column("held", long_text()),
    # The same, by the word of a worker: that stops nothing.
    sa.Column("hint", long_text()),
    sa.Column("raised_at", Instant()),
    sa.Column("created_at", Instant(), nullable=False),
)

fleets = _table(
    "orchestrator_fleets",
    # Locked by whoever adds a worker to the pool, so that two cannot both take its last place.
    sa.Column("pool", name(128), primary_key=True),
    sa.Column("last_scaled_at", Instant()),
    sa.Column("wait_until", Instant()),
    sa.Column("waits", sa.Integer(), nullable=False),
    sa.Column("stopped_by", long_text()),
)

instances = _table(
    "orchestrator_instances",
    sa.Column("name", name(255), primary_key=True),
    sa.Column("worker_id", name(128), nullable=False, index=True),
    sa.Column("pool", name(128), nullable=False),
    sa.Column("provider", name(64), nullable=False),
    sa.Column("ref", name(128)),
    sa.Column("gpu_type", name(128)),
    sa.Column("cost_per_hour", real(), nullable=False),
    sa.Column("asked_at", Instant(), nullable=False, index=True),
    sa.Column("started_at", Instant()),
    sa.Column("ended_at", Instant(), index=True),
)

cycles = _table(
    "orchestrator_cycles",
    sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
    sa.Column("epoch", sa.BigInteger(), nullable=False),
    sa.Column("started_at", Instant(), nullable=False, index=True),
    sa.Column("finished_at", Instant(), nullable=False),
    sa.Column("summary", JsonObject(), nullable=False),
    sa.Column("steps", JsonObject(), nullable=False),
    sqlite_autoincrement=True,
)

sights = _table(
    "orchestrator_sights",
    # What the cycle of this number saw. Without a base it is whole, else what is different from what the base saw.
    sa.Column("cycle_id", sa.BigInteger(), primary_key=True, autoincrement=False),
    sa.Column("base_id", sa.BigInteger()),
    sa.Column("data", packed(), nullable=False),
)

# The API: who may call it, and what attempts leave behind.

tokens = _table(
    "api_tokens",
    sa.Column("id", name(32), primary_key=True),
    sa.Column("role", name(16), nullable=False),
    sa.Column("name", name(255), nullable=False),
    # Never the secret itself: a keyed hash of it.
    sa.Column("hash", name(64), nullable=False),
    # What a token is good for beyond its role: one submitter's jobs, one worker, one pool.
    sa.Column("agent", name(255)),
    sa.Column("worker_id", name(128), index=True),
    sa.Column("incarnation", name(64)),
    sa.Column("pool", name(128)),
    sa.Column("created_at", Instant(), nullable=False),
    sa.Column("expires_at", Instant()),
    sa.Column("revoked_at", Instant()),
    sa.Column("used_at", Instant()),
)

logs = _table(
    "job_logs",
    sa.Column("job_id", name(128), sa.ForeignKey(f"{JOB.table}.job_id"), primary_key=True),
    sa.Column("claim_token", sa.BigInteger(), primary_key=True, autoincrement=False),
    # Counts the lines of the attempt from 0: the same piece sent twice is one row.
    sa.Column("first_line", sa.Integer(), primary_key=True, autoincrement=False),
    sa.Column("ts", Instant(), nullable=False),
    sa.Column("line_count", sa.Integer(), nullable=False),
    sa.Column("byte_count", sa.Integer(), nullable=False),
    sa.Column("lines", JsonText(), nullable=False),
)

system_logs = _table(
    "system_logs",
    sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
    # By the clock of who said it; what is old is told by ours.
    sa.Column("ts", Instant(), nullable=False),
    sa.Column("stored_at", Instant(), nullable=False, index=True),
    sa.Column("instance", name(255), nullable=False),
    sa.Column("level", name(16), nullable=False),
    sa.Column("event", name(255), nullable=False),
    sa.Column("details", JsonObject(), nullable=False),
    sa.Index("ix_system_logs_level", "level", "ts"),
    sqlite_autoincrement=True,
)

checkpoints = _table(
    "job_checkpoints",
    sa.Column("job_id", name(128), sa.ForeignKey(f"{JOB.table}.job_id"), primary_key=True),
    sa.Column("claim_token", sa.BigInteger(), nullable=False),
    sa.Column("updated_at", Instant(), nullable=False),
    sa.Column("value", JsonText(), nullable=False),
)

# What is shared out: GPUs, models, rights to submit, and what people have stopped.

gpus = _table(
    "orchestrator_gpus",
    # The driver's own name of the card: two containers that see one card speak of the same.
    sa.Column("uuid", name(64), primary_key=True),
    sa.Column("node_id", name(128), nullable=False, index=True),
    sa.Column("gpu_index", sa.Integer(), nullable=False),
    sa.Column("name", name(64), nullable=False),
    # The worker that reports it; none where a node is reported by itself.
    sa.Column("worker_id", name(128), index=True),
    sa.Column("total_mb", sa.Integer(), nullable=False),
    sa.Column("used_mb", sa.Integer(), nullable=False),
    # Memory of processes that hold no lease, as far as that can be told.
    sa.Column("outside_mb", sa.Integer(), nullable=False, server_default=sa.text("0")),
    sa.Column("utilisation", sa.Integer()),
    sa.Column("processes", JsonText()),
    sa.Column("measured_at", Instant(), nullable=False),
    # The last measurement that found nothing on it but what leases and known outsiders explain.
    sa.Column("proven_at", Instant(), nullable=False),
    sa.Column("lease_seq", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
    sa.Column("quarantined_at", Instant()),
    sa.Column("quarantine_reason", name(255)),
)

worker_gpus = _table(
    "worker_gpus",
    # Several workers may see one card; one of them reports it, all of them need it.
    sa.Column("worker_id", name(128), primary_key=True),
    sa.Column("uuid", name(64), primary_key=True, index=True),
)

worker_models = _table(
    "worker_models",
    sa.Column("worker_id", name(128), primary_key=True),
    sa.Column("model", name(255), primary_key=True),
)

holds = _table(
    "orchestrator_holds",
    # `all`, `pool:NAME` or `type:NAME`.
    sa.Column("scope", name(160), primary_key=True),
    # `pause` gives out no jobs; `drain` also lets the workers go, and spawns none.
    sa.Column("kind", name(16), nullable=False),
    sa.Column("reason", name(255), nullable=False),
    sa.Column("actor", name(255), nullable=False),
    sa.Column("since", Instant(), nullable=False),
    sa.Column("until", Instant()),
)

policies = _table(
    "orchestrator_policies",
    sa.Column("version", sa.Integer(), primary_key=True, autoincrement=False),
    sa.Column("document", JsonText(), nullable=False),
    sa.Column("note", name(255), nullable=False),
    sa.Column("actor", name(255), nullable=False),
    sa.Column("created_at", Instant(), nullable=False),
)

buckets = _table(
    "admission_buckets",
    sa.Column("agent", name(255), primary_key=True),
    sa.Column("tokens", real(), nullable=False),
    sa.Column("filled_at", Instant(), nullable=False),
)

gates = _table(
    "admission_gates",
    sa.Column("name", name(300), primary_key=True),
    sa.Column("closed_at", Instant()),
    # It stays closed at least until then.
    sa.Column("until", Instant()),
    sa.Column("detail", name(255)),
)

usage = _table(
    "agent_usage",
    sa.Column("agent", name(255), primary_key=True),
    sa.Column("day", name(10), primary_key=True),
    sa.Column("gpu_seconds", real(), nullable=False),
    sa.Column("updated_at", Instant(), nullable=False),
)

concurrency = _table(
    "concurrency_keys",
    # Locked by whoever gives out a job of the key, so that two cannot both take its last place.
    sa.Column("key", name(128), primary_key=True),
)

requests = _table(
    "control_requests",
    sa.Column("id", name(32), primary_key=True),
    sa.Column("kind", name(32), nullable=False),
    sa.Column("actor", name(255), nullable=False),
    sa.Column("asked_at", Instant(), nullable=False),
    sa.Column("taken_at", Instant()),
    sa.Column("done_at", Instant()),
    sa.Column("outcome", JsonObject()),
    sa.Column("error", long_text()),
    sa.Index("ix_control_requests_done", "done_at", "asked_at"),
)

# Views: what people and slow paths read. views.sql says what stands behind each column.

_views = sa.MetaData()


def _view(named: str, *given: sa.Column[Any] | tuple[str, TypeEngine[Any]]) -> sa.Table:
    columns = dict((each.name, each.type) if isinstance(each, sa.Column) else each for each in given)
    return sa.Table(named, _views, *(sa.Column(called, kind) for called, kind in columns.items()))


job_view = _view("orchestrator_jobs", *jobs.c, *job_bodies.c, *job_ends.c, ("owner_pool", name(128)))
job_attempts = _view("job_attempts", *past_attempts.c, ("failure_class", name(32)), ("error", long_text()))
audit = _view(
    "orchestrator_audit",
    *(audit_entries.c[each] for each in ("id", "ts", "object_id", "seq", "reason", "actor", "details")),
    *(("event_type", name(128)), ("object_kind", name(16)), ("from_status", name(32)), ("to_status", name(32))),
)
