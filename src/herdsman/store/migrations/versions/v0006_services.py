"""The GPU time that was spared because a finished result was found at its service."""

from alembic import op
from sqlalchemy import Column, inspect, text

from herdsman.store.columns import real

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

JOBS = "orchestrator_jobs"
SAVED = text("saved_gpu_s IS NOT NULL")


def upgrade() -> None:
    known = {column["name"] for column in inspect(op.get_bind()).get_columns(JOBS)}
    if "saved_gpu_s" not in known:
        op.add_column(JOBS, Column("saved_gpu_s", real()))
    op.create_index(
        "ix_orchestrator_jobs_saved",
        JOBS,
        ["saved_gpu_s"],
        postgresql_where=SAVED,
        sqlite_where=SAVED,
        if_not_exists=True,
    )
