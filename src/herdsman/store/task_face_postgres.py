"""The tasks face in PL/pgSQL: how its functions are written, found, put in place and locked up."""

from collections.abc import Mapping

from sqlalchemy import Connection, text

from herdsman.core.errors import StoreMisconfigured
from herdsman.core.faces import STATUS_NAMES, states_of
from herdsman.store.task_face_routines import (
    INNER,
    LONGEST_TTL_S,
    MARK,
    MOST_LISTED,
    TTL_S,
    Routine,
    declared,
    one_line,
    parameters,
)
from herdsman.store.task_face_rows import ROW, ROW_TYPE, row_select
from herdsman.store.task_face_words import POSTGRES

WORKER_ROLE = "herdsman_worker"

_TTL = f"claim_ttl_sec double precision DEFAULT {TTL_S:g}"
_BOUNDED = f"LEAST(COALESCE(claim_ttl_sec, {TTL_S:g}), {LONGEST_TTL_S})"


def routines(connection: Connection) -> list[Routine]:
    """Every function of the face, the inner ones first."""
    inner = [_allow(), *(_inner(connection, name) for name in INNER)]
    return [*inner, *_claims(), *_ends(), _heartbeat(), _reset(), _by_status()]


def install(connection: Connection) -> None:
    """Put the functions in place. One that is replaced keeps the rights that were given on it."""
    _install_row_type(connection)
    there, wanted = installed(connection), routines(connection)
    for name in there.keys() - {routine.name for routine in wanted}:
        if there[name].startswith(f"{MARK} "):
            connection.exec_driver_sql(f"DROP FUNCTION {name}")
    for routine in wanted:
        if there.get(routine.name) != routine.comment:
            _put(connection, routine, there.get(routine.name))


def missing(connection: Connection) -> list[str]:
    there = installed(connection)
    return [routine.name for routine in routines(connection) if there.get(routine.name) != routine.comment]


def installed(connection: Connection) -> dict[str, str]:
    """The functions of this schema that are ours, or have a name of ours, with their comments."""
    found = connection.execute(
        text(
            "SELECT p.proname, COALESCE(obj_description(p.oid, 'pg_proc'), '') FROM pg_proc p"
            " JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = current_schema()"
        )
    )
    return {row[0]: row[1] for row in found}


def _put(connection: Connection, routine: Routine, there: str | None) -> None:
    if there is not None and not there.startswith(f"{MARK} "):
        raise StoreMisconfigured(
            f"the schema has a function {routine.name} that is not ours: drop it, or give Herdsman a schema of its own"
        )
    if there is not None and not there.startswith(routine.comment_of_head):
        connection.exec_driver_sql(f"DROP FUNCTION {routine.name}")
        there = None
    path = f"SET search_path = {_schema(connection)}, pg_temp"
    connection.exec_driver_sql(
        f"CREATE OR REPLACE FUNCTION {routine.name}{routine.head} LANGUAGE plpgsql"
        f" SECURITY DEFINER {path} AS $face${routine.body}$face$"
    )
    connection.exec_driver_sql(f"COMMENT ON FUNCTION {routine.name} IS '{routine.comment}'")
    if there is None:
        _lock_up(connection, routine.name)


