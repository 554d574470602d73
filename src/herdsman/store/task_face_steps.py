"""What the functions of the tasks face do to a row: the same statements and the same rules as the commands.

Each step is the body of one inner routine, in SQL that PostgreSQL and MariaDB read alike; `p_…` are its
parameters, `v_…` its variables.
"""

from sqlalchemy import Dialect

from herdsman.core.faces import TaskStatus
from herdsman.core.model import JobPolicy
from herdsman.core.reasons import Reason
from herdsman.core.retry import FailureClass
from herdsman.core.states import HELD, JOB, SERVING, JobState, WorkerState
from herdsman.store import claiming, claims, workers
from herdsman.store.schema import in_states
from herdsman.store.task_face_rows import status_name
from herdsman.store.task_face_words import Words, statement
from herdsman.store.triggers import MARK

POLICY = JobPolicy()
"""A function cannot read the settings of a process, so it lives by the defaults."""

LONGEST_ERROR = 8192
LONGEST_MESSAGE = 128
"""What MariaDB carries."""

_LOST = f"p_kind = '{FailureClass.WORKER_LOST}'"
_IS_HELD = in_states(HELD, "j.status")


def claim(say: Words, dialect: Dialect) -> str:
    """The next job of the worker's pool, for a worker that is active and holds none; its id, or NULL.

    How many jobs of a key may run is in the policy, which a function does not read: they are left to the API.
    """
    expires, deadline = later(say, "p_ttl"), later(say, "v_timeout")
    return f"""
        SELECT p_worker, 0 INTO v_worker, v_slot;
        {say.allow}
        SELECT w.pool INTO v_pool FROM workers w
            WHERE w.id = p_worker AND w.status = '{WorkerState.ACTIVE}' {say.free};
        SELECT j.job_id INTO v_busy FROM orchestrator_jobs j
            WHERE j.worker_id = p_worker LIMIT 1 {say.current};
        IF v_pool IS NULL OR v_busy IS NOT NULL THEN RETURN NULL; END IF;
        SELECT j.job_id, j.claim_token, j.timeout_s INTO v_job, v_token, v_timeout FROM orchestrator_jobs j
            WHERE j.status = '{JobState.PENDING}' AND j.pool = v_pool
            AND j.concurrency_key IS NULL AND NOT EXISTS ({_held_up(say)})
            ORDER BY j.place LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF v_job IS NULL THEN RETURN NULL; END IF;
        SELECT {say.now}, CONCAT('sql:', v_worker) INTO v_now, v_actor;
        SELECT {expires}, {deadline} INTO v_expires, v_deadline;
        {statement(claiming.CLAIM, dialect)};
        RETURN v_job;
    """


def _held_up(say: Words) -> str:
    """What somebody has paused: everything, the pool, or the type."""
    scopes = "h.scope = 'all' OR h.scope = CONCAT('pool:', v_pool) OR h.scope = CONCAT('type:', j.type)"
    return f"SELECT 1 FROM orchestrator_holds h WHERE ({scopes}) AND (h.until IS NULL OR h.until > {say.now})"


def complete(say: Words, dialect: Dialect) -> str:
    """Store the result; a job whose cancellation was asked for is cancelled instead (J7)."""
    late = f"'{FailureClass.INTERRUPTED}', 'cancelled; the result came too late', v_actor"
    limit = POLICY.max_result_bytes
    return f"""
        {_held(say, "complete", unless=f"v_status = '{JobState.DONE}'")}
        IF v_status = '{JobState.DONE}' THEN RETURN '{TaskStatus.COMPLETE}'; END IF;
        IF v_cancel IS NOT NULL THEN RETURN task_face_end(v_job, v_token, {late}); END IF;
        IF OCTET_LENGTH(p_result) > {limit} THEN
            {_refuse(say, f"'the result of task ', p_job, ' has more than {limit} bytes: store it elsewhere'")}
        END IF;
        SELECT {say.now} INTO v_now;
        {statement(claims.COMPLETE, dialect, result=say.json.format(text="p_result"))};
        RETURN '{TaskStatus.COMPLETE}';
    """


def fail(say: Words, _dialect: Dialect) -> str:
    return f"""
        {_held(say, "fail", unless="1 = 0")}
        RETURN task_face_end(v_job, v_token, '{FailureClass.JOB_ERROR}', p_error, v_actor);
    """


