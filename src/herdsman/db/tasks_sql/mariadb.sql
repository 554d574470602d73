-- The view `tasks` and its routines on MariaDB: functions where one value comes back, procedures where rows do.
-- docs/reference/tasks.md explains them.
--
-- __init__.py creates each routine as MODIFIES SQL DATA SQL SECURITY DEFINER. {task} stands for the columns of the view,
-- {name} and {text} for texts that are compared byte by byte. Limits and delays are the defaults of JobPolicy: a function
-- cannot read the settings of a process. The UPDATEs are those of the commands. tests/unit/test_tasks_sql.py compares both.
--
-- A SELECT INTO that finds nothing leaves the variable as it was, and the handler for NOT FOUND keeps it from being a
-- warning. A function is one statement, and so one transaction, whatever autocommit says.

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

CREATE FUNCTION task_face_status(p_state {name}) RETURNS {name} AS $$
RETURN CASE p_state
    WHEN 'scheduled' THEN 'Queued'
    WHEN 'pending' THEN 'Queued'
    WHEN 'claimed' THEN 'In Progress'
    WHEN 'running' THEN 'In Progress'
    WHEN 'done' THEN 'Complete'
    WHEN 'failed' THEN 'Error'
    WHEN 'dead_letter' THEN 'Failed'
    WHEN 'cancelled' THEN 'Cancelled'
END
$$;

