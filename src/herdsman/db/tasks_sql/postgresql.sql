-- The view `tasks` and its functions on PostgreSQL. docs/reference/tasks.md explains them.
--
-- __init__.py creates each function as PL/pgSQL, SECURITY DEFINER, with a fixed search_path, and gives nobody else the
-- right to run it. {task} stands for the columns of the view. Parameters of inner functions are p_..., variables v_....
-- Limits and delays are the defaults of JobPolicy: a function cannot read the settings of a process. The UPDATEs are
-- those of the commands. tests/unit/test_tasks_sql.py compares both.

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

-- The rows that functions return. A type of its own: one made of the view would keep the view from being replaced.
CREATE TYPE task_row AS (
    id text,
    task_type text,
    params json,
    status text,
    attempts integer,
    worker_id text,
    created_at timestamp with time zone,
    updated_at timestamp with time zone,
    generation_started_at timestamp with time zone,
    generation_processed_at timestamp with time zone,
    next_attempt_at timestamp with time zone,
    error_message text,
    result json,
    claim_token bigint
);

-- A caller with the token of a worker acts for that worker alone; the role of workers must come with such a token.
CREATE FUNCTION task_face_allow(p_worker text) RETURNS void AS $$
DECLARE
    v_named text := CAST(NULLIF(current_setting('request.jwt.claims', true), '') AS jsonb) ->> 'worker_id';
BEGIN
    IF v_named IS NULL AND current_setting('role') <> 'herdsman_worker' THEN RETURN; END IF;
    IF v_named = p_worker THEN RETURN; END IF;
    RAISE insufficient_privilege USING MESSAGE = 'herdsman: the token must carry the worker_id that it is used for';
END
$$;

CREATE FUNCTION task_face_status(p_state text) RETURNS text AS $$
BEGIN
    RETURN CASE p_state
        WHEN 'scheduled' THEN 'Queued'
        WHEN 'pending' THEN 'Queued'
        WHEN 'claimed' THEN 'In Progress'
        WHEN 'running' THEN 'In Progress'
        WHEN 'done' THEN 'Complete'
        WHEN 'failed' THEN 'Error'
        WHEN 'dead_letter' THEN 'Failed'
        WHEN 'cancelled' THEN 'Cancelled'
    END;
END
$$;

-- End a claim without a result, by the rules of the commands; the status that the task has then.
CREATE FUNCTION task_face_end(p_job text, p_token bigint, p_kind text, p_error text, p_actor text) RETURNS text AS $$
DECLARE
    v_actor text := p_actor;
    v_base double precision;
    v_cancel timestamptz;
    v_cap double precision;
    v_error text := LEFT(p_error, 8192);
    v_failure_class text := p_kind;
    v_finished timestamptz;
    v_interruptions bigint;
    v_job text := p_job;
    v_max_attempts bigint;
    v_now timestamptz := clock_timestamp();
    v_out_of_memory bigint;
    v_place bigint;
    v_priority bigint;
    v_reason text;
    v_run_at timestamptz;
    v_spent bigint;
    v_status text;
    v_token bigint := p_token;
    v_worker_losses bigint;
BEGIN
    SELECT
        j.interruptions + CASE WHEN p_kind = 'interrupted' THEN 1 ELSE 0 END,
        j.worker_losses + CASE WHEN p_kind = 'worker_lost' THEN 1 ELSE 0 END,
        j.out_of_memory,
        b.max_attempts,
        COALESCE(NULLIF(b.retry_base_s, 0), 5.0),
        COALESCE(NULLIF(b.retry_cap_s, 0), GREATEST(COALESCE(NULLIF(b.retry_base_s, 0), 5.0), 300.0)),
        b.priority, j.place, j.run_at, j.cancel_requested_at, j.attempts
    INTO v_interruptions, v_worker_losses, v_out_of_memory, v_max_attempts, v_base, v_cap,
        v_priority, v_place, v_run_at, v_cancel, v_spent
    FROM job_states j JOIN job_bodies b ON b.job_id = j.job_id
    WHERE j.job_id = p_job AND j.claim_token = p_token AND j.status IN ('claimed', 'running')
    FOR UPDATE;
    v_spent := v_spent - v_interruptions;

    IF v_cancel IS NOT NULL THEN
        v_status := 'cancelled'; v_reason := 'cancelled';
    ELSIF p_kind = 'worker_lost' AND v_worker_losses >= 2 THEN
        v_status := 'dead_letter'; v_reason := 'kills_workers';
    ELSIF v_spent >= v_max_attempts THEN
        v_status := 'dead_letter'; v_reason := 'attempts_exhausted';
    ELSIF p_kind = 'worker_lost' THEN
        v_status := 'pending'; v_reason := 'claim_expired'; v_run_at := v_now;
    ELSE
        v_status := 'failed'; v_reason := 'job_error';
        v_run_at := v_now + LEAST(v_cap, v_base * POWER(2e0, LEAST(GREATEST(v_spent - 1, 0), 62)))
            * (1 + 0.5 * random()) * INTERVAL '1 second';
    END IF;
    IF v_status IN ('failed', 'pending') THEN
        v_place := CAST(EXTRACT(EPOCH FROM v_run_at) * 1000000 AS bigint) - v_priority * 60000000;
    ELSE
        v_finished := v_now;
    END IF;

    UPDATE job_states SET
        place = v_place, run_at = v_run_at, claim_expires_at = NULL,
        claimed_at = CASE WHEN (v_finished IS NULL) THEN NULL ELSE claimed_at END,
        started_at = CASE WHEN (v_finished IS NULL) THEN NULL ELSE started_at END, deadline_at = NULL,
        finished_at = v_finished, interruptions = v_interruptions, worker_losses = v_worker_losses,
        out_of_memory = v_out_of_memory, version = version + 1, updated_at = v_now, status = v_status,
        reason = v_reason, actor = v_actor, worker_id = NULL
    WHERE job_id = v_job AND claim_token = v_token AND status IN ('claimed', 'running');
    INSERT INTO job_ends (job_id, claim_token, failure_class, last_error)
    VALUES (v_job, v_token, v_failure_class, v_error);
    RETURN task_face_status(v_status);
