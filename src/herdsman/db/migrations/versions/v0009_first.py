"""The first schema, as it was when migrations began: one frozen script for each database.

0001 to 0008 were revisions from before the first release; checks.py says what to do about a database that has one.
"""

from pathlib import Path

from alembic import op

revision = "0009"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """MariaDB commits each statement by itself: after a crash, what is there is not created again."""
    connection = op.get_bind()
    script = Path(__file__).with_suffix(f".{connection.dialect.name}.sql").read_text(encoding="utf-8")
    for statement in script.removesuffix(";\n").split(";\n"):
        connection.exec_driver_sql(statement)
