"""Leases with their GPUs, pools with their rules, models, admission, and what people have stopped."""

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, inspect, text

from herdsman.store.columns import Instant, JsonObject, JsonText, long_text, name, real

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLE: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_default_charset": "utf8mb4", "if_not_exists": True}
ZERO = text("0")

ADDED: dict[str, list[Column[Any]]] = {
    "orchestrator_jobs": [
        Column("model", name(255)),
        Column("gpu_memory_mb", Integer()),
        Column("concurrency_key", name(128)),
        Column("admission", name(64)),
    ],
    "workers": [
        Column("node_id", name(128)),
        Column("revision", Integer(), nullable=False, server_default=ZERO),
        Column("wanted_revision", Integer(), nullable=False, server_default=ZERO),
        Column("loaded_at", Instant()),
    ],
    "worker_pools": [
        Column("variant", name(64)),
        Column("revision", Integer(), nullable=False, server_default=text("1")),
        Column("rules", JsonObject()),
        Column("served_by", name(16), nullable=False, server_default=text("'herdsman'")),
        Column("isolated", Integer(), nullable=False, server_default=ZERO),
        Column("used_at", Instant()),
    ],
    "orchestrator_leases": [
        Column("gpu_uuid", name(64)),
        Column("node_id", name(128)),
        Column("memory_mb", Integer(), nullable=False, server_default=ZERO),
        Column("exclusive", Integer(), nullable=False, server_default=ZERO),
        Column("ttl_s", real()),
        Column("lease_seq", BigInteger(), nullable=False, server_default=ZERO),
        Column("worker_id", name(128)),
        Column("ended_at", Instant()),
        Column("overruled", name(64)),
    ],
}

INDEXES: tuple[tuple[str, str, list[str]], ...] = (
    ("ix_orchestrator_jobs_turn", "orchestrator_jobs", ["status", "pool", "agent", "model", "place"]),
    ("ix_orchestrator_jobs_key", "orchestrator_jobs", ["status", "concurrency_key"]),
    ("ix_orchestrator_jobs_agent", "orchestrator_jobs", ["agent", "status"]),
    ("ix_job_attempts_ended_at", "job_attempts", ["ended_at"]),
    ("ix_orchestrator_leases_gpu", "orchestrator_leases", ["gpu_uuid", "status"]),
    ("ix_orchestrator_leases_ended", "orchestrator_leases", ["gpu_uuid", "ended_at"]),
    ("ix_orchestrator_leases_worker", "orchestrator_leases", ["worker_id", "status"]),
    ("ix_orchestrator_leases_list", "orchestrator_leases", ["created_at", "token"]),
)


def upgrade() -> None:
    there = inspect(op.get_bind())
    for table, columns in ADDED.items():
        known = {column["name"] for column in there.get_columns(table)}
        for column in columns:
            if column.name not in known:
                op.add_column(table, column)
    for index, table, indexed in INDEXES:
        op.create_index(index, table, indexed, if_not_exists=True)
    _gpus()
    _worker_gpus()
    _worker_models()
    _holds()
    _policies()
    _buckets()
    _gates()
    _usage()
    _concurrency()
    _requests()


def _gpus() -> None:
    op.create_table(
        "orchestrator_gpus",
        Column("uuid", name(64), primary_key=True),
        Column("node_id", name(128), nullable=False),
        Column("gpu_index", Integer(), nullable=False),
        Column("name", name(64), nullable=False),
        Column("worker_id", name(128)),
        Column("total_mb", Integer(), nullable=False),
        Column("used_mb", Integer(), nullable=False),
        Column("outside_mb", Integer(), nullable=False, server_default=text("0")),
        Column("utilisation", Integer()),
        Column("processes", JsonText()),
        Column("measured_at", Instant(), nullable=False),
        Column("proven_at", Instant(), nullable=False),
        Column("lease_seq", BigInteger(), nullable=False, server_default=text("0")),
        Column("quarantined_at", Instant()),
        Column("quarantine_reason", name(255)),
        **TABLE,
    )
    op.create_index("ix_orchestrator_gpus_node_id", "orchestrator_gpus", ["node_id"], if_not_exists=True)
    op.create_index("ix_orchestrator_gpus_worker_id", "orchestrator_gpus", ["worker_id"], if_not_exists=True)


def _worker_gpus() -> None:
    op.create_table(
        "worker_gpus",
        Column("worker_id", name(128), primary_key=True),
        Column("uuid", name(64), primary_key=True),
        **TABLE,
    )
    op.create_index("ix_worker_gpus_uuid", "worker_gpus", ["uuid"], if_not_exists=True)


def _worker_models() -> None:
    op.create_table(
        "worker_models",
        Column("worker_id", name(128), primary_key=True),
        Column("model", name(255), primary_key=True),
        **TABLE,
    )


def _holds() -> None:
    op.create_table(
        "orchestrator_holds",
        Column("scope", name(160), primary_key=True),
        Column("kind", name(16), nullable=False),
        Column("why", name(255), nullable=False),
        Column("actor", name(255), nullable=False),
        Column("since", Instant(), nullable=False),
        Column("until", Instant()),
        **TABLE,
    )


def _policies() -> None:
    op.create_table(
        "orchestrator_policies",
        Column("version", Integer(), primary_key=True, autoincrement=False),
        Column("document", JsonText(), nullable=False),
        Column("note", name(255), nullable=False),
        Column("actor", name(255), nullable=False),
        Column("created_at", Instant(), nullable=False),
        **TABLE,
    )


def _buckets() -> None:
    op.create_table(
        "admission_buckets",
        Column("agent", name(255), primary_key=True),
        Column("tokens", real(), nullable=False),
        Column("filled_at", Instant(), nullable=False),
        **TABLE,
    )


def _gates() -> None:
    op.create_table(
        "admission_gates",
        Column("name", name(300), primary_key=True),
        Column("closed_at", Instant()),
        Column("until", Instant()),
        Column("detail", name(255)),
        **TABLE,
    )


def _usage() -> None:
    op.create_table(
        "agent_usage",
        Column("agent", name(255), primary_key=True),
        Column("day", name(10), primary_key=True),
        Column("gpu_seconds", real(), nullable=False),
        Column("updated_at", Instant(), nullable=False),
        **TABLE,
    )


def _concurrency() -> None:
    op.create_table(
        "concurrency_keys",
        Column("key", name(128), primary_key=True),
        **TABLE,
    )


def _requests() -> None:
    op.create_table(
        "control_requests",
        Column("id", name(32), primary_key=True),
        Column("kind", name(32), nullable=False),
        Column("actor", name(255), nullable=False),
        Column("asked_at", Instant(), nullable=False),
        Column("taken_at", Instant()),
        Column("done_at", Instant()),
        Column("outcome", JsonObject()),
        Column("error", long_text()),
        **TABLE,
    )
    op.create_index(
        "ix_control_requests_done", "control_requests", ["done_at", "asked_at"], if_not_exists=True
    )