END
$$;

-- The next job of the worker's pool, for an active worker that holds none; its id, or NULL. How many jobs of a
-- concurrency key may run is in the policy, which a function does not read: they are left to the API.
CREATE FUNCTION task_face_claim(p_worker text, p_ttl double precision) RETURNS text AS $$
DECLARE
    v_actor text;
    v_busy text;
    v_deadline timestamptz;
    v_expires timestamptz;
    v_job text;
    v_now timestamptz;
    v_pool text;
    v_slot bigint := 0;
    v_timeout double precision;
    v_token bigint;
    v_worker text := p_worker;
BEGIN
    PERFORM task_face_allow(v_worker);
    SELECT w.pool INTO v_pool FROM workers w WHERE w.id = p_worker AND w.status = 'active' FOR NO KEY UPDATE;
    SELECT j.job_id INTO v_busy FROM job_states j WHERE j.worker_id = p_worker LIMIT 1;
    IF v_pool IS NULL OR v_busy IS NOT NULL THEN RETURN NULL; END IF;

    SELECT j.job_id, j.claim_token, j.timeout_s INTO v_job, v_token, v_timeout
    FROM job_states j
    WHERE j.status = 'pending' AND j.pool = v_pool AND j.concurrency_key IS NULL
        AND NOT EXISTS (
            SELECT 1 FROM orchestrator_holds h
            WHERE (h.scope = 'all' OR h.scope = CONCAT('pool:', v_pool) OR h.scope = CONCAT('type:', j.type))
                AND (h.until IS NULL OR h.until > clock_timestamp())
        )
    ORDER BY j.place LIMIT 1
    FOR UPDATE SKIP LOCKED;
    IF v_job IS NULL THEN RETURN NULL; END IF;

    v_now := clock_timestamp();
    v_actor := CONCAT('sql:', v_worker);
    v_expires := v_now + p_ttl * INTERVAL '1 second';
    v_deadline := v_now + v_timeout * INTERVAL '1 second';
    UPDATE job_states SET
        claim_token = claim_token + 1, claim_expires_at = v_expires, claimed_at = v_now, started_at = NULL,
        deadline_at = v_deadline, attempts = attempts + 1, slot = v_slot, version = version + 1, updated_at = v_now,
        status = 'claimed', reason = 'claimed', actor = v_actor, worker_id = v_worker, last_worker_id = v_worker,
        begun_by = NULL, progress = NULL, progress_note = NULL, progress_at = NULL
    WHERE job_id = v_job AND claim_token = v_token AND status = 'pending';
    RETURN v_job;
END
$$;

-- Store the result. A job whose cancellation was requested is cancelled instead.
CREATE FUNCTION task_face_complete(p_job text, p_token bigint, p_result text) RETURNS text AS $$
DECLARE
    v_actor text;
    v_cancel timestamptz;
    v_job text;
    v_now timestamptz;
    v_status text;
    v_token bigint;
    v_worker text;
