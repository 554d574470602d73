-- The view `tasks` on SQLite, which keeps no functions.

CREATE VIEW tasks AS
SELECT
    j.job_id AS id,
    j.type AS task_type,
    j.payload AS params,
    CASE j.status
        WHEN 'scheduled' THEN 'Queued'
        WHEN 'pending' THEN 'Queued'
        WHEN 'claimed' THEN 'In Progress'
        WHEN 'running' THEN 'In Progress'
        WHEN 'done' THEN 'Complete'
        WHEN 'failed' THEN 'Error'
        WHEN 'dead_letter' THEN 'Failed'
        WHEN 'cancelled' THEN 'Cancelled'
    END AS status,
    j.attempts AS attempts,
    j.worker_id AS worker_id,
    j.created_at AS created_at,
    j.updated_at AS updated_at,
    -- The earlier attempt of a task that waits again is over: a search for stuck tasks must not see it.
    CASE WHEN NOT (j.status IN ('pending', 'scheduled'))
        THEN COALESCE(j.started_at, j.claimed_at) END AS generation_started_at,
    COALESCE(j.finished_at, CASE WHEN j.status = 'failed' THEN j.updated_at END) AS generation_processed_at,
    CASE WHEN j.status IN ('failed', 'scheduled') THEN j.run_at END AS next_attempt_at,
    j.last_error AS error_message,
    j.result AS result
FROM orchestrator_jobs j;
