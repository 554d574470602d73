"""Tokens, logs and checkpoints; a worker may hold a batch of jobs, one in each of its slots."""

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Integer, inspect, text

from herdsman.store.columns import Instant, JsonText, name

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TABLE: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_default_charset": "utf8mb4", "if_not_exists": True}
JOBS = "orchestrator_jobs"


def upgrade() -> None:
    _slots()
    _tokens()
    _logs()
    _checkpoints()
    op.create_index(
        "ix_job_attempts_worker_id_ended_at", "job_attempts", ["worker_id", "ended_at"], if_not_exists=True
    )


OLD_RULE = "uq_orchestrator_jobs_worker_id"
NEW_RULE = "uq_orchestrator_jobs_worker_id_slot"


def _slots() -> None:
    """The new rule comes before the old one goes, so that no moment is without one."""
    there = inspect(op.get_bind())
    unique = {each["name"] for each in there.get_unique_constraints(JOBS)}
    if op.get_bind().dialect.name == "sqlite":
        if OLD_RULE in unique:
            _rebuild()
        return
    if "slot" not in {column["name"] for column in there.get_columns(JOBS)}:
        op.add_column(JOBS, Column("slot", Integer(), nullable=False, server_default=text("0")))
    if NEW_RULE not in unique:
        op.create_unique_constraint(NEW_RULE, JOBS, ["worker_id", "slot"])
    if OLD_RULE in unique:
        op.drop_constraint(OLD_RULE, JOBS, type_="unique")


def _rebuild() -> None:
    """SQLite cannot drop a constraint: a new table takes the old one's place, with its own words but these two.

    Guards speak of the table and are put back after every upgrade.
    """
    bind = op.get_bind()
    found = bind.execute(
        text("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    ).all()
    (made,) = [row.sql for row in found if (row.type, row.name) == ("table", JOBS)]
    columns = ", ".join(column["name"] for column in inspect(bind).get_columns(JOBS))
    for trigger in [row.name for row in found if row.type == "trigger"]:
        op.execute(f"DROP TRIGGER {trigger}")
    op.execute(_with_slot(made))
    op.execute(f"INSERT INTO {JOBS}_new ({columns}) SELECT {columns} FROM {JOBS}")
    op.execute(f"DROP TABLE {JOBS}")
    op.execute(f"ALTER TABLE {JOBS}_new RENAME TO {JOBS}")
    for index in [row.sql for row in found if (row.type, row.tbl_name) == ("index", JOBS)]:
        op.execute(index)


def _with_slot(made: str) -> str:
    words = {
        f"CREATE TABLE {JOBS} ": f"CREATE TABLE {JOBS}_new ",
        "last_worker_id VARCHAR": "slot INTEGER DEFAULT 0 NOT NULL, last_worker_id VARCHAR",
        f"CONSTRAINT {OLD_RULE} UNIQUE (worker_id)": f"CONSTRAINT {NEW_RULE} UNIQUE (worker_id, slot)",
    }
    for old, new in words.items():
        assert made.count(old) == 1, f"{old!r} is not once in the table's definition"
        made = made.replace(old, new)
    return made


def _tokens() -> None:
    op.create_table(
        "api_tokens",
        Column("id", name(32), primary_key=True),
        Column("role", name(16), nullable=False),
        Column("name", name(255), nullable=False),
        Column("hash", name(64), nullable=False),
        Column("agent", name(255)),
        Column("worker_id", name(128)),
        Column("incarnation", name(64)),
        Column("pool", name(128)),
        Column("created_at", Instant(), nullable=False),
        Column("expires_at", Instant()),
        Column("revoked_at", Instant()),
        Column("used_at", Instant()),
        **TABLE,
    )
    op.create_index("ix_api_tokens_worker_id", "api_tokens", ["worker_id"], if_not_exists=True)


def _logs() -> None:
    op.create_table(
        "job_logs",
        Column(
            "job_id", name(128), ForeignKey(f"{JOBS}.job_id", name="fk_job_logs_job_id"), primary_key=True
        ),
        Column("claim_token", BigInteger(), primary_key=True, autoincrement=False),
        Column("first_line", Integer(), primary_key=True, autoincrement=False),
        Column("ts", Instant(), nullable=False),
        Column("line_count", Integer(), nullable=False),
        Column("byte_count", Integer(), nullable=False),
        Column("lines", JsonText(), nullable=False),
        **TABLE,
    )


def _checkpoints() -> None:
    op.create_table(
        "job_checkpoints",
        Column(
            "job_id",
            name(128),
            ForeignKey(f"{JOBS}.job_id", name="fk_job_checkpoints_job_id"),
            primary_key=True,
        ),
        Column("claim_token", BigInteger(), nullable=False),
        Column("updated_at", Instant(), nullable=False),
        Column("value", JsonText(), nullable=False),
        **TABLE,
    )
