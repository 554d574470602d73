"""What each cycle of the control loop saw, whole enough that the judgement can be asked again."""

from alembic import op
from sqlalchemy import BigInteger, Column

from herdsman.store.columns import packed

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "orchestrator_sights",
        Column("cycle_id", BigInteger(), primary_key=True, autoincrement=False),
        Column("base_id", BigInteger()),
        Column("data", packed(), nullable=False),
        mysql_engine="InnoDB",
        mysql_default_charset="utf8mb4",
        if_not_exists=True,
    )
