-- Views for people and dashboards; docs/reference/views.md explains them. Each one reads pieces of indexes.

CREATE VIEW orchestrator_status AS
SELECT
    (SELECT COUNT(*) FROM job_states WHERE status = 'pending') AS queue_depth,
    (TIMESTAMPDIFF(MICROSECOND, (SELECT MIN(run_at) FROM job_states
        WHERE status = 'pending'), UTC_TIMESTAMP(6)) / 1e6) AS oldest_waiting_s,
    (SELECT COUNT(*) FROM job_states WHERE status = 'scheduled') AS jobs_scheduled,
    (SELECT COUNT(*) FROM job_states WHERE status = 'failed') AS jobs_retrying,
    (SELECT COUNT(*) FROM job_states WHERE worker_id IS NOT NULL) AS jobs_held,
    (SELECT COUNT(*) FROM job_states
        WHERE finished_at > (UTC_TIMESTAMP(6) - INTERVAL 1 HOUR) AND status = 'done') AS jobs_done_per_hour,
    (SELECT COUNT(*) FROM job_states
        WHERE finished_at > (UTC_TIMESTAMP(6) - INTERVAL 1 HOUR) AND status = 'dead_letter') AS jobs_failed_per_hour,
    (SELECT e.last_error FROM job_states j
        LEFT JOIN job_ends e ON e.job_id = j.job_id AND e.claim_token = j.claim_token
        WHERE j.finished_at > (UTC_TIMESTAMP(6) - INTERVAL 1 HOUR) AND j.status = 'dead_letter'
            ORDER BY j.finished_at DESC LIMIT 1) AS last_job_error,
    (SELECT COUNT(*) FROM workers WHERE status = 'spawning') AS workers_spawning,
    (SELECT COUNT(*) FROM workers WHERE status = 'active') AS workers_active,
    (SELECT COUNT(*) FROM workers WHERE status = 'terminating') AS workers_terminating,
    (SELECT COUNT(*) FROM workers WHERE status = 'error') AS workers_error,
    (SELECT COUNT(*) FROM workers WHERE status = 'terminated') AS workers_terminated,
    (SELECT COUNT(*) FROM workers WHERE failed_at > (UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)) AS workers_failed_per_hour,
    (SELECT error_reason FROM workers WHERE failed_at > (UTC_TIMESTAMP(6) - INTERVAL 1 HOUR)
        ORDER BY failed_at DESC LIMIT 1) AS last_worker_error,
    (TIMESTAMPDIFF(MICROSECOND, (SELECT MIN(last_heartbeat) FROM workers
        WHERE status = 'active'), UTC_TIMESTAMP(6)) / 1e6) AS oldest_heartbeat_s,
    COALESCE((SELECT SUM(cost_per_hour) FROM orchestrator_instances
        WHERE ended_at IS NULL AND started_at IS NOT NULL), 0) AS cost_per_hour,
    (SELECT MAX(holder) FROM orchestrator_leader WHERE expires_at > UTC_TIMESTAMP(6)) AS leader,
    (TIMESTAMPDIFF(MICROSECOND, (SELECT MAX(started_at) FROM orchestrator_cycles), UTC_TIMESTAMP(6)) / 1e6)
        AS last_cycle_s;

