"""The first schema: jobs with their attempts and tags, workers, pools, leases, the audit."""

from typing import Any

from alembic import op
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Integer,
    UniqueConstraint,
    text,
)

from herdsman.store.columns import Instant, JsonObject, JsonText, long_text, name, real

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SERIAL = BigInteger().with_variant(Integer(), "sqlite")
# MariaDB commits each statement by itself: whatever is there after a crash is simply not made again.
TABLE: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_default_charset": "utf8mb4", "if_not_exists": True}


def upgrade() -> None:
    _audit()
    _leases()
    _retention()
    _pools()
    _workers()
    _jobs()
    _attempts()
    _tags()


def _audit() -> None:
    op.create_table(
        "orchestrator_audit",
        Column("id", SERIAL, primary_key=True, autoincrement=True),
        Column("ts", Instant(), nullable=False),
        Column("event_type", name(128), nullable=False),
        Column("object_kind", name(16), nullable=False),
        Column("object_id", name(128), nullable=False),
        Column("seq", BigInteger(), nullable=False),
        Column("from_status", name(32)),
        Column("to_status", name(32), nullable=False),
        Column("reason", name(64), nullable=False),
        Column("actor", name(255), nullable=False),
        Column("details", JsonObject(), nullable=False),
        UniqueConstraint(
            "object_kind", "object_id", "seq", name=op.f("uq_orchestrator_audit_object_kind_object_id_seq")
        ),
        sqlite_autoincrement=True,
        **TABLE,
    )
    op.create_index("ix_orchestrator_audit_ts", "orchestrator_audit", ["ts"], if_not_exists=True)


def _leases() -> None:
    op.create_table(
        "orchestrator_leases",
        Column("token", name(64), primary_key=True),
        Column("agent_name", name(255), nullable=False),
        Column("gpu_index", Integer()),
        Column("mode", name(8), nullable=False, server_default=text("'gpu'")),
        Column("created_at", Instant(), nullable=False),
        Column("expires_at", Instant(), nullable=False),
        Column("last_heartbeat", Instant()),
        Column("status", name(32), nullable=False),
        Column("reason", name(64), nullable=False),
        Column("actor", name(255), nullable=False),
        Column("version", BigInteger(), nullable=False),
        Column("updated_at", Instant(), nullable=False),
        Column("metadata", JsonObject(), nullable=False),
        CheckConstraint("mode IN ('gpu', 'cpu')", name=op.f("ck_orchestrator_leases_mode")),
        CheckConstraint(
            "status IN ('active', 'expired', 'released', 'revoked')",
            name=op.f("ck_orchestrator_leases_status"),
        ),
        **TABLE,
    )
    op.create_index("idx_leases_agent", "orchestrator_leases", ["agent_name"], if_not_exists=True)
    op.create_index(
        "ix_orchestrator_leases_expiry", "orchestrator_leases", ["status", "expires_at"], if_not_exists=True
    )


def _retention() -> None:
    op.create_table(
        "orchestrator_retention",
        Column("name", name(32), primary_key=True),
        Column("prune_before", Instant(), nullable=False),
        **TABLE,
    )


def _pools() -> None:
    op.create_table(
        "worker_pools",
        Column("pool_id", name(128), primary_key=True),
        Column("agent_name", name(255), nullable=False),
        Column("model_id", name(255)),
        Column("adapter", name(255)),
        Column("desired_workers", Integer(), nullable=False, server_default=text("0")),
        Column("spawned_workers", Integer(), nullable=False, server_default=text("0")),
        Column("started_at", Instant(), nullable=False),
        Column("last_heartbeat", Instant()),
        Column("status", name(32), nullable=False),
        Column("reason", name(64), nullable=False),
        Column("actor", name(255), nullable=False),
        Column("version", BigInteger(), nullable=False),
        Column("updated_at", Instant(), nullable=False),
        Column("hold_seconds", Integer(), nullable=False, server_default=text("600")),
        Column("metadata", JsonObject(), nullable=False),
        CheckConstraint(
            "desired_workers >= 0 AND spawned_workers >= 0 AND hold_seconds >= 0",
            name=op.f("ck_worker_pools_counted"),
        ),
        CheckConstraint(
            "status IN ('draining', 'evicted', 'running', 'starting', 'stopped')",
            name=op.f("ck_worker_pools_status"),
        ),
        **TABLE,
    )


