-- Views for people and dashboards; docs/reference/views.md explains them. Each one reads pieces of indexes.

CREATE VIEW orchestrator_status AS
SELECT
    (SELECT COUNT(*) FROM job_states WHERE status = 'pending') AS queue_depth,
    CAST(EXTRACT(EPOCH FROM (now() - (SELECT MIN(run_at) FROM job_states
        WHERE status = 'pending'))) AS double precision) AS oldest_waiting_s,
    (SELECT COUNT(*) FROM job_states WHERE status = 'scheduled') AS jobs_scheduled,
    (SELECT COUNT(*) FROM job_states WHERE status = 'failed') AS jobs_retrying,
    (SELECT COUNT(*) FROM job_states WHERE worker_id IS NOT NULL) AS jobs_held,
    (SELECT COUNT(*) FROM job_states WHERE finished_at > (now() - INTERVAL '1 hour') AND status = 'done')
        AS jobs_done_per_hour,
    (SELECT COUNT(*) FROM job_states
        WHERE finished_at > (now() - INTERVAL '1 hour') AND status = 'dead_letter') AS jobs_failed_per_hour,
    (SELECT e.last_error FROM job_states j
        LEFT JOIN job_ends e ON e.job_id = j.job_id AND e.claim_token = j.claim_token
        WHERE j.finished_at > (now() - INTERVAL '1 hour') AND j.status = 'dead_letter'
            ORDER BY j.finished_at DESC LIMIT 1) AS last_job_error,
    (SELECT COUNT(*) FROM workers WHERE status = 'spawning') AS workers_spawning,
    (SELECT COUNT(*) FROM workers WHERE status = 'active') AS workers_active,
    (SELECT COUNT(*) FROM workers WHERE status = 'terminating') AS workers_terminating,
    (SELECT COUNT(*) FROM workers WHERE status = 'error') AS workers_error,
    (SELECT COUNT(*) FROM workers WHERE status = 'terminated') AS workers_terminated,
    (SELECT COUNT(*) FROM workers WHERE failed_at > (now() - INTERVAL '1 hour')) AS workers_failed_per_hour,
    (SELECT error_reason FROM workers WHERE failed_at > (now() - INTERVAL '1 hour') ORDER BY failed_at DESC LIMIT 1)
        AS last_worker_error,
    CAST(EXTRACT(EPOCH FROM (now() - (SELECT MIN(last_heartbeat) FROM workers
        WHERE status = 'active'))) AS double precision) AS oldest_heartbeat_s,
    COALESCE((SELECT SUM(cost_per_hour) FROM orchestrator_instances
        WHERE ended_at IS NULL AND started_at IS NOT NULL), 0) AS cost_per_hour,
    (SELECT MAX(holder) FROM orchestrator_leader WHERE expires_at > now()) AS leader,
    CAST(EXTRACT(EPOCH FROM (now() - (SELECT MAX(started_at) FROM orchestrator_cycles))) AS double precision)
        AS last_cycle_s;

CREATE VIEW active_workers_health AS
SELECT
    w.id AS worker_id,
    w.pool AS pool,
    w.status AS status,
    CAST(EXTRACT(EPOCH FROM (now() - w.entered_state_at)) AS double precision) AS in_status_s,
    CAST(EXTRACT(EPOCH FROM (now() - w.last_heartbeat)) AS double precision) AS heartbeat_age_s,
    CASE WHEN jsonb_typeof(w.metadata -> 'vram_total_mb') = 'number'
        THEN CAST(w.metadata ->> 'vram_total_mb' AS double precision) END AS vram_total_mb,
    CASE WHEN jsonb_typeof(w.metadata -> 'vram_used_mb') = 'number'
        THEN CAST(w.metadata ->> 'vram_used_mb' AS double precision) END AS vram_used_mb,
    100.0 * (CASE WHEN jsonb_typeof(w.metadata -> 'vram_used_mb') = 'number'
        THEN CAST(w.metadata ->> 'vram_used_mb' AS double precision) END) / NULLIF((
            CASE WHEN jsonb_typeof(w.metadata -> 'vram_total_mb') = 'number'
                THEN CAST(w.metadata ->> 'vram_total_mb' AS double precision) END), 0) AS vram_percent,
    CAST(EXTRACT(EPOCH FROM (now() - w.vram_at)) AS double precision) AS vram_age_s,
    j.job_id AS job_id,
    CAST(EXTRACT(EPOCH FROM (now() - j.claimed_at)) AS double precision) AS job_held_s,
    w.gpu_fault AS gpu_fault,
    w.error_code AS error_code,
    w.error_reason AS error
FROM workers w
LEFT JOIN job_states j ON j.worker_id = w.id
WHERE w.status IN ('active', 'error', 'spawning', 'terminating');

CREATE VIEW worker_performance AS
SELECT
    w.id AS worker_id,
    w.pool AS pool,
    w.status AS status,
    COALESCE(t.done, 0) AS jobs_done,
    COALESCE(t.failed, 0) AS jobs_failed,
    COALESCE(t.given_back, 0) AS jobs_given_back,
    t.done * 1.0 / NULLIF(t.done + t.failed, 0) AS success_rate,
    t.mean_s AS mean_processing_s,
    CAST(EXTRACT(EPOCH FROM (CASE WHEN w.status = 'terminated'
        THEN w.entered_state_at ELSE now() END - w.created_at)) AS double precision) AS uptime_s,
    COALESCE((SELECT SUM(i.cost_per_hour
        * CAST(EXTRACT(EPOCH FROM (COALESCE(i.ended_at, now()) - i.started_at)) AS double precision) / 3600.0)
            FROM orchestrator_instances i WHERE i.worker_id = w.id AND i.started_at IS NOT NULL), 0) AS cost_estimate
FROM workers w
LEFT JOIN (
    SELECT a.worker_id AS worker_id,
        SUM(CASE WHEN a.outcome = 'done' THEN 1 ELSE 0 END) AS done,
        SUM(CASE WHEN a.outcome IN ('dead_letter', 'failed') THEN 1 ELSE 0 END) AS failed,
        SUM(CASE WHEN a.outcome = 'pending' THEN 1 ELSE 0 END) AS given_back,
        AVG(CASE WHEN a.outcome = 'done'
            THEN CAST(EXTRACT(EPOCH FROM (a.ended_at - COALESCE(a.started_at, a.claimed_at))) AS double precision) END) AS mean_s
    FROM (
        -- Of workers that live, or are gone within a day: the attempts of all others are not even read.
        SELECT j.last_worker_id AS worker_id, j.status AS outcome, j.claimed_at, j.started_at, j.finished_at AS ended_at
        FROM workers v JOIN job_states j ON j.last_worker_id = v.id
        WHERE (v.status IN ('active', 'error', 'spawning', 'terminating')
            OR v.entered_state_at > (now() - INTERVAL '24 hours'))
            AND j.finished_at IS NOT NULL AND j.claimed_at IS NOT NULL
        UNION ALL
        SELECT p.worker_id, p.outcome, p.claimed_at, p.started_at, p.ended_at
        FROM workers v JOIN past_attempts p ON p.worker_id = v.id
        WHERE (v.status IN ('active', 'error', 'spawning', 'terminating')
            OR v.entered_state_at > (now() - INTERVAL '24 hours'))
    ) a
    GROUP BY a.worker_id
) t ON t.worker_id = w.id
WHERE (w.status IN ('active', 'error', 'spawning', 'terminating') OR w.entered_state_at > (now() - INTERVAL '24 hours'));