CREATE VIEW active_workers_health AS
SELECT
    w.id AS worker_id,
    w.pool AS pool,
    w.status AS status,
    (TIMESTAMPDIFF(MICROSECOND, w.entered_state_at, UTC_TIMESTAMP(6)) / 1e6) AS in_status_s,
    (TIMESTAMPDIFF(MICROSECOND, w.last_heartbeat, UTC_TIMESTAMP(6)) / 1e6) AS heartbeat_age_s,
    CASE WHEN JSON_TYPE(JSON_EXTRACT(w.metadata, '$.vram_total_mb')) IN ('INTEGER', 'DOUBLE')
        THEN JSON_VALUE(w.metadata, '$.vram_total_mb') + 0e0 END AS vram_total_mb,
    CASE WHEN JSON_TYPE(JSON_EXTRACT(w.metadata, '$.vram_used_mb')) IN ('INTEGER', 'DOUBLE')
        THEN JSON_VALUE(w.metadata, '$.vram_used_mb') + 0e0 END AS vram_used_mb,
    100.0 * (CASE WHEN JSON_TYPE(JSON_EXTRACT(w.metadata, '$.vram_used_mb')) IN ('INTEGER', 'DOUBLE')
        THEN JSON_VALUE(w.metadata, '$.vram_used_mb') + 0e0 END) / NULLIF((
            CASE WHEN JSON_TYPE(JSON_EXTRACT(w.metadata, '$.vram_total_mb')) IN ('INTEGER', 'DOUBLE')
                THEN JSON_VALUE(w.metadata, '$.vram_total_mb') + 0e0 END), 0) AS vram_percent,
    (TIMESTAMPDIFF(MICROSECOND, w.vram_at, UTC_TIMESTAMP(6)) / 1e6) AS vram_age_s,
    j.job_id AS job_id,
    (TIMESTAMPDIFF(MICROSECOND, j.claimed_at, UTC_TIMESTAMP(6)) / 1e6) AS job_held_s,
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
    (TIMESTAMPDIFF(MICROSECOND, w.created_at, CASE WHEN w.status = 'terminated'
        THEN w.entered_state_at ELSE UTC_TIMESTAMP(6) END) / 1e6) AS uptime_s,
    COALESCE((SELECT SUM(i.cost_per_hour
        * (TIMESTAMPDIFF(MICROSECOND, i.started_at, COALESCE(i.ended_at, UTC_TIMESTAMP(6))) / 1e6) / 3600.0)
            FROM orchestrator_instances i WHERE i.worker_id = w.id AND i.started_at IS NOT NULL), 0) AS cost_estimate
FROM workers w
LEFT JOIN (
    SELECT a.worker_id AS worker_id,
        SUM(CASE WHEN a.outcome = 'done' THEN 1 ELSE 0 END) AS done,
        SUM(CASE WHEN a.outcome IN ('dead_letter', 'failed') THEN 1 ELSE 0 END) AS failed,
        SUM(CASE WHEN a.outcome = 'pending' THEN 1 ELSE 0 END) AS given_back,
        AVG(CASE WHEN a.outcome = 'done'
            THEN (TIMESTAMPDIFF(MICROSECOND, COALESCE(a.started_at, a.claimed_at), a.ended_at) / 1e6) END) AS mean_s
    FROM (
        -- Of workers that live, or are gone within a day: the attempts of all others are not even read.
        SELECT j.last_worker_id AS worker_id, j.status AS outcome, j.claimed_at, j.started_at, j.finished_at AS ended_at
        FROM workers v JOIN job_states j ON j.last_worker_id = v.id
        WHERE (v.status IN ('active', 'error', 'spawning', 'terminating')
            OR v.entered_state_at > (UTC_TIMESTAMP(6) - INTERVAL 1 DAY))
            AND j.finished_at IS NOT NULL AND j.claimed_at IS NOT NULL
        UNION ALL
        SELECT p.worker_id, p.outcome, p.claimed_at, p.started_at, p.ended_at
        FROM workers v JOIN past_attempts p ON p.worker_id = v.id
        WHERE (v.status IN ('active', 'error', 'spawning', 'terminating')
            OR v.entered_state_at > (UTC_TIMESTAMP(6) - INTERVAL 1 DAY))
    ) a
    GROUP BY a.worker_id
) t ON t.worker_id = w.id
WHERE (w.status IN ('active', 'error', 'spawning', 'terminating')
    OR w.entered_state_at > (UTC_TIMESTAMP(6) - INTERVAL 1 DAY));