-- End a claim without a result, by the rules of the commands; the status that the task has then.
CREATE FUNCTION task_face_end(p_job {name}, p_token bigint, p_kind {name}, p_error {text}, p_actor {name})
RETURNS {name} AS $$
BEGIN
    DECLARE v_actor {name} DEFAULT p_actor;
    DECLARE v_base double;
    DECLARE v_cancel datetime(6);
    DECLARE v_cap double;
    DECLARE v_error {text} DEFAULT LEFT(p_error, 8192);
    DECLARE v_failure_class {name} DEFAULT p_kind;
    DECLARE v_finished datetime(6);
    DECLARE v_interruptions bigint;
    DECLARE v_job {name} DEFAULT p_job;
    DECLARE v_max_attempts bigint;
    DECLARE v_now datetime(6) DEFAULT UTC_TIMESTAMP(6);
    DECLARE v_out_of_memory bigint;
    DECLARE v_place bigint;
    DECLARE v_priority bigint;
    DECLARE v_reason {name};
    DECLARE v_run_at datetime(6);
    DECLARE v_spent bigint;
    DECLARE v_status {name};
    DECLARE v_token bigint DEFAULT p_token;
    DECLARE v_worker_losses bigint;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;

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
    SET v_spent = v_spent - v_interruptions;

    IF v_cancel IS NOT NULL THEN
        SET v_status = 'cancelled', v_reason = 'cancelled';
    ELSEIF p_kind = 'worker_lost' AND v_worker_losses >= 2 THEN
        SET v_status = 'dead_letter', v_reason = 'kills_workers';
    ELSEIF v_spent >= v_max_attempts THEN
        SET v_status = 'dead_letter', v_reason = 'attempts_exhausted';
    ELSEIF p_kind = 'worker_lost' THEN
        SET v_status = 'pending', v_reason = 'claim_expired', v_run_at = v_now;
    ELSE
        SET v_status = 'failed', v_reason = 'job_error';
        SET v_run_at = TIMESTAMPADD(MICROSECOND, ROUND(
            LEAST(v_cap, v_base * POWER(2e0, LEAST(GREATEST(v_spent - 1, 0), 62))) * (1 + 0.5 * RAND()) * 1000000
        ), v_now);
    END IF;
    IF v_status IN ('failed', 'pending') THEN
        SET v_place = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', v_run_at) - v_priority * 60000000;
    ELSE
        SET v_finished = v_now;
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
CREATE FUNCTION task_face_claim(p_worker {name}, p_ttl double) RETURNS {name} AS $$
BEGIN
    DECLARE v_actor {name};
    DECLARE v_busy {name};
    DECLARE v_deadline datetime(6);
    DECLARE v_expires datetime(6);
    DECLARE v_job {name};
    DECLARE v_now datetime(6);
    DECLARE v_pool {name};
    DECLARE v_slot bigint DEFAULT 0;
    DECLARE v_timeout double;
    DECLARE v_token bigint;
    DECLARE v_worker {name} DEFAULT p_worker;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;

    SELECT w.pool INTO v_pool FROM workers w WHERE w.id = p_worker AND w.status = 'active' FOR UPDATE;
    -- A locking read sees what was committed before it, whatever the isolation of the caller.
    SELECT j.job_id INTO v_busy FROM job_states j WHERE j.worker_id = p_worker LIMIT 1 LOCK IN SHARE MODE;
    IF v_pool IS NULL OR v_busy IS NOT NULL THEN RETURN NULL; END IF;

    SELECT j.job_id, j.claim_token, j.timeout_s INTO v_job, v_token, v_timeout
    FROM job_states j
    WHERE j.status = 'pending' AND j.pool = v_pool AND j.concurrency_key IS NULL
        AND NOT EXISTS (
            SELECT 1 FROM orchestrator_holds h
            WHERE (h.scope = 'all' OR h.scope = CONCAT('pool:', v_pool) OR h.scope = CONCAT('type:', j.type))
                AND (h.until IS NULL OR h.until > UTC_TIMESTAMP(6))
        )
    ORDER BY j.place LIMIT 1
    FOR UPDATE SKIP LOCKED;
    IF v_job IS NULL THEN RETURN NULL; END IF;

    SET v_now = UTC_TIMESTAMP(6);
    SET v_actor = CONCAT('sql:', v_worker);
    SET v_expires = TIMESTAMPADD(MICROSECOND, ROUND(p_ttl * 1000000), v_now);
    SET v_deadline = TIMESTAMPADD(MICROSECOND, ROUND(v_timeout * 1000000), v_now);
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
CREATE FUNCTION task_face_complete(p_job {name}, p_token bigint, p_result {text}) RETURNS {name} AS $$
BEGIN
    DECLARE v_actor {name};
    DECLARE v_cancel datetime(6);
    DECLARE v_job {name};
    DECLARE v_now datetime(6);
    DECLARE v_said {name};
    DECLARE v_status {name};
    DECLARE v_token bigint;
    DECLARE v_worker {name};
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;

    SELECT j.job_id, j.claim_token, j.status, COALESCE(j.worker_id, j.last_worker_id), j.cancel_requested_at
    INTO v_job, v_token, v_status, v_worker, v_cancel
    FROM job_states j WHERE j.job_id = p_job FOR UPDATE;
    IF v_job IS NULL THEN
        SET v_said = LEFT(CONCAT('herdsman: there is no task ', COALESCE(p_job, 'NULL')), 128);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_said;
    END IF;
    IF v_status NOT IN ('claimed', 'running', 'done') OR COALESCE(p_token, v_token) <> v_token THEN
        SET v_said = LEFT(CONCAT('herdsman: task ', p_job, ' is ', task_face_status(v_status),
            ' with claim ', v_token, ', you cannot complete it'), 128);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_said;
    END IF;
    IF v_status = 'done' THEN RETURN 'Complete'; END IF;
    SET v_actor = CONCAT('sql:', v_worker);
    IF v_cancel IS NOT NULL THEN
        RETURN task_face_end(v_job, v_token, 'interrupted', 'cancelled; the result came too late', v_actor);
    END IF;
    IF OCTET_LENGTH(p_result) > 1048576 THEN
        SET v_said = LEFT(CONCAT('herdsman: the result of task ', p_job,
            ' has more than 1048576 bytes: store it elsewhere'), 128);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_said;
    END IF;

    SET v_now = UTC_TIMESTAMP(6);
    UPDATE job_states SET
        claim_expires_at = NULL, deadline_at = NULL, finished_at = v_now, version = version + 1, updated_at = v_now,
        status = 'done', reason = 'completed', actor = v_actor, worker_id = NULL
    WHERE job_id = v_job AND claim_token = v_token AND last_worker_id = coalesce(v_worker, last_worker_id)
        AND status IN ('claimed', 'running') AND cancel_requested_at IS NULL;
    INSERT INTO job_ends (job_id, claim_token, result, saved_gpu_s) VALUES (v_job, v_token, p_result, NULL);
    RETURN 'Complete';
