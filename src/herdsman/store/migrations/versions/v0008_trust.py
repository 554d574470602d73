"""What outages, restarts and copies of the database must not make us forget."""

from typing import Any

from alembic import op
from sqlalchemy import Column, Integer, inspect, text

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

ADDED: tuple[tuple[str, Column[Any]], ...] = (
    ("orchestrator_jobs", Column("allow_cpu", Integer(), nullable=False, server_default=text("0"))),
)


def upgrade() -> None:
    for table, column in ADDED:
        known = {each["name"] for each in inspect(op.get_bind()).get_columns(table)}
        if column.name not in known:
            op.add_column(table, column)
