"""The tables behind the API: who may call it, and what attempts leave behind."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, Table

from herdsman.store.columns import Instant, JsonObject, JsonText, name
from herdsman.store.schema import SERIAL, metadata

tokens = Table(
    "api_tokens",
    metadata,
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
    mysql_engine="InnoDB",
    mysql_default_charset="utf8mb4",
)

logs = Table(
    "job_logs",
    metadata,
    Column("job_id", name(128), ForeignKey("orchestrator_jobs.job_id"), primary_key=True),
    Column("claim_token", BigInteger(), primary_key=True, autoincrement=False),
    # Counts the lines of the attempt from 0: the same piece sent twice is one row.
    Column("first_line", Integer(), primary_key=True, autoincrement=False),
    Column("ts", Instant(), nullable=False),
    Column("line_count", Integer(), nullable=False),
    Column("byte_count", Integer(), nullable=False),
    Column("lines", JsonText(), nullable=False),
    mysql_engine="InnoDB",
    mysql_default_charset="utf8mb4",
)

system_logs = Table(
    "system_logs",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    # By the clock of who said it; what is old is told by ours.
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
)

checkpoints = Table(
    "job_checkpoints",
    metadata,
    Column("job_id", name(128), ForeignKey("orchestrator_jobs.job_id"), primary_key=True),
    Column("claim_token", BigInteger(), nullable=False),
    Column("updated_at", Instant(), nullable=False),
    Column("value", JsonText(), nullable=False),
    mysql_engine="InnoDB",
    mysql_default_charset="utf8mb4",
)
