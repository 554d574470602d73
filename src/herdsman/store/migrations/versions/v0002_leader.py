"""One row that says who leads."""

from alembic import op
from sqlalchemy import BigInteger, Column

from herdsman.store.columns import Instant, name

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "orchestrator_leader",
        Column("name", name(64), primary_key=True),
        Column("holder", name(255), nullable=False),
        Column("epoch", BigInteger(), nullable=False),
        Column("acquired_at", Instant(), nullable=False),
        Column("renewed_at", Instant(), nullable=False),
        Column("expires_at", Instant(), nullable=False),
        mysql_engine="InnoDB",
        mysql_default_charset="utf8mb4",
        if_not_exists=True,
    )
