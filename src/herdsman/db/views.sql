-- Views over the tables that jobs and the audit are kept in, the same on every database. docs/decisions/0023 says why.
-- A join that a query needs nothing of is left out by all three.

CREATE VIEW orchestrator_jobs AS
SELECT
    j.job_id, j.type, b.payload, j.status, j.reason, j.actor, j.version, j.updated_at, j.agent, j.pool,
    CASE WHEN j.claimed_at IS NOT NULL OR p.claimed_at IS NOT NULL THEN j.pool END AS owner_pool,
    b.priority, j.place, b.tags, b.body_hash, b.idempotency_key, j.attempts, b.max_attempts, j.interruptions,
    j.worker_losses, j.out_of_memory, b.retry_base_s, b.retry_cap_s, j.timeout_s, j.run_at, j.worker_id, j.slot,
    j.last_worker_id, j.claim_token, j.claim_expires_at,
    -- Of a job that waits again: those of its last attempt.
    COALESCE(j.claimed_at, p.claimed_at) AS claimed_at,
    COALESCE(j.started_at, p.started_at) AS started_at,
    j.deadline_at,
    CASE WHEN j.status = 'done' THEN 1.0 ELSE j.progress END AS progress,
    j.progress_note, j.progress_at, j.cancel_requested_at, j.finished_at,
    CASE WHEN j.status = 'done' THEN e.result END AS result,
    e.failure_class, e.last_error, j.service_job_id, j.service_status, j.service_submitted_at, j.last_service_check,
    j.created_at, j.model, j.gpu_memory_mb, j.allow_cpu, j.concurrency_key, b.admission, e.saved_gpu_s, j.begun_by
FROM job_states j
LEFT JOIN job_bodies b ON b.job_id = j.job_id
LEFT JOIN job_ends e ON e.job_id = j.job_id AND e.claim_token = j.claim_token
LEFT JOIN past_attempts p ON p.job_id = j.job_id AND p.claim_token = j.claim_token;

CREATE VIEW job_attempts AS
SELECT
    j.job_id, j.claim_token, j.attempts AS attempt, j.last_worker_id AS worker_id, j.pool, j.claimed_at, j.started_at,
    j.finished_at AS ended_at,
    CASE WHEN j.finished_at IS NOT NULL THEN j.status END AS outcome,
    CASE WHEN j.finished_at IS NOT NULL THEN j.reason END AS reason,
    e.failure_class, e.last_error AS error
FROM job_states j
LEFT JOIN job_ends e ON e.job_id = j.job_id AND e.claim_token = j.claim_token
WHERE j.claimed_at IS NOT NULL
UNION ALL
SELECT
    p.job_id, p.claim_token, p.attempt, p.worker_id, p.pool, p.claimed_at, p.started_at, p.ended_at, p.outcome,
    p.reason, e.failure_class, e.last_error
FROM past_attempts p
LEFT JOIN job_ends e ON e.job_id = p.job_id AND e.claim_token = p.claim_token;

CREATE VIEW orchestrator_audit AS
SELECT
    a.id, a.ts,
    CASE WHEN a.reason = 'cancel_requested' THEN 'job.cancel_requested' ELSE {event} END AS event_type,
    a.kind AS object_kind, a.object_id, a.seq,
    (SELECT b.status FROM audit_entries b
        WHERE b.kind = a.kind AND b.object_id = a.object_id AND b.seq = a.seq - 1) AS from_status,
    a.status AS to_status, a.reason, a.actor,
    CASE
        WHEN a.details IS NOT NULL THEN a.details{bytes}
        WHEN a.kind = 'job' THEN json_object(
            'claim_token', a.claim_token, 'attempts', a.attempts, 'worker_id', a.worker_id,
            'last_worker_id', (
                SELECT b.worker_id FROM audit_entries b
                WHERE b.kind = a.kind AND b.object_id = a.object_id AND b.seq <= a.seq AND b.worker_id IS NOT NULL
                ORDER BY b.seq DESC LIMIT 1
            ),
            'failure_class', CASE WHEN a.status NOT IN ('claimed', 'running') THEN (
                SELECT e.failure_class FROM job_ends e WHERE e.job_id = a.object_id AND e.claim_token = a.claim_token
            ) END
        ){bytes}
        ELSE json_object(){bytes}
    END AS details
FROM audit_entries a;