BEGIN
    SELECT j.job_id, j.claim_token, j.status, COALESCE(j.worker_id, j.last_worker_id), j.cancel_requested_at
    INTO v_job, v_token, v_status, v_worker, v_cancel
    FROM job_states j WHERE j.job_id = p_job FOR UPDATE;
    PERFORM task_face_allow(v_worker);
    IF v_job IS NULL THEN
        RAISE EXCEPTION USING MESSAGE = LEFT(CONCAT('herdsman: there is no task ', COALESCE(p_job, 'NULL')), 128);
    END IF;
    IF v_status NOT IN ('claimed', 'running', 'done') OR COALESCE(p_token, v_token) <> v_token THEN
        RAISE EXCEPTION USING MESSAGE = LEFT(CONCAT('herdsman: task ', p_job, ' is ', task_face_status(v_status),
            ' with claim ', v_token, ', you cannot complete it'), 128);
    END IF;
    IF v_status = 'done' THEN RETURN 'Complete'; END IF;
    v_actor := CONCAT('sql:', v_worker);
    IF v_cancel IS NOT NULL THEN
        RETURN task_face_end(v_job, v_token, 'interrupted', 'cancelled; the result came too late', v_actor);
    END IF;
    IF OCTET_LENGTH(p_result) > 1048576 THEN
        RAISE EXCEPTION USING MESSAGE = LEFT(CONCAT('herdsman: the result of task ', p_job,
            ' has more than 1048576 bytes: store it elsewhere'), 128);
    END IF;

    v_now := clock_timestamp();
    UPDATE job_states SET
        claim_expires_at = NULL, deadline_at = NULL, finished_at = v_now, version = version + 1, updated_at = v_now,
        status = 'done', reason = 'completed', actor = v_actor, worker_id = NULL
    WHERE job_id = v_job AND claim_token = v_token AND last_worker_id = coalesce(v_worker, last_worker_id)
        AND status IN ('claimed', 'running') AND cancel_requested_at IS NULL;
    INSERT INTO job_ends (job_id, claim_token, result, saved_gpu_s) VALUES (v_job, v_token, CAST(p_result AS json), NULL);
    RETURN 'Complete';
END
$$;

CREATE FUNCTION task_face_fail(p_job text, p_token bigint, p_error text) RETURNS text AS $$
DECLARE
    v_job text;
    v_status text;
    v_token bigint;
    v_worker text;
BEGIN
    SELECT j.job_id, j.claim_token, j.status, COALESCE(j.worker_id, j.last_worker_id)
    INTO v_job, v_token, v_status, v_worker
    FROM job_states j WHERE j.job_id = p_job FOR UPDATE;
    PERFORM task_face_allow(v_worker);
    IF v_job IS NULL THEN
        RAISE EXCEPTION USING MESSAGE = LEFT(CONCAT('herdsman: there is no task ', COALESCE(p_job, 'NULL')), 128);
    END IF;
    IF v_status NOT IN ('claimed', 'running') OR COALESCE(p_token, v_token) <> v_token THEN
        RAISE EXCEPTION USING MESSAGE = LEFT(CONCAT('herdsman: task ', p_job, ' is ', task_face_status(v_status),
            ' with claim ', v_token, ', you cannot fail it'), 128);
    END IF;
    RETURN task_face_end(v_job, v_token, 'job_error', p_error, CONCAT('sql:', v_worker));
END
$$;

-- Keep the worker and what it holds alive together; FALSE for an unknown worker and for one that is to stop.
CREATE FUNCTION task_face_beat(p_worker text, p_total double precision, p_used double precision, p_ttl double precision)
RETURNS boolean AS $$
DECLARE
    v_now timestamptz;
    v_pool text;
    v_worker text := p_worker;