END
$$;

CREATE FUNCTION task_face_fail(p_job {name}, p_token bigint, p_error {text}) RETURNS {name} AS $$
BEGIN
    DECLARE v_job {name};
    DECLARE v_said {name};
    DECLARE v_status {name};
    DECLARE v_token bigint;
    DECLARE v_worker {name};
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;

    SELECT j.job_id, j.claim_token, j.status, COALESCE(j.worker_id, j.last_worker_id)
    INTO v_job, v_token, v_status, v_worker
    FROM job_states j WHERE j.job_id = p_job FOR UPDATE;
    IF v_job IS NULL THEN
        SET v_said = LEFT(CONCAT('herdsman: there is no task ', COALESCE(p_job, 'NULL')), 128);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_said;
    END IF;
    IF v_status NOT IN ('claimed', 'running') OR COALESCE(p_token, v_token) <> v_token THEN
        SET v_said = LEFT(CONCAT('herdsman: task ', p_job, ' is ', task_face_status(v_status),
            ' with claim ', v_token, ', you cannot fail it'), 128);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_said;
    END IF;
    RETURN task_face_end(v_job, v_token, 'job_error', p_error, CONCAT('sql:', v_worker));
END
$$;

-- Keep the worker and what it holds alive together; FALSE for an unknown worker and for one that is to stop.
CREATE FUNCTION task_face_beat(p_worker {name}, p_total double, p_used double, p_ttl double) RETURNS boolean AS $$
BEGIN
    DECLARE v_now datetime(6);
    DECLARE v_pool {name};
    DECLARE v_worker {name} DEFAULT p_worker;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;

    SELECT w.pool INTO v_pool FROM workers w
    WHERE w.id = p_worker AND w.status IN ('active', 'spawning', 'terminating') FOR UPDATE;
    IF v_pool IS NULL THEN RETURN FALSE; END IF;
    SET v_now = UTC_TIMESTAMP(6);
    UPDATE workers SET last_heartbeat = v_now
    WHERE id = v_worker AND status IN ('spawning', 'active', 'terminating');
    IF p_total IS NOT NULL THEN
        UPDATE workers w SET
            metadata = JSON_SET(
                w.metadata, '$.vram_total_mb', p_total, '$.vram_used_mb', p_used,
                '$.vram_timestamp', CONCAT(REPLACE(v_now, ' ', 'T'), '+00:00')
            ),
            vram_at = v_now
        WHERE w.id = p_worker;
    END IF;
    UPDATE job_states j SET claim_expires_at = TIMESTAMPADD(MICROSECOND, ROUND(p_ttl * 1000000), v_now)
    WHERE j.worker_id = p_worker AND j.status IN ('claimed', 'running');
    RETURN TRUE;
END
$$;

-- Take back what a lost worker holds; how many tasks that were.
CREATE FUNCTION task_face_reset(p_worker {name}) RETURNS bigint AS $$
BEGIN
    DECLARE v_count bigint DEFAULT 0;
    DECLARE v_job {name};
    DECLARE v_status {name};
    DECLARE v_token bigint;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;

    LOOP
        SET v_job = NULL;
        SELECT j.job_id, j.claim_token INTO v_job, v_token
        FROM job_states j WHERE j.worker_id = p_worker LIMIT 1 FOR UPDATE;
        IF v_job IS NULL THEN RETURN v_count; END IF;
        SET v_status = task_face_end(
            v_job, v_token, 'worker_lost', 'the worker was given up while it held the job', 'sql:reset'
        );
        SET v_count = v_count + 1;
    END LOOP;
