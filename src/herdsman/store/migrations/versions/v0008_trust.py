"""What outages, restarts and copies of the database must not make us forget."""

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Index, Integer, inspect, text

from herdsman.store.columns import Instant, JsonObject, long_text, name

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

SERIAL = BigInteger().with_variant(Integer(), "sqlite")

ADDED: tuple[tuple[str, Column[Any]], ...] = (
    ("orchestrator_jobs", Column("begun_by", name(64))),
    ("orchestrator_jobs", Column("allow_cpu", Integer(), nullable=False, server_default=text("0"))),
    ("workers", Column("disk_total_mb", BigInteger())),
    ("workers", Column("disk_free_mb", BigInteger())),
    ("orchestrator_leader", Column("beats_since", Instant())),
    ("orchestrator_leader", Column("holds_until", Instant())),
    ("workers", Column("listed_at", Instant())),
    ("workers", Column("registered_at", Instant())),
)


def upgrade() -> None:
    op.create_table(
        "system_logs",
        Column("id", SERIAL, primary_key=True, autoincrement=True),
        Column("ts", Instant(), nullable=False),
        Column("stored_at", Instant(), nullable=False, index=True),
        Column("instance", name(255), nullable=False),
        Column("level", name(16), nullable=False),
        Column("event", name(255), nullable=False),
        Column("details", JsonObject(), nullable=False),
        Index("ix_system_logs_level", "level", "ts"),
        mysql_engine="InnoDB",
        mysql_default_charset="utf8mb4",
        sqlite_autoincrement=True,
        if_not_exists=True,
    )
    for table, column in ADDED:
        known = {each["name"] for each in inspect(op.get_bind()).get_columns(table)}
        if column.name not in known:
            op.add_column(table, column)
    op.create_table(
        "orchestrator_installation",
        Column("name", name(64), primary_key=True),
        Column("id", name(32), nullable=False),
        Column("spawned", BigInteger(), nullable=False),
        Column("place", JsonObject(), nullable=False),
        Column("orphans", JsonObject(), nullable=False),
        Column("held", long_text()),
        Column("hint", long_text()),
        Column("raised_at", Instant()),
        Column("created_at", Instant(), nullable=False),
        mysql_engine="InnoDB",
        mysql_default_charset="utf8mb4",
        if_not_exists=True,
    )