def end(say: Words, dialect: Dialect) -> str:
    """The end of a claim without a result, as core/ending.py has it; the status that the task has then."""
    retry = POLICY.retry
    doublings = "LEAST(GREATEST(v_spent - 1, 0), 62)"
    plain = f"LEAST(v_cap, v_base * POWER(2e0, {doublings}))"
    due = later(say, f"{plain} * (1 + {retry.jitter} * {say.random})")
    step_us = int(POLICY.priority_step.total_seconds() * 1_000_000)
    requeued = in_states((JobState.FAILED, JobState.PENDING), "v_status")
    base = f"COALESCE(NULLIF(j.retry_base_s, 0), {retry.base.total_seconds()})"
    cap = f"COALESCE(NULLIF(j.retry_cap_s, 0), GREATEST({base}, {retry.cap.total_seconds()}))"
    return f"""
        SELECT {say.now}, p_job, p_token, p_kind, LEFT(p_error, {LONGEST_ERROR}), p_actor
            INTO v_now, v_job, v_token, v_failure_class, v_error, v_actor;
        SELECT j.interruptions + {_one_if(f"p_kind = '{FailureClass.INTERRUPTED}'")},
            j.worker_losses + {_one_if(_LOST)}, j.out_of_memory, j.max_attempts, {base}, {cap},
            j.priority, j.place, j.run_at, j.cancel_requested_at, j.attempts
            INTO v_interruptions, v_worker_losses, v_out_of_memory, v_max_attempts, v_base, v_cap,
            v_priority, v_place, v_run_at, v_cancel, v_spent
            FROM orchestrator_jobs j WHERE j.job_id = p_job AND j.claim_token = p_token AND {_IS_HELD} FOR UPDATE;
        SELECT v_spent - v_interruptions INTO v_spent;
        SELECT {_outcome()} INTO v_status, v_reason;
        SELECT CASE v_status WHEN '{JobState.FAILED}' THEN {due}
            WHEN '{JobState.PENDING}' THEN v_now ELSE v_run_at END INTO v_run_at;
        SELECT CASE WHEN {requeued} THEN {say.micros.format(at="v_run_at")} - v_priority * {step_us}
            ELSE v_place END, CASE WHEN {in_states(JOB.terminal, "v_status")} THEN v_now END
            INTO v_place, v_finished;
        {statement(claims.END, dialect)};
        RETURN {status_name("v_status")};
    """


def beat(say: Words, dialect: Dialect) -> str:
    """Keep the worker and what it holds alive together; FALSE for one that nobody knows or that is to stop."""
    return f"""
        SELECT p_worker INTO v_worker;
        {say.allow}
        SELECT w.pool INTO v_pool FROM workers w
            WHERE w.id = p_worker AND {in_states(SERVING, "w.status")} {say.free};
        IF v_pool IS NULL THEN RETURN FALSE; END IF;
        SELECT {say.now} INTO v_now;
        {statement(workers.BEAT, dialect, id="v_worker")};
        IF p_total IS NOT NULL THEN
            UPDATE workers w SET metadata = {say.noted}, vram_at = v_now WHERE w.id = p_worker;
        END IF;
        UPDATE orchestrator_jobs j SET claim_expires_at = {later(say, "p_ttl")}
            WHERE j.worker_id = p_worker AND {_IS_HELD};
        RETURN TRUE;
    """


def reset(say: Words, _dialect: Dialect) -> str:
    """Take back what a lost worker holds; how many tasks that were."""
    lost = f"'{FailureClass.WORKER_LOST}', 'the worker was given up while it held the job', 'sql:reset'"
    # MariaDB leaves a variable as it was when there is no row.
    find = (
        "SELECT NULL INTO v_job; SELECT j.job_id, j.claim_token INTO v_job, v_token"
        " FROM orchestrator_jobs j WHERE j.worker_id = p_worker LIMIT 1 FOR UPDATE"
    )
    return f"""
        SELECT 0 INTO v_spent;
        {find};
        WHILE v_job IS NOT NULL {say.loop[0]}
            SELECT task_face_end(v_job, v_token, {lost}) INTO v_status;
            SELECT v_spent + 1 INTO v_spent;
            {find};
        {say.loop[1]};
        RETURN v_spent;
    """


def later(say: Words, seconds: str) -> str:
    return say.later.format(at="v_now", seconds=seconds)


def _held(say: Words, wish: str, *, unless: str) -> str:
    """Lock the task and see that its claim is good: held, and of the token that was named, if one was (J3)."""
    not_held = f"NOT ({in_states(HELD, 'v_status')}) AND NOT ({unless})"
    stale = f"'task ', p_job, ' is ', {status_name('v_status')}, ' with claim ', v_token, ', you cannot {wish} it'"
    return f"""
        SELECT j.job_id, j.claim_token, j.status, COALESCE(j.worker_id, j.last_worker_id), j.cancel_requested_at
            INTO v_job, v_token, v_status, v_worker, v_cancel
            FROM orchestrator_jobs j WHERE j.job_id = p_job FOR UPDATE;
        {say.allow}
        IF v_job IS NULL THEN {_refuse(say, "'there is no task ', COALESCE(p_job, 'NULL')")} END IF;
        IF {not_held} OR COALESCE(p_token, v_token) <> v_token THEN {_refuse(say, stale)} END IF;
        SELECT CONCAT('sql:', v_worker) INTO v_actor;
    """


def _refuse(say: Words, words: str) -> str:
    return f"SELECT LEFT(CONCAT('{MARK}', {words}), {LONGEST_MESSAGE}) INTO v_said; {say.refuse};"


def _one_if(condition: str) -> str:
    return f"CASE WHEN {condition} THEN 1 ELSE 0 END"


def _outcome() -> str:
    """What the job becomes, and why: two columns."""
    cases = (
        ("v_cancel IS NOT NULL", JobState.CANCELLED, Reason.CANCELLED),
        (
            f"{_LOST} AND v_worker_losses >= {POLICY.retry.max_worker_losses}",
            JobState.DEAD_LETTER,
            Reason.KILLS_WORKERS,
        ),
        ("v_spent >= v_max_attempts", JobState.DEAD_LETTER, Reason.ATTEMPTS_EXHAUSTED),
        (_LOST, JobState.PENDING, Reason.CLAIM_EXPIRED),
        ("1 = 1", JobState.FAILED, Reason.JOB_ERROR),
    )
    states = " ".join(f"WHEN {when} THEN '{state}'" for when, state, _ in cases)
    reasons = " ".join(f"WHEN {when} THEN '{reason}'" for when, _, reason in cases)
    return f"CASE {states} END, CASE {reasons} END"