END
$$;

CREATE PROCEDURE func_claim_available_task(worker_id_param {name}) AS $$
BEGIN
    DECLARE v_job {name};
    -- The usual REPEATABLE READ would lock the gaps between jobs, and claimers would wait for one another.
    IF @@in_transaction = 0 THEN SET TRANSACTION ISOLATION LEVEL READ COMMITTED; END IF;
    SET v_job = task_face_claim(worker_id_param, 30);
    SELECT {task}, j.claim_token AS claim_token FROM orchestrator_jobs j WHERE j.job_id = v_job;
END
$$;

CREATE PROCEDURE claim_task(worker_id {name}) AS $$
BEGIN
    DECLARE v_job {name};
    -- The usual REPEATABLE READ would lock the gaps between jobs, and claimers would wait for one another.
    IF @@in_transaction = 0 THEN SET TRANSACTION ISOLATION LEVEL READ COMMITTED; END IF;
    SET v_job = task_face_claim(worker_id, 30);
    SELECT {task}, j.claim_token AS claim_token FROM orchestrator_jobs j WHERE j.job_id = v_job;
END
$$;

CREATE FUNCTION mark_task_complete(task_id {name}, result {text}) RETURNS {name} AS $$
RETURN task_face_complete(task_id, NULL, result)
$$;

CREATE FUNCTION func_mark_task_complete(task_id {name}, result {text}) RETURNS {name} AS $$
RETURN task_face_complete(task_id, NULL, result)
$$;

CREATE FUNCTION mark_task_failed(task_id {name}, error_message {text}) RETURNS {name} AS $$
RETURN task_face_fail(task_id, NULL, error_message)
$$;

CREATE FUNCTION func_mark_task_failed(task_id {name}, error_message {text}) RETURNS {name} AS $$
RETURN task_face_fail(task_id, NULL, error_message)
$$;

CREATE FUNCTION func_update_worker_heartbeat(
    worker_id_param {name}, vram_total_mb_param double, vram_used_mb_param double
) RETURNS boolean AS $$
RETURN task_face_beat(worker_id_param, vram_total_mb_param, vram_used_mb_param, 30)
$$;

-- MariaDB has no arrays: the names come as a JSON array.
CREATE FUNCTION func_reset_orphaned_tasks(worker_ids {text}) RETURNS bigint AS $$
BEGIN
    DECLARE v_next, v_count bigint DEFAULT 0;
    WHILE v_next < JSON_LENGTH(worker_ids) DO
        SET v_count = v_count + task_face_reset(JSON_VALUE(worker_ids, CONCAT('$[', v_next, ']')));
        SET v_next = v_next + 1;
    END WHILE;
    RETURN v_count;
END
$$;

CREATE PROCEDURE func_get_tasks_by_status(status {name}) AS $$
BEGIN
    DECLARE v_said varchar(128);
    DECLARE v_state, v_other {name};
    CASE status
        WHEN 'Queued' THEN SET v_state = 'pending', v_other = 'scheduled';
        WHEN 'In Progress' THEN SET v_state = 'claimed', v_other = 'running';
        WHEN 'Complete' THEN SET v_state = 'done';
        WHEN 'Error' THEN SET v_state = 'failed';
        WHEN 'Failed' THEN SET v_state = 'dead_letter';
        WHEN 'Cancelled' THEN SET v_state = 'cancelled';
        WHEN 'Running' THEN SET v_state = 'claimed', v_other = 'running';
        ELSE
            SET v_said = LEFT(CONCAT('herdsman: ', COALESCE(status, 'NULL'), ' is no status of a task'), 128);
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_said;
    END CASE;
    SELECT {task}, j.claim_token AS claim_token
    FROM orchestrator_jobs j WHERE j.status IN (v_state, COALESCE(v_other, v_state))
    ORDER BY j.created_at, j.job_id LIMIT 1000;
END
$$;
