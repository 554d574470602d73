"""What outages, restarts and copies of the database must not make us forget."""

from alembic import op
from sqlalchemy import BigInteger, Column, inspect

from herdsman.store.columns import Instant, JsonObject, long_text, name

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

ADDED: tuple[tuple[str, Column[object]], ...] = ()


def upgrade() -> None:
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