def _workers() -> None:
    op.create_table(
        "workers",
        Column("id", name(128), primary_key=True),
        Column("instance_type", name(128)),
        Column("created_at", Instant(), nullable=False),
        Column("last_heartbeat", Instant()),
        Column("status", name(32), nullable=False),
        Column("reason", name(64), nullable=False),
        Column("actor", name(255), nullable=False),
        Column("version", BigInteger(), nullable=False),
        Column("updated_at", Instant(), nullable=False),
        Column("pool", name(128), nullable=False),
        Column("entered_state_at", Instant(), nullable=False),
        Column("metadata", JsonObject(), nullable=False),
        CheckConstraint(
            "status IN ('active', 'error', 'spawning', 'terminated', 'terminating')",
            name=op.f("ck_workers_status"),
        ),
        **TABLE,
    )
    op.create_index("ix_workers_created_at", "workers", ["created_at"], if_not_exists=True)
    op.create_index("ix_workers_last_heartbeat", "workers", ["last_heartbeat"], if_not_exists=True)
    op.create_index("ix_workers_status", "workers", ["status", "pool"], if_not_exists=True)


def _jobs() -> None:
    op.create_table(
        "orchestrator_jobs",
        Column("job_id", name(128), primary_key=True),
        Column("type", name(64), nullable=False),
        Column("payload", JsonText(), nullable=False),
        Column("status", name(32), nullable=False),
        Column("reason", name(64), nullable=False),
        Column("actor", name(255), nullable=False),
        Column("version", BigInteger(), nullable=False),
        Column("updated_at", Instant(), nullable=False),
        Column("agent", name(255), nullable=False),
        Column("pool", name(128), nullable=False),
        Column("owner_pool", name(128)),
        Column("priority", Integer(), nullable=False),
        Column("place", BigInteger(), nullable=False),
        Column("tags", JsonText(), nullable=False),
        Column("body_hash", name(64), nullable=False),
        Column("idempotency_key", name(255)),
        Column("attempts", Integer(), nullable=False),
        Column("max_attempts", Integer(), nullable=False),
        Column("interruptions", Integer(), nullable=False),
        Column("worker_losses", Integer(), nullable=False),
        Column("out_of_memory", Integer(), nullable=False),
        Column("retry_base_s", real()),
        Column("retry_cap_s", real()),
        Column("timeout_s", real()),
        Column("run_at", Instant(), nullable=False),
        Column("worker_id", name(128), ForeignKey("workers.id", name="fk_orchestrator_jobs_worker_id")),
        Column("last_worker_id", name(128)),
        Column("claim_token", BigInteger(), nullable=False),
        Column("claim_expires_at", Instant()),
        Column("claimed_at", Instant()),
        Column("started_at", Instant()),
        Column("deadline_at", Instant()),
        Column("progress", real()),
        Column("progress_note", name(255)),
        Column("progress_at", Instant()),
        Column("cancel_requested_at", Instant()),
        Column("finished_at", Instant()),
        Column("result", JsonText()),
        Column("failure_class", name(32)),
        Column("last_error", long_text()),
        Column("service_job_id", name(255)),
        Column("service_status", name(64)),
        Column("service_submitted_at", Instant()),
        Column("last_service_check", Instant()),
        Column("created_at", Instant(), nullable=False),
        CheckConstraint(
            "status <> 'done' OR cancel_requested_at IS NULL", name=op.f("ck_orchestrator_jobs_cancelled")
        ),
        CheckConstraint(
            "attempts >= 0 AND interruptions >= 0 AND claim_token >= attempts",
            name=op.f("ck_orchestrator_jobs_counted"),
        ),
        CheckConstraint(
            "(status IN ('claimed', 'running')) = (claim_expires_at IS NOT NULL)",
            name=op.f("ck_orchestrator_jobs_expires"),
        ),
        CheckConstraint(
            "(status IN ('cancelled', 'dead_letter', 'done')) = (finished_at IS NOT NULL)",
            name=op.f("ck_orchestrator_jobs_finished"),
        ),
        CheckConstraint(
            "(status IN ('claimed', 'running')) = (worker_id IS NOT NULL)",
            name=op.f("ck_orchestrator_jobs_owned"),
        ),
        CheckConstraint("priority BETWEEN -100 AND 100", name=op.f("ck_orchestrator_jobs_priority")),
        CheckConstraint(
            "progress IS NULL OR (progress >= 0 AND progress <= 1)",
            name=op.f("ck_orchestrator_jobs_progress"),
        ),
        CheckConstraint("status = 'done' OR result IS NULL", name=op.f("ck_orchestrator_jobs_result")),
        CheckConstraint(
            "status IN ('cancelled', 'claimed', 'dead_letter', 'done', 'failed', 'pending', 'running', 'scheduled')",
            name=op.f("ck_orchestrator_jobs_status"),
        ),
        UniqueConstraint("agent", "idempotency_key", name=op.f("uq_orchestrator_jobs_agent_idempotency_key")),
        UniqueConstraint("worker_id", name=op.f("uq_orchestrator_jobs_worker_id")),
        **TABLE,
    )
    op.create_index(
        "ix_orchestrator_jobs_claim", "orchestrator_jobs", ["status", "pool", "place"], if_not_exists=True
    )
    op.create_index("ix_orchestrator_jobs_due", "orchestrator_jobs", ["status", "run_at"], if_not_exists=True)
    op.create_index("ix_orchestrator_jobs_finished", "orchestrator_jobs", ["finished_at"], if_not_exists=True)
    op.create_index(
        "ix_orchestrator_jobs_list_state",
        "orchestrator_jobs",
        ["status", "created_at", "job_id"],
        if_not_exists=True,
    )
    op.create_index(
        "ix_orchestrator_jobs_list", "orchestrator_jobs", ["created_at", "job_id"], if_not_exists=True
    )


