-- The first schema. Frozen: later changes of schema.py are migrations of their own.

CREATE TABLE IF NOT EXISTS admission_buckets (
    agent VARCHAR(255) NOT NULL,
    tokens DOUBLE NOT NULL,
    filled_at DATETIME NOT NULL,
    PRIMARY KEY (agent)
);

CREATE TABLE IF NOT EXISTS admission_gates (
    name VARCHAR(300) NOT NULL,
    closed_at DATETIME,
    until DATETIME,
    detail VARCHAR(255),
    PRIMARY KEY (name)
);

CREATE TABLE IF NOT EXISTS agent_usage (
    agent VARCHAR(255) NOT NULL,
    day VARCHAR(10) NOT NULL,
    gpu_seconds DOUBLE NOT NULL,
    updated_at DATETIME NOT NULL,
    PRIMARY KEY (agent, day)
);

CREATE TABLE IF NOT EXISTS api_tokens (
    id VARCHAR(32) NOT NULL,
    role VARCHAR(16) NOT NULL,
    name VARCHAR(255) NOT NULL,
    hash VARCHAR(64) NOT NULL,
    agent VARCHAR(255),
    worker_id VARCHAR(128),
    incarnation VARCHAR(64),
    pool VARCHAR(128),
    created_at DATETIME NOT NULL,
    expires_at DATETIME,
    revoked_at DATETIME,
    used_at DATETIME,
    PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS ix_api_tokens_worker_id ON api_tokens (worker_id);

CREATE TABLE IF NOT EXISTS audit_entries (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    seq BIGINT NOT NULL,
    ts DATETIME NOT NULL,
    claim_token BIGINT,
    attempts INTEGER,
    kind VARCHAR(16) NOT NULL,
    object_id VARCHAR(128) NOT NULL,
    status VARCHAR(32) NOT NULL,
    reason VARCHAR(64) NOT NULL,
    actor VARCHAR(255) NOT NULL,
    worker_id VARCHAR(128),
    details TEXT,
    CONSTRAINT uq_audit_entries_kind_object_id_seq UNIQUE (kind, object_id, seq)
);

CREATE TABLE IF NOT EXISTS concurrency_keys (
    "key" VARCHAR(128) NOT NULL,
    PRIMARY KEY ("key")
);

CREATE TABLE IF NOT EXISTS control_requests (
    id VARCHAR(32) NOT NULL,
    kind VARCHAR(32) NOT NULL,
    actor VARCHAR(255) NOT NULL,
    asked_at DATETIME NOT NULL,
    taken_at DATETIME,
    done_at DATETIME,
    outcome TEXT,
    error TEXT,
    PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS ix_control_requests_done ON control_requests (done_at, asked_at);

CREATE TABLE IF NOT EXISTS orchestrator_cycles (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    epoch BIGINT NOT NULL,
    started_at DATETIME NOT NULL,
    finished_at DATETIME NOT NULL,
    summary TEXT NOT NULL,
    steps TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS ix_orchestrator_cycles_started_at ON orchestrator_cycles (started_at);

CREATE TABLE IF NOT EXISTS orchestrator_fleets (
    pool VARCHAR(128) NOT NULL,
    last_scaled_at DATETIME,
    wait_until DATETIME,
    waits INTEGER NOT NULL,
    stopped_by TEXT,
    PRIMARY KEY (pool)
);

CREATE TABLE IF NOT EXISTS orchestrator_gpus (
    uuid VARCHAR(64) NOT NULL,
    node_id VARCHAR(128) NOT NULL,
    gpu_index INTEGER NOT NULL,
    name VARCHAR(64) NOT NULL,
    worker_id VARCHAR(128),
    total_mb INTEGER NOT NULL,
    used_mb INTEGER NOT NULL,
    outside_mb INTEGER DEFAULT 0 NOT NULL,
    utilisation INTEGER,
    processes TEXT,
    measured_at DATETIME NOT NULL,
    proven_at DATETIME NOT NULL,
    lease_seq BIGINT DEFAULT 0 NOT NULL,
    quarantined_at DATETIME,
    quarantine_reason VARCHAR(255),
    PRIMARY KEY (uuid)
);
CREATE INDEX IF NOT EXISTS ix_orchestrator_gpus_node_id ON orchestrator_gpus (node_id);
CREATE INDEX IF NOT EXISTS ix_orchestrator_gpus_worker_id ON orchestrator_gpus (worker_id);

CREATE TABLE IF NOT EXISTS orchestrator_holds (
    scope VARCHAR(160) NOT NULL,
    kind VARCHAR(16) NOT NULL,
    reason VARCHAR(255) NOT NULL,
    actor VARCHAR(255) NOT NULL,
    since DATETIME NOT NULL,
    until DATETIME,
    PRIMARY KEY (scope)
);

CREATE TABLE IF NOT EXISTS orchestrator_installation (
    name VARCHAR(64) NOT NULL,
    id VARCHAR(32) NOT NULL,
    spawned BIGINT NOT NULL,
    first_token BIGINT NOT NULL,
    place TEXT NOT NULL,
    orphans TEXT NOT NULL,
    held TEXT,
    hint TEXT,
    raised_at DATETIME,
    created_at DATETIME NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE IF NOT EXISTS orchestrator_instances (
    name VARCHAR(255) NOT NULL,
    worker_id VARCHAR(128) NOT NULL,
    pool VARCHAR(128) NOT NULL,
    provider VARCHAR(64) NOT NULL,
    ref VARCHAR(128),
    gpu_type VARCHAR(128),
    cost_per_hour DOUBLE NOT NULL,
    asked_at DATETIME NOT NULL,
    started_at DATETIME,
    ended_at DATETIME,
    PRIMARY KEY (name)
);
CREATE INDEX IF NOT EXISTS ix_orchestrator_instances_asked_at ON orchestrator_instances (asked_at);
CREATE INDEX IF NOT EXISTS ix_orchestrator_instances_ended_at ON orchestrator_instances (ended_at);
CREATE INDEX IF NOT EXISTS ix_orchestrator_instances_worker_id ON orchestrator_instances (worker_id);

CREATE TABLE IF NOT EXISTS orchestrator_leader (
    name VARCHAR(64) NOT NULL,
    holder VARCHAR(255) NOT NULL,
    epoch BIGINT NOT NULL,
    acquired_at DATETIME NOT NULL,
    renewed_at DATETIME NOT NULL,
    expires_at DATETIME NOT NULL,
    beats_since DATETIME,
    holds_until DATETIME,
    PRIMARY KEY (name)
);

CREATE TABLE IF NOT EXISTS orchestrator_leases (
    token VARCHAR(64) NOT NULL,
    agent_name VARCHAR(255) NOT NULL,
    gpu_index INTEGER,
    mode VARCHAR(8) DEFAULT 'gpu' NOT NULL,
    created_at DATETIME NOT NULL,
    expires_at DATETIME NOT NULL,
    last_heartbeat DATETIME,
    version BIGINT NOT NULL,
    updated_at DATETIME NOT NULL,
    status VARCHAR(32) NOT NULL,
    reason VARCHAR(64) NOT NULL,
    actor VARCHAR(255) NOT NULL,
    metadata TEXT NOT NULL,
    gpu_uuid VARCHAR(64),
    node_id VARCHAR(128),
    memory_mb INTEGER DEFAULT 0 NOT NULL,
    "exclusive" INTEGER DEFAULT 0 NOT NULL,
    ttl_s DOUBLE,
    lease_seq BIGINT DEFAULT 0 NOT NULL,
    worker_id VARCHAR(128),
    ended_at DATETIME,
    overruled VARCHAR(64),
    PRIMARY KEY (token),
    CONSTRAINT ck_orchestrator_leases_status CHECK (status IN ('active', 'expired', 'released', 'revoked')),
    CONSTRAINT ck_orchestrator_leases_mode CHECK (mode IN ('gpu', 'cpu'))
);
CREATE INDEX IF NOT EXISTS idx_leases_agent ON orchestrator_leases (agent_name);
CREATE INDEX IF NOT EXISTS ix_orchestrator_leases_ended ON orchestrator_leases (gpu_uuid, ended_at);
CREATE INDEX IF NOT EXISTS ix_orchestrator_leases_expiry ON orchestrator_leases (status, expires_at);
CREATE INDEX IF NOT EXISTS ix_orchestrator_leases_gpu ON orchestrator_leases (gpu_uuid, status);
CREATE INDEX IF NOT EXISTS ix_orchestrator_leases_list ON orchestrator_leases (created_at, token);
CREATE INDEX IF NOT EXISTS ix_orchestrator_leases_worker ON orchestrator_leases (worker_id, status);

CREATE TABLE IF NOT EXISTS orchestrator_policies (
    version INTEGER NOT NULL,
    document TEXT NOT NULL,
    note VARCHAR(255) NOT NULL,
    actor VARCHAR(255) NOT NULL,
    created_at DATETIME NOT NULL,
    PRIMARY KEY (version)
);

CREATE TABLE IF NOT EXISTS orchestrator_retention (
    name VARCHAR(32) NOT NULL,
    prune_before DATETIME NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE IF NOT EXISTS orchestrator_sights (
    cycle_id BIGINT NOT NULL,
    base_id BIGINT,
    data BLOB NOT NULL,
    PRIMARY KEY (cycle_id)
);

CREATE TABLE IF NOT EXISTS system_logs (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    ts DATETIME NOT NULL,
    stored_at DATETIME NOT NULL,
    instance VARCHAR(255) NOT NULL,
    level VARCHAR(16) NOT NULL,
    event VARCHAR(255) NOT NULL,
    details TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS ix_system_logs_level ON system_logs (level, ts);
CREATE INDEX IF NOT EXISTS ix_system_logs_stored_at ON system_logs (stored_at);

CREATE TABLE IF NOT EXISTS worker_gpus (
    worker_id VARCHAR(128) NOT NULL,
    uuid VARCHAR(64) NOT NULL,
    PRIMARY KEY (worker_id, uuid)
);
CREATE INDEX IF NOT EXISTS ix_worker_gpus_uuid ON worker_gpus (uuid);

CREATE TABLE IF NOT EXISTS worker_models (
    worker_id VARCHAR(128) NOT NULL,
    model VARCHAR(255) NOT NULL,
    PRIMARY KEY (worker_id, model)
);

CREATE TABLE IF NOT EXISTS worker_pools (
    pool_id VARCHAR(128) NOT NULL,
    agent_name VARCHAR(255) NOT NULL,
    model_id VARCHAR(255),
    adapter VARCHAR(255),
    desired_workers INTEGER DEFAULT 0 NOT NULL,
    spawned_workers INTEGER DEFAULT 0 NOT NULL,
    started_at DATETIME NOT NULL,
    last_heartbeat DATETIME,
    version BIGINT NOT NULL,
    updated_at DATETIME NOT NULL,
    status VARCHAR(32) NOT NULL,
    reason VARCHAR(64) NOT NULL,
    actor VARCHAR(255) NOT NULL,
    hold_seconds INTEGER DEFAULT 600 NOT NULL,
    metadata TEXT NOT NULL,
    variant VARCHAR(64),
    revision INTEGER DEFAULT 1 NOT NULL,
    rules TEXT,
    served_by VARCHAR(16) DEFAULT 'herdsman' NOT NULL,
    isolated INTEGER DEFAULT 0 NOT NULL,
    used_at DATETIME,
    PRIMARY KEY (pool_id),
    CONSTRAINT ck_worker_pools_status CHECK (status IN ('draining', 'evicted', 'running', 'starting', 'stopped')),
    CONSTRAINT ck_worker_pools_counted CHECK (desired_workers >= 0 AND spawned_workers >= 0 AND hold_seconds >= 0)
);

CREATE TABLE IF NOT EXISTS workers (
    id VARCHAR(128) NOT NULL,
    instance_type VARCHAR(128),
    created_at DATETIME NOT NULL,
    last_heartbeat DATETIME,
    version BIGINT NOT NULL,
    updated_at DATETIME NOT NULL,
    status VARCHAR(32) NOT NULL,
    reason VARCHAR(64) NOT NULL,
    actor VARCHAR(255) NOT NULL,
    pool VARCHAR(128) NOT NULL,
    entered_state_at DATETIME NOT NULL,
    metadata TEXT NOT NULL,
    provider VARCHAR(64),
    instance_name VARCHAR(255),
    instance_ref VARCHAR(128),
    cost_per_hour DOUBLE,
    ready INTEGER,
    gpu_seen INTEGER,
    gpu_fault VARCHAR(255),
    vram_at DATETIME,
    disk_total_mb BIGINT,
    disk_free_mb BIGINT,
    promoted_at DATETIME,
    failed_at DATETIME,
    error_code VARCHAR(64),
    error_reason TEXT,
    end_asked_at DATETIME,
    absent_since DATETIME,
    listed_at DATETIME,
    registered_at DATETIME,
    node_id VARCHAR(128),
    revision INTEGER DEFAULT 0 NOT NULL,
    wanted_revision INTEGER DEFAULT 0 NOT NULL,
    loaded_at DATETIME,
    PRIMARY KEY (id),
    CONSTRAINT ck_workers_status CHECK (status IN ('active', 'error', 'spawning', 'terminated', 'terminating'))
);
CREATE INDEX IF NOT EXISTS ix_workers_created_at ON workers (created_at);
CREATE INDEX IF NOT EXISTS ix_workers_failed_at ON workers (failed_at);
CREATE INDEX IF NOT EXISTS ix_workers_last_heartbeat ON workers (last_heartbeat);
CREATE INDEX IF NOT EXISTS ix_workers_status ON workers (status, pool);
CREATE UNIQUE INDEX IF NOT EXISTS uq_workers_instance_name ON workers (instance_name);

CREATE TABLE IF NOT EXISTS job_states (
    job_id VARCHAR(128) NOT NULL,
    place BIGINT NOT NULL,
    claim_token BIGINT NOT NULL,
    run_at DATETIME NOT NULL,
    created_at DATETIME NOT NULL,
    claim_expires_at DATETIME,
    claimed_at DATETIME,
    started_at DATETIME,
    deadline_at DATETIME,
    cancel_requested_at DATETIME,
    finished_at DATETIME,
    timeout_s DOUBLE,
    attempts INTEGER NOT NULL,
    interruptions INTEGER NOT NULL,
    worker_losses INTEGER NOT NULL,
    out_of_memory INTEGER NOT NULL,
    slot INTEGER DEFAULT 0 NOT NULL,
    gpu_memory_mb INTEGER,
    allow_cpu INTEGER DEFAULT 0 NOT NULL,
    version BIGINT NOT NULL,
    updated_at DATETIME NOT NULL,
    status VARCHAR(32) NOT NULL,
    reason VARCHAR(64) NOT NULL,
    actor VARCHAR(255) NOT NULL,
    type VARCHAR(64) NOT NULL,
    agent VARCHAR(255) NOT NULL,
    pool VARCHAR(128) NOT NULL,
    model VARCHAR(255),
    concurrency_key VARCHAR(128),
    worker_id VARCHAR(128),
    last_worker_id VARCHAR(128),
    begun_by VARCHAR(64),
    progress DOUBLE,
    progress_note VARCHAR(255),
    progress_at DATETIME,
    service_job_id VARCHAR(255),
    service_status VARCHAR(64),
    service_submitted_at DATETIME,
    last_service_check DATETIME,
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
);
CREATE INDEX IF NOT EXISTS ix_job_states_agent ON job_states (agent, status) WHERE status = 'pending' OR status = 'scheduled' OR status = 'failed';
CREATE INDEX IF NOT EXISTS ix_job_states_due ON job_states (status, run_at) WHERE status = 'pending' OR status = 'scheduled' OR status = 'failed';
CREATE INDEX IF NOT EXISTS ix_job_states_finished ON job_states (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS ix_job_states_list ON job_states (created_at);
CREATE INDEX IF NOT EXISTS ix_job_states_list_status ON job_states (status, created_at) WHERE status = 'pending' OR status = 'scheduled' OR status = 'failed' OR status = 'cancelled' OR status = 'dead_letter';
CREATE INDEX IF NOT EXISTS ix_job_states_next ON job_states (status, pool, place) WHERE status = 'pending';
CREATE INDEX IF NOT EXISTS ix_job_states_turn ON job_states (status, pool, agent, model, place) WHERE status = 'pending';
CREATE INDEX IF NOT EXISTS ix_job_states_type ON job_states (status, pool, type, place) WHERE status = 'pending';
CREATE INDEX IF NOT EXISTS ix_job_states_worker ON job_states (last_worker_id, finished_at) WHERE finished_at IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS uq_job_states_held ON job_states (worker_id, slot) WHERE worker_id IS NOT NULL;

CREATE TABLE IF NOT EXISTS job_bodies (
    job_id VARCHAR(128) NOT NULL,
    payload TEXT NOT NULL,
    tags TEXT NOT NULL,
    body_hash VARCHAR(64) NOT NULL,
    agent VARCHAR(255) NOT NULL,
    idempotency_key VARCHAR(255),
    priority INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    retry_base_s DOUBLE,
    retry_cap_s DOUBLE,
    admission VARCHAR(64),
    PRIMARY KEY (job_id),
    CONSTRAINT ck_job_bodies_priority CHECK (priority BETWEEN -100 AND 100),
    CONSTRAINT fk_job_bodies_job_id FOREIGN KEY(job_id) REFERENCES job_states (job_id)
);
CREATE UNIQUE INDEX IF NOT EXISTS uq_job_bodies_agent_idempotency_key ON job_bodies (agent, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE TABLE IF NOT EXISTS job_checkpoints (
    job_id VARCHAR(128) NOT NULL,
    claim_token BIGINT NOT NULL,
    updated_at DATETIME NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (job_id),
    CONSTRAINT fk_job_checkpoints_job_id FOREIGN KEY(job_id) REFERENCES job_states (job_id)
);

CREATE TABLE IF NOT EXISTS job_ends (
    job_id VARCHAR(128) NOT NULL,
    claim_token BIGINT NOT NULL,
    result TEXT,
    failure_class VARCHAR(32),
    last_error TEXT,
    saved_gpu_s DOUBLE,
    PRIMARY KEY (job_id, claim_token),
    CONSTRAINT ck_job_ends_one CHECK (result IS NULL OR failure_class IS NULL),
    CONSTRAINT fk_job_ends_job_id FOREIGN KEY(job_id) REFERENCES job_states (job_id)
);
CREATE INDEX IF NOT EXISTS ix_job_ends_saved ON job_ends (saved_gpu_s) WHERE saved_gpu_s IS NOT NULL;

CREATE TABLE IF NOT EXISTS job_logs (
    job_id VARCHAR(128) NOT NULL,
    claim_token BIGINT NOT NULL,
    first_line INTEGER NOT NULL,
    ts DATETIME NOT NULL,
    line_count INTEGER NOT NULL,
    byte_count INTEGER NOT NULL,
    lines TEXT NOT NULL,
    PRIMARY KEY (job_id, claim_token, first_line),
    CONSTRAINT fk_job_logs_job_id FOREIGN KEY(job_id) REFERENCES job_states (job_id)
);

CREATE TABLE IF NOT EXISTS job_tags (
    tag VARCHAR(64) NOT NULL,
    job_id VARCHAR(128) NOT NULL,
    created_at DATETIME NOT NULL,
    PRIMARY KEY (tag, job_id),
    CONSTRAINT fk_job_tags_job_id FOREIGN KEY(job_id) REFERENCES job_states (job_id)
);
CREATE INDEX IF NOT EXISTS ix_job_tags_job_id ON job_tags (job_id);
CREATE INDEX IF NOT EXISTS ix_job_tags_list ON job_tags (tag, created_at, job_id);

CREATE TABLE IF NOT EXISTS past_attempts (
    job_id VARCHAR(128) NOT NULL,
    claim_token BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    worker_id VARCHAR(128) NOT NULL,
    pool VARCHAR(128) NOT NULL,
    claimed_at DATETIME NOT NULL,
    started_at DATETIME,
    ended_at DATETIME NOT NULL,
    outcome VARCHAR(32) NOT NULL,
    reason VARCHAR(64) NOT NULL,
    PRIMARY KEY (job_id, claim_token),
    CONSTRAINT fk_past_attempts_job_id FOREIGN KEY(job_id) REFERENCES job_states (job_id)
)
 WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ix_past_attempts_ended ON past_attempts (ended_at);
CREATE INDEX IF NOT EXISTS ix_past_attempts_worker ON past_attempts (worker_id, ended_at);
