-- The first schema. Frozen: later changes of schema.py are migrations of their own.

CREATE TABLE IF NOT EXISTS admission_buckets (
    agent VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    tokens DOUBLE NOT NULL,
    filled_at DATETIME(6) NOT NULL,
    PRIMARY KEY (agent)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS admission_gates (
    name VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    closed_at DATETIME(6),
    until DATETIME(6),
    detail VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS agent_usage (
    agent VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    day VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    gpu_seconds DOUBLE NOT NULL,
    updated_at DATETIME(6) NOT NULL,
    PRIMARY KEY (agent, day)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS api_tokens (
    id VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    `role` VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    hash VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    agent VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    worker_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    incarnation VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    pool VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    created_at DATETIME(6) NOT NULL,
    expires_at DATETIME(6),
    revoked_at DATETIME(6),
    used_at DATETIME(6),
    PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE INDEX IF NOT EXISTS ix_api_tokens_worker_id ON api_tokens (worker_id);

CREATE TABLE IF NOT EXISTS audit_entries (
    id BIGINT NOT NULL AUTO_INCREMENT,
    seq BIGINT NOT NULL,
    ts DATETIME(6) NOT NULL,
    claim_token BIGINT,
    attempts INTEGER,
    kind VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    object_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    status VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    reason VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    actor VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    worker_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    details JSON,
    PRIMARY KEY (id),
    CONSTRAINT uq_audit_entries_kind_object_id_seq UNIQUE (kind, object_id, seq)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS concurrency_keys (
    `key` VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    PRIMARY KEY (`key`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS control_requests (
    id VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    kind VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    actor VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    asked_at DATETIME(6) NOT NULL,
    taken_at DATETIME(6),
    done_at DATETIME(6),
    outcome JSON,
    error MEDIUMTEXT CHARACTER SET utf8mb4,
    PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE INDEX IF NOT EXISTS ix_control_requests_done ON control_requests (done_at, asked_at);

CREATE TABLE IF NOT EXISTS orchestrator_cycles (
    id BIGINT NOT NULL AUTO_INCREMENT,
    epoch BIGINT NOT NULL,
    started_at DATETIME(6) NOT NULL,
    finished_at DATETIME(6) NOT NULL,
    summary JSON NOT NULL,
    steps JSON NOT NULL,
    PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE INDEX IF NOT EXISTS ix_orchestrator_cycles_started_at ON orchestrator_cycles (started_at);

CREATE TABLE IF NOT EXISTS orchestrator_fleets (
    pool VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    last_scaled_at DATETIME(6),
    wait_until DATETIME(6),
    waits INTEGER NOT NULL,
    stopped_by MEDIUMTEXT CHARACTER SET utf8mb4,
    PRIMARY KEY (pool)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS orchestrator_gpus (
    uuid VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    node_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    gpu_index INTEGER NOT NULL,
    name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    worker_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    total_mb INTEGER NOT NULL,
    used_mb INTEGER NOT NULL,
    outside_mb INTEGER NOT NULL DEFAULT 0,
    utilisation INTEGER,
    processes JSON,
    measured_at DATETIME(6) NOT NULL,
    proven_at DATETIME(6) NOT NULL,
    lease_seq BIGINT NOT NULL DEFAULT 0,
    quarantined_at DATETIME(6),
    quarantine_reason VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    PRIMARY KEY (uuid)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE INDEX IF NOT EXISTS ix_orchestrator_gpus_node_id ON orchestrator_gpus (node_id);
CREATE INDEX IF NOT EXISTS ix_orchestrator_gpus_worker_id ON orchestrator_gpus (worker_id);

CREATE TABLE IF NOT EXISTS orchestrator_holds (
    scope VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    kind VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    reason VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    actor VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    since DATETIME(6) NOT NULL,
    until DATETIME(6),
    PRIMARY KEY (scope)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS orchestrator_installation (
    name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    id VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    spawned BIGINT NOT NULL,
    first_token BIGINT NOT NULL,
    place JSON NOT NULL,
    orphans JSON NOT NULL,
    held MEDIUMTEXT CHARACTER SET utf8mb4,
    hint MEDIUMTEXT CHARACTER SET utf8mb4,
    raised_at DATETIME(6),
    created_at DATETIME(6) NOT NULL,
    PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS orchestrator_instances (
    name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    worker_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    pool VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    provider VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    ref VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    gpu_type VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    cost_per_hour DOUBLE NOT NULL,
    asked_at DATETIME(6) NOT NULL,
    started_at DATETIME(6),
    ended_at DATETIME(6),
    PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE INDEX IF NOT EXISTS ix_orchestrator_instances_asked_at ON orchestrator_instances (asked_at);
CREATE INDEX IF NOT EXISTS ix_orchestrator_instances_ended_at ON orchestrator_instances (ended_at);
CREATE INDEX IF NOT EXISTS ix_orchestrator_instances_worker_id ON orchestrator_instances (worker_id);

CREATE TABLE IF NOT EXISTS orchestrator_leader (
    name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    holder VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    epoch BIGINT NOT NULL,
    acquired_at DATETIME(6) NOT NULL,
    renewed_at DATETIME(6) NOT NULL,
    expires_at DATETIME(6) NOT NULL,
    beats_since DATETIME(6),
    holds_until DATETIME(6),
    PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS orchestrator_leases (
    token VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    agent_name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    gpu_index INTEGER,
    mode VARCHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL DEFAULT 'gpu',
    created_at DATETIME(6) NOT NULL,
    expires_at DATETIME(6) NOT NULL,
    last_heartbeat DATETIME(6),
    version BIGINT NOT NULL,
    updated_at DATETIME(6) NOT NULL,
    status VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    reason VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    actor VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    metadata JSON NOT NULL,
    gpu_uuid VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    node_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    memory_mb INTEGER NOT NULL DEFAULT 0,
    exclusive INTEGER NOT NULL DEFAULT 0,
    ttl_s DOUBLE,
    lease_seq BIGINT NOT NULL DEFAULT 0,
    worker_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ended_at DATETIME(6),
    overruled VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    PRIMARY KEY (token),
    CONSTRAINT ck_orchestrator_leases_status CHECK (status IN ('active', 'expired', 'released', 'revoked')),
    CONSTRAINT ck_orchestrator_leases_mode CHECK (mode IN ('gpu', 'cpu'))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE INDEX IF NOT EXISTS idx_leases_agent ON orchestrator_leases (agent_name);
CREATE INDEX IF NOT EXISTS ix_orchestrator_leases_ended ON orchestrator_leases (gpu_uuid, ended_at);
CREATE INDEX IF NOT EXISTS ix_orchestrator_leases_expiry ON orchestrator_leases (status, expires_at);
CREATE INDEX IF NOT EXISTS ix_orchestrator_leases_gpu ON orchestrator_leases (gpu_uuid, status);
CREATE INDEX IF NOT EXISTS ix_orchestrator_leases_list ON orchestrator_leases (created_at, token);
CREATE INDEX IF NOT EXISTS ix_orchestrator_leases_worker ON orchestrator_leases (worker_id, status);

CREATE TABLE IF NOT EXISTS orchestrator_policies (
    version INTEGER NOT NULL,
    document JSON NOT NULL,
    note VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    actor VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    created_at DATETIME(6) NOT NULL,
    PRIMARY KEY (version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS orchestrator_retention (
    name VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    prune_before DATETIME(6) NOT NULL,
    PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS orchestrator_sights (
    cycle_id BIGINT NOT NULL,
    base_id BIGINT,
    data MEDIUMBLOB NOT NULL,
    PRIMARY KEY (cycle_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS system_logs (
    id BIGINT NOT NULL AUTO_INCREMENT,
    ts DATETIME(6) NOT NULL,
    stored_at DATETIME(6) NOT NULL,
    instance VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    level VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    event VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    details JSON NOT NULL,
    PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE INDEX IF NOT EXISTS ix_system_logs_level ON system_logs (level, ts);
CREATE INDEX IF NOT EXISTS ix_system_logs_stored_at ON system_logs (stored_at);

CREATE TABLE IF NOT EXISTS worker_gpus (
    worker_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    uuid VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    PRIMARY KEY (worker_id, uuid)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE INDEX IF NOT EXISTS ix_worker_gpus_uuid ON worker_gpus (uuid);

CREATE TABLE IF NOT EXISTS worker_models (
    worker_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    model VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    PRIMARY KEY (worker_id, model)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS worker_pools (
    pool_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    agent_name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    model_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    adapter VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    desired_workers INTEGER NOT NULL DEFAULT 0,
    spawned_workers INTEGER NOT NULL DEFAULT 0,
    started_at DATETIME(6) NOT NULL,
    last_heartbeat DATETIME(6),
    version BIGINT NOT NULL,
    updated_at DATETIME(6) NOT NULL,
    status VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    reason VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    actor VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    hold_seconds INTEGER NOT NULL DEFAULT 600,
    metadata JSON NOT NULL,
    variant VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    revision INTEGER NOT NULL DEFAULT 1,
    rules JSON,
    served_by VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL DEFAULT 'herdsman',
    isolated INTEGER NOT NULL DEFAULT 0,
    used_at DATETIME(6),
    PRIMARY KEY (pool_id),
    CONSTRAINT ck_worker_pools_status CHECK (status IN ('draining', 'evicted', 'running', 'starting', 'stopped')),
    CONSTRAINT ck_worker_pools_counted CHECK (desired_workers >= 0 AND spawned_workers >= 0 AND hold_seconds >= 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS workers (
    id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    instance_type VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    created_at DATETIME(6) NOT NULL,
    last_heartbeat DATETIME(6),
    version BIGINT NOT NULL,
    updated_at DATETIME(6) NOT NULL,
    status VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    reason VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    actor VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    pool VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    entered_state_at DATETIME(6) NOT NULL,
    metadata JSON NOT NULL,
    provider VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    instance_name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    instance_ref VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    cost_per_hour DOUBLE,
    ready INTEGER,
    gpu_seen INTEGER,
    gpu_fault VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    vram_at DATETIME(6),
    disk_total_mb BIGINT,
    disk_free_mb BIGINT,
    promoted_at DATETIME(6),
    failed_at DATETIME(6),
    error_code VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    error_reason MEDIUMTEXT CHARACTER SET utf8mb4,
    end_asked_at DATETIME(6),
    absent_since DATETIME(6),
    listed_at DATETIME(6),
    registered_at DATETIME(6),
    node_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    revision INTEGER NOT NULL DEFAULT 0,
    wanted_revision INTEGER NOT NULL DEFAULT 0,
    loaded_at DATETIME(6),
    PRIMARY KEY (id),
    CONSTRAINT ck_workers_status CHECK (status IN ('active', 'error', 'spawning', 'terminated', 'terminating'))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE INDEX IF NOT EXISTS ix_workers_created_at ON workers (created_at);
CREATE INDEX IF NOT EXISTS ix_workers_failed_at ON workers (failed_at);
CREATE INDEX IF NOT EXISTS ix_workers_last_heartbeat ON workers (last_heartbeat);
CREATE INDEX IF NOT EXISTS ix_workers_status ON workers (status, pool);
CREATE UNIQUE INDEX IF NOT EXISTS uq_workers_instance_name ON workers (instance_name);

CREATE TABLE IF NOT EXISTS job_states (
    job_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    place BIGINT NOT NULL,
    claim_token BIGINT NOT NULL,
    run_at DATETIME(6) NOT NULL,
    created_at DATETIME(6) NOT NULL,
    claim_expires_at DATETIME(6),
    claimed_at DATETIME(6),
    started_at DATETIME(6),
    deadline_at DATETIME(6),
    cancel_requested_at DATETIME(6),
    finished_at DATETIME(6),
    timeout_s DOUBLE,
    attempts INTEGER NOT NULL,
    interruptions INTEGER NOT NULL,
    worker_losses INTEGER NOT NULL,
    out_of_memory INTEGER NOT NULL,
    slot INTEGER NOT NULL DEFAULT 0,
    gpu_memory_mb INTEGER,
    allow_cpu INTEGER NOT NULL DEFAULT 0,
    version BIGINT NOT NULL,
    updated_at DATETIME(6) NOT NULL,
    status VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    reason VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    actor VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    type VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    agent VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    pool VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    model VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    concurrency_key VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    worker_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    last_worker_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    begun_by VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    progress DOUBLE,
    progress_note VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    progress_at DATETIME(6),
    service_job_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    service_status VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    service_submitted_at DATETIME(6),
    last_service_check DATETIME(6),
    PRIMARY KEY (job_id),
    CONSTRAINT ck_job_states_status CHECK (status IN ('cancelled', 'claimed', 'dead_letter', 'done', 'failed', 'pending', 'running', 'scheduled')),
    CONSTRAINT ck_job_states_owned CHECK ((status IN ('claimed', 'running')) = (worker_id IS NOT NULL)),
    CONSTRAINT ck_job_states_expires CHECK ((status IN ('claimed', 'running')) = (claim_expires_at IS NOT NULL)),
    CONSTRAINT ck_job_states_finished CHECK ((status IN ('cancelled', 'dead_letter', 'done')) = (finished_at IS NOT NULL)),
    CONSTRAINT ck_job_states_attempted CHECK (CASE WHEN status IN ('claimed', 'running') THEN claimed_at IS NOT NULL AND last_worker_id IS NOT NULL AND last_worker_id = worker_id WHEN status IN ('failed', 'pending', 'scheduled') THEN claimed_at IS NULL ELSE 1 = 1 END),
    CONSTRAINT ck_job_states_cancelled CHECK (status <> 'done' OR cancel_requested_at IS NULL),
    CONSTRAINT ck_job_states_counted CHECK (attempts >= 0 AND interruptions >= 0 AND claim_token >= attempts),
    CONSTRAINT ck_job_states_progress CHECK (progress IS NULL OR (progress >= 0 AND progress <= 1)),
    CONSTRAINT fk_job_states_worker_id FOREIGN KEY(worker_id) REFERENCES workers (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE INDEX IF NOT EXISTS ix_job_states_agent ON job_states (agent, status);
CREATE INDEX IF NOT EXISTS ix_job_states_due ON job_states (status, run_at);
CREATE INDEX IF NOT EXISTS ix_job_states_finished ON job_states (finished_at);
CREATE INDEX IF NOT EXISTS ix_job_states_list ON job_states (created_at);
CREATE INDEX IF NOT EXISTS ix_job_states_list_status ON job_states (status, created_at);
CREATE INDEX IF NOT EXISTS ix_job_states_next ON job_states (status, pool, place);
CREATE INDEX IF NOT EXISTS ix_job_states_turn ON job_states (status, pool, agent, model, place);
CREATE INDEX IF NOT EXISTS ix_job_states_type ON job_states (status, pool, type, place);
CREATE INDEX IF NOT EXISTS ix_job_states_worker ON job_states (last_worker_id, finished_at);
CREATE UNIQUE INDEX IF NOT EXISTS uq_job_states_held ON job_states (worker_id, slot);

CREATE TABLE IF NOT EXISTS job_bodies (
    job_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    payload JSON NOT NULL,
    tags JSON NOT NULL,
    body_hash VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    agent VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    idempotency_key VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    priority INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    retry_base_s DOUBLE,
    retry_cap_s DOUBLE,
    admission VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    PRIMARY KEY (job_id),
    CONSTRAINT ck_job_bodies_priority CHECK (priority BETWEEN -100 AND 100),
    CONSTRAINT fk_job_bodies_job_id FOREIGN KEY(job_id) REFERENCES job_states (job_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE UNIQUE INDEX IF NOT EXISTS uq_job_bodies_agent_idempotency_key ON job_bodies (agent, idempotency_key);

CREATE TABLE IF NOT EXISTS job_checkpoints (
    job_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    claim_token BIGINT NOT NULL,
    updated_at DATETIME(6) NOT NULL,
    value JSON NOT NULL,
    PRIMARY KEY (job_id),
    CONSTRAINT fk_job_checkpoints_job_id FOREIGN KEY(job_id) REFERENCES job_states (job_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS job_ends (
    job_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    claim_token BIGINT NOT NULL,
    result JSON,
    failure_class VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    last_error MEDIUMTEXT CHARACTER SET utf8mb4,
    saved_gpu_s DOUBLE,
    PRIMARY KEY (job_id, claim_token),
    CONSTRAINT ck_job_ends_one CHECK (result IS NULL OR failure_class IS NULL),
    CONSTRAINT fk_job_ends_job_id FOREIGN KEY(job_id) REFERENCES job_states (job_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE INDEX IF NOT EXISTS ix_job_ends_saved ON job_ends (saved_gpu_s);

CREATE TABLE IF NOT EXISTS job_logs (
    job_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    claim_token BIGINT NOT NULL,
    first_line INTEGER NOT NULL,
    ts DATETIME(6) NOT NULL,
    line_count INTEGER NOT NULL,
    byte_count INTEGER NOT NULL,
    `lines` JSON NOT NULL,
    PRIMARY KEY (job_id, claim_token, first_line),
    CONSTRAINT fk_job_logs_job_id FOREIGN KEY(job_id) REFERENCES job_states (job_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS job_tags (
    tag VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    job_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    created_at DATETIME(6) NOT NULL,
    PRIMARY KEY (tag, job_id),
    CONSTRAINT fk_job_tags_job_id FOREIGN KEY(job_id) REFERENCES job_states (job_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE INDEX IF NOT EXISTS ix_job_tags_job_id ON job_tags (job_id);
CREATE INDEX IF NOT EXISTS ix_job_tags_list ON job_tags (tag, created_at, job_id);

CREATE TABLE IF NOT EXISTS past_attempts (
    job_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    claim_token BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    worker_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    pool VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    claimed_at DATETIME(6) NOT NULL,
    started_at DATETIME(6),
    ended_at DATETIME(6) NOT NULL,
    outcome VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    reason VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
    PRIMARY KEY (job_id, claim_token),
    CONSTRAINT fk_past_attempts_job_id FOREIGN KEY(job_id) REFERENCES job_states (job_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE INDEX IF NOT EXISTS ix_past_attempts_ended ON past_attempts (ended_at);
CREATE INDEX IF NOT EXISTS ix_past_attempts_worker ON past_attempts (worker_id, ended_at);
