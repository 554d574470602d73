"""The tables behind what is shared out: GPUs, models, rights to submit, and what people have stopped."""

from sqlalchemy import BigInteger, Column, Index, Integer, Table, text

from herdsman.store.columns import Instant, JsonObject, JsonText, long_text, name, real
from herdsman.store.schema_api import metadata

gpus = Table(
    "orchestrator_gpus",
    metadata,
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
    mysql_engine="InnoDB",
    mysql_default_charset="utf8mb4",
)

worker_gpus = Table(
    "worker_gpus",
    metadata,
    # Several workers may see one card; one of them reports it, all of them need it.
    Column("worker_id", name(128), primary_key=True),
    Column("uuid", name(64), primary_key=True, index=True),
    mysql_engine="InnoDB",
    mysql_default_charset="utf8mb4",
)

worker_models = Table(
    "worker_models",
    metadata,
    Column("worker_id", name(128), primary_key=True),
    Column("model", name(255), primary_key=True),
    mysql_engine="InnoDB",
    mysql_default_charset="utf8mb4",
)

holds = Table(
    "orchestrator_holds",
    metadata,
    # `all`, `pool:NAME` or `type:NAME`.
    Column("scope", name(160), primary_key=True),
    # `pause` gives out no jobs; `drain` also lets the workers go, and spawns none.
    Column("kind", name(16), nullable=False),
    Column("why", name(255), nullable=False),
    Column("actor", name(255), nullable=False),
    Column("since", Instant(), nullable=False),
    Column("until", Instant()),
    mysql_engine="InnoDB",
    mysql_default_charset="utf8mb4",
)

policies = Table(
    "orchestrator_policies",
    metadata,
    Column("version", Integer(), primary_key=True, autoincrement=False),
    Column("document", JsonText(), nullable=False),
    Column("note", name(255), nullable=False),
    Column("actor", name(255), nullable=False),
    Column("created_at", Instant(), nullable=False),
    mysql_engine="InnoDB",
    mysql_default_charset="utf8mb4",
)

buckets = Table(
    "admission_buckets",
    metadata,
    Column("agent", name(255), primary_key=True),
    Column("tokens", real(), nullable=False),
    Column("filled_at", Instant(), nullable=False),
    mysql_engine="InnoDB",
    mysql_default_charset="utf8mb4",
)

gates = Table(
    "admission_gates",
    metadata,
    Column("name", name(300), primary_key=True),
    Column("closed_at", Instant()),
    # It stays closed at least until then.
    Column("until", Instant()),
    Column("detail", name(255)),
    mysql_engine="InnoDB",
    mysql_default_charset="utf8mb4",
)

usage = Table(
    "agent_usage",
    metadata,
    Column("agent", name(255), primary_key=True),
    Column("day", name(10), primary_key=True),
    Column("gpu_seconds", real(), nullable=False),
    Column("updated_at", Instant(), nullable=False),
    mysql_engine="InnoDB",
    mysql_default_charset="utf8mb4",
)

concurrency = Table(
    "concurrency_keys",
    metadata,
    # Locked by whoever gives out a job of the key, so that two cannot both take its last place.
    Column("key", name(128), primary_key=True),
    mysql_engine="InnoDB",
    mysql_default_charset="utf8mb4",
)

requests = Table(
    "control_requests",
    metadata,
    Column("id", name(32), primary_key=True),
    Column("kind", name(32), nullable=False),
    Column("actor", name(255), nullable=False),
    Column("asked_at", Instant(), nullable=False),
    Column("taken_at", Instant()),
    Column("done_at", Instant()),
    Column("outcome", JsonObject()),
    Column("error", long_text()),
    Index("ix_control_requests_done", "done_at", "asked_at"),
    mysql_engine="InnoDB",
    mysql_default_charset="utf8mb4",
)