BEGIN
    PERFORM task_face_allow(v_worker);
    SELECT w.pool INTO v_pool FROM workers w
    WHERE w.id = p_worker AND w.status IN ('active', 'spawning', 'terminating') FOR NO KEY UPDATE;
    IF v_pool IS NULL THEN RETURN FALSE; END IF;
    v_now := clock_timestamp();
    UPDATE workers SET last_heartbeat = v_now
    WHERE id = v_worker AND status IN ('spawning', 'active', 'terminating');
    IF p_total IS NOT NULL THEN
        UPDATE workers w SET
            metadata = w.metadata || jsonb_build_object(
                'vram_total_mb', p_total, 'vram_used_mb', p_used, 'vram_timestamp',
                to_char(v_now AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
            ),
            vram_at = v_now
        WHERE w.id = p_worker;
    END IF;
    UPDATE job_states j SET claim_expires_at = v_now + p_ttl * INTERVAL '1 second'
    WHERE j.worker_id = p_worker AND j.status IN ('claimed', 'running');
    RETURN TRUE;
END
$$;

-- Take back what a lost worker holds; how many tasks that were.
CREATE FUNCTION task_face_reset(p_worker text) RETURNS bigint AS $$
DECLARE
    v_count bigint := 0;
    v_job text;
    v_token bigint;
BEGIN
    LOOP
        SELECT j.job_id, j.claim_token INTO v_job, v_token
        FROM job_states j WHERE j.worker_id = p_worker LIMIT 1 FOR UPDATE;
        IF v_job IS NULL THEN RETURN v_count; END IF;
        PERFORM task_face_end(v_job, v_token, 'worker_lost', 'the worker was given up while it held the job', 'sql:reset');
        v_count := v_count + 1;
    END LOOP;
END
$$;

CREATE FUNCTION func_claim_available_task(worker_id_param text, claim_ttl_sec double precision DEFAULT 30) RETURNS SETOF task_row AS $$
DECLARE
    v_job text;
    v_row task_row;
BEGIN
    v_job := task_face_claim($1, LEAST(COALESCE(claim_ttl_sec, 30), 3600));
    FOR v_row IN SELECT {task}, j.claim_token FROM orchestrator_jobs j WHERE j.job_id = v_job LOOP
        RETURN NEXT v_row;
    END LOOP;
END
$$;

CREATE FUNCTION claim_task(worker_id text, claim_ttl_sec double precision DEFAULT 30) RETURNS SETOF task_row AS $$
DECLARE
    v_job text;
    v_row task_row;
BEGIN
    v_job := task_face_claim($1, LEAST(COALESCE(claim_ttl_sec, 30), 3600));
    FOR v_row IN SELECT {task}, j.claim_token FROM orchestrator_jobs j WHERE j.job_id = v_job LOOP
        RETURN NEXT v_row;
    END LOOP;
END
$$;

CREATE FUNCTION mark_task_complete(task_id text, result jsonb DEFAULT NULL, claim_token bigint DEFAULT NULL) RETURNS text AS $$
BEGIN RETURN task_face_complete($1, $3, CAST($2 AS text)); END
$$;

CREATE FUNCTION func_mark_task_complete(task_id text, result jsonb DEFAULT NULL, claim_token bigint DEFAULT NULL) RETURNS text AS $$
BEGIN RETURN task_face_complete($1, $3, CAST($2 AS text)); END
$$;

CREATE FUNCTION mark_task_failed(task_id text, error_message text DEFAULT NULL, claim_token bigint DEFAULT NULL) RETURNS text AS $$
BEGIN RETURN task_face_fail($1, $3, $2); END
$$;

CREATE FUNCTION func_mark_task_failed(task_id text, error_message text DEFAULT NULL, claim_token bigint DEFAULT NULL) RETURNS text AS $$
BEGIN RETURN task_face_fail($1, $3, $2); END
$$;

CREATE FUNCTION func_update_worker_heartbeat(
    worker_id_param text,
    vram_total_mb_param double precision DEFAULT NULL,
    vram_used_mb_param double precision DEFAULT NULL,
    claim_ttl_sec double precision DEFAULT 30
) RETURNS boolean AS $$
BEGIN RETURN task_face_beat($1, $2, $3, LEAST(COALESCE(claim_ttl_sec, 30), 3600)); END
$$;

CREATE FUNCTION func_reset_orphaned_tasks(worker_ids text[]) RETURNS integer AS $$
BEGIN
    RETURN (
        SELECT COALESCE(SUM(task_face_reset(lost.named)), 0)
        FROM (SELECT DISTINCT named FROM unnest($1) named ORDER BY named) lost
    );
END
$$;

CREATE FUNCTION func_get_tasks_by_status(status text) RETURNS SETOF task_row AS $$
DECLARE
    v_states text[] := CASE $1
        WHEN 'Queued' THEN ARRAY['scheduled', 'pending']
        WHEN 'In Progress' THEN ARRAY['claimed', 'running']
        WHEN 'Complete' THEN ARRAY['done']
        WHEN 'Error' THEN ARRAY['failed']
        WHEN 'Failed' THEN ARRAY['dead_letter']
        WHEN 'Cancelled' THEN ARRAY['cancelled']
        WHEN 'Running' THEN ARRAY['claimed', 'running']
    END;
    v_row task_row;
BEGIN
    IF v_states IS NULL THEN
        RAISE EXCEPTION USING MESSAGE = CONCAT('herdsman: ', COALESCE($1, 'NULL'), ' is no status of a task:',
            ' choose from Queued, In Progress, Complete, Error, Failed, Cancelled, Running');
    END IF;
    FOR v_row IN
        SELECT {task}, j.claim_token FROM orchestrator_jobs j WHERE j.status = ANY (v_states)
        ORDER BY j.created_at, j.job_id LIMIT 1000
    LOOP
        RETURN NEXT v_row;
    END LOOP;
END
$$;