def _lock_up(connection: Connection, name: str) -> None:
    """Nobody runs it but its owner, whatever the defaults of this database give away."""
    connection.exec_driver_sql(f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC")
    given = text(
        "SELECT DISTINCT quote_ident(r.rolname) FROM pg_proc p, aclexplode(p.proacl) a, pg_roles r"
        " WHERE p.oid = CAST(:name AS regproc) AND r.oid = a.grantee AND r.oid <> p.proowner"
    )
    for role in connection.scalars(given, {"name": name}).all():
        connection.exec_driver_sql(f"REVOKE ALL ON FUNCTION {name} FROM {role}")


def _schema(connection: Connection) -> str:
    name = connection.scalar(text("SELECT quote_ident(current_schema())"))
    assert isinstance(name, str), "the search path leads to no schema"
    return name


def _install_row_type(connection: Connection) -> None:
    """A type of its own: a function that returned rows of the view would keep the view from being replaced."""
    columns = ", ".join(f"{name} {kind}" for name, (_, kind) in ROW.items())
    shape = text(
        "SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, NULL), ', ' ORDER BY a.attnum)"
        " FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid JOIN pg_namespace n ON"
        " n.oid = t.typnamespace WHERE t.typname = :name AND n.nspname = current_schema()"
    )
    if connection.scalar(shape, {"name": ROW_TYPE}) != columns:
        connection.exec_driver_sql(f"DROP TYPE IF EXISTS {ROW_TYPE} CASCADE")
        connection.exec_driver_sql(f"CREATE TYPE {ROW_TYPE} AS ({columns})")


def _function(name: str, params: str, returns: str, body: str) -> Routine:
    return Routine(name=name, kind="FUNCTION", head=f"({params}) RETURNS {returns}", body=one_line(body))


def _inner(connection: Connection, name: str) -> Routine:
    params, returns, step = INNER[name]
    body = step(POSTGRES, connection.dialect)
    kind = POSTGRES.types[returns]
    return _function(name, parameters(POSTGRES, params), kind, f"{declared(POSTGRES, body)} BEGIN {body} END")


def _allow() -> Routine:
    """Whoever comes with a token of a worker acts for that worker alone; a worker must come with one (S1-28)."""
    claims = "NULLIF(current_setting('request.jwt.claims', true), '')"
    body = f"""
        DECLARE v_named text := CAST({claims} AS jsonb) ->> 'worker_id';
        BEGIN
            IF v_named IS NULL AND current_setting('role') <> '{WORKER_ROLE}' THEN RETURN; END IF;
            IF v_named = p_worker THEN RETURN; END IF;
            RAISE insufficient_privilege USING MESSAGE =
                '{MARK}: the token must carry the worker_id that it is used for';
        END
    """
    return _function("task_face_allow", "p_worker text", "void", body)


def _claims() -> list[Routine]:
    body = f"""
        DECLARE v_job text;
        BEGIN
            v_job := task_face_claim($1, {_BOUNDED});
            RETURN QUERY {row_select(cast=True)} WHERE j.job_id = v_job;
        END
    """
    named = {"func_claim_available_task": "worker_id_param", "claim_task": "worker_id"}
    return [
        _function(name, f"{worker} text, {_TTL}", f"SETOF {ROW_TYPE}", body) for name, worker in named.items()
    ]


def _ends() -> list[Routine]:
    claim = "claim_token bigint DEFAULT NULL"
    complete = "BEGIN RETURN task_face_complete($1, $3, CAST($2 AS text)); END"
    fail = "BEGIN RETURN task_face_fail($1, $3, $2); END"
    return [
        *(
            _function(name, f"task_id text, result jsonb DEFAULT NULL, {claim}", "text", complete)
            for name in ("mark_task_complete", "func_mark_task_complete")
        ),
        *(
            _function(name, f"task_id text, error_message text DEFAULT NULL, {claim}", "text", fail)
            for name in ("mark_task_failed", "func_mark_task_failed")
        ),
    ]


def _heartbeat() -> Routine:
    memory = ", ".join(
        f"{name} double precision DEFAULT NULL" for name in ("vram_total_mb_param", "vram_used_mb_param")
    )
    body = f"BEGIN RETURN task_face_beat($1, $2, $3, {_BOUNDED}); END"
    return _function(
        "func_update_worker_heartbeat", f"worker_id_param text, {memory}, {_TTL}", "boolean", body
    )


def _reset() -> Routine:
    each = "(SELECT DISTINCT named FROM unnest($1) named ORDER BY named) lost"
    body = f"BEGIN RETURN (SELECT COALESCE(SUM(task_face_reset(lost.named)), 0) FROM {each}); END"
    return _function("func_reset_orphaned_tasks", "worker_ids text[]", "integer", body)


def _by_status() -> Routine:
    body = f"""
        DECLARE v_states text[] := CASE $1 {" ".join(_states(STATUS_NAMES))} END;
        BEGIN
            IF v_states IS NULL THEN
                RAISE EXCEPTION USING MESSAGE = CONCAT('{MARK}: ', COALESCE($1, 'NULL'),
                    ' is no status of a task: choose from {", ".join(STATUS_NAMES)}');
            END IF;
            RETURN QUERY {row_select(cast=True)} WHERE j.status = ANY (v_states)
                ORDER BY j.created_at, j.job_id LIMIT {MOST_LISTED};
        END
    """
    return _function("func_get_tasks_by_status", "status text", f"SETOF {ROW_TYPE}", body)


def _states(names: Mapping[str, object]) -> list[str]:
    return [f"WHEN '{name}' THEN ARRAY[{', '.join(repr(str(s)) for s in states_of(name))}]" for name in names]
