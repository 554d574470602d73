"""What the control loop knows of workers and their instances, and a record of its cycles."""

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, inspect

from herdsman.store.columns import Instant, JsonObject, long_text, name, real

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SERIAL = BigInteger().with_variant(Integer(), "sqlite")
TABLE: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_default_charset": "utf8mb4", "if_not_exists": True}


def upgrade() -> None:
    _workers()
    _fleets()
    _instances()
    _cycles()


def _workers() -> None:
    there = {column["name"] for column in inspect(op.get_bind()).get_columns("workers")}
    new: list[Column[Any]] = [
        Column("provider", name(64)),
        Column("instance_name", name(255)),
        Column("instance_ref", name(128)),
        Column("cost_per_hour", real()),
        Column("ready", Integer()),
        Column("gpu_seen", Integer()),
        Column("gpu_fault", name(255)),
        Column("vram_at", Instant()),
        Column("promoted_at", Instant()),
        Column("failed_at", Instant()),
        Column("error_code", name(64)),
        Column("error_reason", long_text()),
        Column("end_asked_at", Instant()),
        Column("absent_since", Instant()),
    ]
    for column in new:
        if column.name not in there:
            op.add_column("workers", column)
    op.create_index("ix_workers_failed_at", "workers", ["failed_at"], if_not_exists=True)
    op.create_index("uq_workers_instance_name", "workers", ["instance_name"], unique=True, if_not_exists=True)


def _fleets() -> None:
    op.create_table(
        "orchestrator_fleets",
        Column("pool", name(128), primary_key=True),
        Column("last_scaled_at", Instant()),
        Column("wait_until", Instant()),
        Column("waits", Integer(), nullable=False),
        Column("stopped_by", long_text()),
        **TABLE,
    )


def _instances() -> None:
    op.create_table(
        "orchestrator_instances",
        Column("name", name(255), primary_key=True),
        Column("worker_id", name(128), nullable=False),
        Column("pool", name(128), nullable=False),
        Column("provider", name(64), nullable=False),
        Column("ref", name(128)),
        Column("gpu_type", name(128)),
        Column("cost_per_hour", real(), nullable=False),
        Column("asked_at", Instant(), nullable=False),
        Column("started_at", Instant()),
        Column("ended_at", Instant()),
        **TABLE,
    )
    for column in ("worker_id", "asked_at", "ended_at"):
        index = f"ix_orchestrator_instances_{column}"
        op.create_index(index, "orchestrator_instances", [column], if_not_exists=True)


def _cycles() -> None:
    op.create_table(
        "orchestrator_cycles",
        Column("id", SERIAL, primary_key=True, autoincrement=True),
        Column("epoch", BigInteger(), nullable=False),
        Column("started_at", Instant(), nullable=False),
        Column("finished_at", Instant(), nullable=False),
        Column("summary", JsonObject(), nullable=False),
        Column("steps", JsonObject(), nullable=False),
        sqlite_autoincrement=True,
        **TABLE,
    )
    op.create_index(
        "ix_orchestrator_cycles_started_at", "orchestrator_cycles", ["started_at"], if_not_exists=True
    )
