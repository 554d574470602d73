"""What outages, restarts and copies of the database must not make us forget."""

from typing import Any

from alembic import op
from sqlalchemy import Column, inspect

from herdsman.store.columns import name

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

ADDED: tuple[tuple[str, Column[Any]], ...] = (("orchestrator_jobs", Column("begun_by", name(64))),)


def upgrade() -> None:
    for table, column in ADDED:
        known = {each["name"] for each in inspect(op.get_bind()).get_columns(table)}
        if column.name not in known:
            op.add_column(table, column)
