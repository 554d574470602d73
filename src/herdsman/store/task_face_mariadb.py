"""The tasks face on MariaDB: functions where one value comes back, procedures where rows do."""

from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from herdsman.core.errors import StoreMisconfigured
from herdsman.core.faces import STATUS_NAMES, states_of
from herdsman.store.schema import in_states
from herdsman.store.task_face_routines import (
    INNER,
    MARK,
    MOST_LISTED,
    TTL_S,
    Routine,
    declared,
    one_line,
    parameters,
)
from herdsman.store.task_face_rows import row_select
from herdsman.store.task_face_words import MARIADB

_DENIED = (1044, 1370)

_NAME, _TEXT = MARIADB.types["name"], MARIADB.types["text"]


def routines(connection: Connection) -> list[Routine]:
    """Every routine of the face, the inner ones first."""
    inner = [_inner(connection, name) for name in INNER]
    return [*inner, *_claims(), *_ends(), _heartbeat(), _reset(), _by_status()]


def install(connection: Connection) -> None:
    there, wanted = installed(connection), routines(connection)
    for name in there.keys() - {routine.name for routine in wanted}:
        kind, comment = there[name]
        if comment.startswith(f"{MARK} "):
            connection.exec_driver_sql(f"DROP {kind} {name}")
    for routine in wanted:
        kind, comment = there.get(routine.name, (routine.kind, f"{MARK} "))
        if not comment.startswith(f"{MARK} "):
            raise StoreMisconfigured(
                f"the database has a {kind.lower()} {routine.name} that is not ours: drop it, or give Herdsman"
                " a database of its own"
            )
        if comment != routine.comment:
            _put(connection, routine)


def missing(connection: Connection) -> list[str]:
    """MariaDB shows a user only the routines that it may run, so what is not seen may well be there."""
    there = installed(connection)
    wanted = {routine.name: (routine.kind, routine.comment) for routine in routines(connection)}
    return [name for name, seen in there.items() if name in wanted and seen != wanted[name]]


def installed(connection: Connection) -> dict[str, tuple[str, str]]:
    """The routines of this database, with their kinds and comments."""
    found = connection.execute(
        text(
            "SELECT routine_name, routine_type, routine_comment FROM information_schema.routines"
            " WHERE routine_schema = DATABASE()"
        )
    )
    return {name: (kind, comment) for name, kind, comment in found}


def _put(connection: Connection, routine: Routine) -> None:
    words = f"CREATE OR REPLACE {routine.kind} {routine.name}{routine.head} MODIFIES SQL DATA SQL SECURITY DEFINER"
    try:
        connection.exec_driver_sql(f"{words} COMMENT '{routine.comment}' {routine.body}")
    except OperationalError as error:
        if error.orig is None or error.orig.args[0] not in _DENIED:
            raise
        raise StoreMisconfigured(
            f"this user may not make the function {routine.name} of the tasks face: grant it CREATE ROUTINE and"
            " ALTER ROUTINE on the database, then run herdsman db upgrade"
        ) from error


def _function(name: str, params: str, returns: str, body: str) -> Routine:
    return Routine(name=name, kind="FUNCTION", head=f"({params}) RETURNS {returns}", body=one_line(body))


def _procedure(name: str, params: str, body: str) -> Routine:
    return Routine(name=name, kind="PROCEDURE", head=f"({params})", body=one_line(body))


def _inner(connection: Connection, name: str) -> Routine:
    params, returns, step = INNER[name]
    body = step(MARIADB, connection.dialect)
    # A search that finds nothing is no accident here: the variables say so.
    quiet = "DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;"
    whole = f"BEGIN {declared(MARIADB, body)} {quiet} {body} END"
    return _function(name, parameters(MARIADB, params), MARIADB.types[returns], whole)


def _claims() -> list[Routine]:
    """The work is a function's, so that it is one statement and thereby one transaction, whatever autocommit says."""
    named = {"func_claim_available_task": "worker_id_param", "claim_task": "worker_id"}
    return [_procedure(name, f"{worker} {_NAME}", _claim_of(worker)) for name, worker in named.items()]


def _claim_of(worker: str) -> str:
    # The usual REPEATABLE READ would lock the gaps between jobs, and claimers would wait for one another.
    return f"""
        BEGIN
            DECLARE v_job {_NAME};
            IF @@in_transaction = 0 THEN SET TRANSACTION ISOLATION LEVEL READ COMMITTED; END IF;
            SET v_job = task_face_claim({worker}, {TTL_S:g});
            {row_select(cast=False)} WHERE j.job_id = v_job;
        END
    """


def _ends() -> list[Routine]:
    complete = "RETURN task_face_complete(task_id, NULL, result)"
    fail = "RETURN task_face_fail(task_id, NULL, error_message)"
    return [
        *(
            _function(name, f"task_id {_NAME}, result {_TEXT}", _NAME, complete)
            for name in ("mark_task_complete", "func_mark_task_complete")
        ),
        *(
            _function(name, f"task_id {_NAME}, error_message {_TEXT}", _NAME, fail)
            for name in ("mark_task_failed", "func_mark_task_failed")
        ),
    ]


def _heartbeat() -> Routine:
    memory = ("vram_total_mb_param", "vram_used_mb_param")
    params = f"worker_id_param {_NAME}, {', '.join(f'{name} double' for name in memory)}"
    body = f"RETURN task_face_beat(worker_id_param, {', '.join(memory)}, {TTL_S:g})"
    return _function("func_update_worker_heartbeat", params, MARIADB.types["truth"], body)


def _reset() -> Routine:
    """MariaDB has no arrays: the names come as a JSON array."""
    body = """
        BEGIN
            DECLARE v_next, v_count bigint DEFAULT 0;
            WHILE v_next < JSON_LENGTH(worker_ids) DO
                SET v_count = v_count + task_face_reset(JSON_VALUE(worker_ids, CONCAT('$[', v_next, ']')));
                SET v_next = v_next + 1;
            END WHILE;
            RETURN v_count;
        END
    """
    return _function("func_reset_orphaned_tasks", f"worker_ids {_TEXT}", "bigint", body)


def _by_status() -> Routine:
    branches = " ELSEIF ".join(_branch(name) for name in STATUS_NAMES)
    body = f"""
        BEGIN
            DECLARE v_said varchar(128);
            IF {branches} ELSE
                SET v_said = LEFT(CONCAT('{MARK}: ', COALESCE(status, 'NULL'), ' is no status of a task'), 128);
                SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_said;
            END IF;
        END
    """
    return _procedure("func_get_tasks_by_status", f"status {_NAME}", body)


def _branch(name: str) -> str:
    chosen = in_states(states_of(name), "j.status")
    order = f"ORDER BY j.created_at, j.job_id LIMIT {MOST_LISTED}"
    return f"status = '{name}' THEN {row_select(cast=False)} WHERE {chosen} {order};"