def _attempts() -> None:
    op.create_table(
        "job_attempts",
        Column(
            "job_id",
            name(128),
            ForeignKey("orchestrator_jobs.job_id", name="fk_job_attempts_job_id"),
            primary_key=True,
        ),
        Column("claim_token", BigInteger(), primary_key=True, autoincrement=False),
        Column("attempt", Integer(), nullable=False),
        Column("worker_id", name(128), nullable=False),
        Column("pool", name(128), nullable=False),
        Column("claimed_at", Instant(), nullable=False),
        Column("started_at", Instant()),
        Column("ended_at", Instant()),
        Column("outcome", name(32)),
        Column("reason", name(64)),
        Column("failure_class", name(32)),
        Column("error", long_text()),
        **TABLE,
    )
    op.create_index("ix_job_attempts_worker_id", "job_attempts", ["worker_id"], if_not_exists=True)


def _tags() -> None:
    op.create_table(
        "job_tags",
        Column("tag", name(64), primary_key=True),
        Column(
            "job_id",
            name(128),
            ForeignKey("orchestrator_jobs.job_id", name="fk_job_tags_job_id"),
            primary_key=True,
        ),
        Column("created_at", Instant(), nullable=False),
        **TABLE,
    )
    op.create_index("ix_job_tags_job_id", "job_tags", ["job_id"], if_not_exists=True)
    op.create_index("ix_job_tags_list", "job_tags", ["tag", "created_at", "job_id"], if_not_exists=True)
