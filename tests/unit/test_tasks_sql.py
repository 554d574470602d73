"""The SQL of the view `tasks` is written by hand: it must say what the commands do, and what the policy says by default."""

import re
from typing import Any

import pytest
from sqlalchemy import BindParameter, ColumnElement, UpdateBase, create_engine, literal_column
from sqlalchemy.sql import visitors

from herdsman.db.schema import in_states, job_view
from herdsman.db.statements import PreparedStatement
from herdsman.db.tasks_sql import PUBLIC, script
from herdsman.fleet import workers_sql
from herdsman.jobs import claim_sql, running_sql
from herdsman.jobs.model import JobPolicy
from herdsman.jobs.rules import STATUS_NAMES, TASK_STATUS, states_of
from herdsman.jobs.worker_commands import LONGEST_ERROR
from herdsman.states import HELD, SERVING, JobStatus

URLS = {"postgresql": "postgresql+psycopg://h/d", "mysql": "mysql+pymysql://h/d"}
SERVERS = pytest.mark.parametrize("dialect", URLS)
EVERYWHERE = pytest.mark.parametrize("dialect", ["sqlite", *URLS])


def body(dialect: str, name: str) -> str:
    (found,) = [routine.body for routine in script(dialect).routines if routine.name == name]
    return found


def written(hot: PreparedStatement, dialect: str, **given: str) -> str:
    """The statement of a command as a routine would have it: each of its parameters is a variable."""

    def swap(element: Any, **_: Any) -> ColumnElement[Any] | None:
        if not isinstance(element, BindParameter) or not element.key.startswith("b_"):
            return None
        name = element.key.removeprefix("b_")
        return literal_column(given.get(name, f"v_{name}"))

    swapped = visitors.replacement_traverse(hot.build(()), {}, swap)
    assert isinstance(swapped, UpdateBase)
    compiled = swapped.compile(create_engine(URLS[dialect]), compile_kwargs={"literal_binds": True})
    words = re.sub(r"(job_states|workers)\.", "", " ".join(str(compiled).split()))
    words = words.partition(" RETURNING ")[0]
    return re.sub(r"\((\w+ \+ 1)\)", r"\1", re.sub(r"(\w)=", r"\1 = ", words))


@SERVERS
@pytest.mark.parametrize(
    ("name", "statement", "given"),
    [
        ("task_face_claim", claim_sql.CLAIM, {}),
        ("task_face_complete", running_sql.COMPLETE, {"result": "p_result"}),
        ("task_face_complete", running_sql.STORE_RESULT, {"result": "p_result", "saved": "NULL"}),
        ("task_face_end", running_sql.END, {}),
        ("task_face_end", running_sql.STORE_FAILURE, {"last_error": "v_error"}),
        ("task_face_beat", workers_sql.BEAT, {"id": "v_worker"}),
    ],
)
def test_what_a_function_writes_is_the_statement_of_the_command(
    dialect: str, name: str, statement: PreparedStatement, given: dict[str, str]
) -> None:
    if given.get("result") and dialect == "postgresql":
        given = given | {"result": "CAST(p_result AS json)"}
    assert f"{written(statement, dialect, **given)};" in body(dialect, name)


@SERVERS
def test_the_numbers_are_the_defaults_of_the_policy(dialect: str) -> None:
    policy = JobPolicy()
    retry, ttl = policy.retry, f"{policy.claim_ttl.total_seconds():g}"
    base, cap = retry.base.total_seconds(), retry.cap.total_seconds()
    said = {
        "task_face_end": [
            f"LEFT(p_error, {LONGEST_ERROR})",
            f"COALESCE(NULLIF(b.retry_base_s, 0), {base}),",
            f"GREATEST(COALESCE(NULLIF(b.retry_base_s, 0), {base}), {cap})",
            f"v_worker_losses >= {retry.max_worker_losses}",
            f"(1 + {retry.jitter} * ",
            f"- v_priority * {policy.priority_step.total_seconds() * 1_000_000:.0f};",
            in_states(HELD, "j.status"),
        ],
        "task_face_complete": [
            f"> {policy.max_result_bytes} THEN",
            f"more than {policy.max_result_bytes} bytes",
        ],
        "task_face_beat": [in_states(SERVING, "w.status")],
        "func_claim_available_task": [f"{ttl}"],
        "claim_task": [f"{ttl}"],
        "func_update_worker_heartbeat": [f"{ttl}"],
    }
    for name, pieces in said.items():
        for piece in pieces:
            assert piece in body(dialect, name), f"{name} lacks {piece}"
    if dialect == "postgresql":
        heads = [each.head for each in script(dialect).routines if "claim_ttl_sec" in each.head]
        assert [f"claim_ttl_sec double precision DEFAULT {ttl}" in head for head in heads] == [True] * 3


@EVERYWHERE
def test_a_status_has_the_name_that_the_table_gives_it(dialect: str) -> None:
    names = " ".join(f"WHEN '{state}' THEN '{status}'" for state, status in TASK_STATUS.items())
    assert f"CASE j.status {names} END AS status" in script(dialect).columns
    if dialect != "sqlite":
        assert f"CASE p_state {names} END" in body(dialect, "task_face_status")
        listed = body(dialect, "func_get_tasks_by_status")
        found = re.findall(r"WHEN '([\w ]+)' THEN (?:ARRAY\[(.*?)\]|SET (.*?);)", listed)
        states = {name: set(re.findall(r"'(\w+)'", one or other)) for name, one, other in found}
        assert states == {name: set(states_of(name)) for name in STATUS_NAMES}


def test_the_view_is_the_same_on_every_database() -> None:
    assert script("sqlite").columns == script("postgresql").columns == script("mysql").columns
    columns = re.findall(r"AS (\w+)(?:,|$)", script("sqlite").columns)
    assert [each.split()[0] for each in script("postgresql").row_type.split(", ")] == [
        *columns,
        "claim_token",
    ]
    assert set(re.findall(r"\bj\.(\w+)", script("sqlite").columns)) <= set(job_view.c.keys())


@SERVERS
def test_every_public_function_is_there(dialect: str) -> None:
    names = [routine.name for routine in script(dialect).routines]
    assert len(names) == len(set(names))
    assert set(names) - set(script(dialect).inner) == set(PUBLIC)
    for routine in script(dialect).routines:
        assert not re.search(r"\{\w+\}|--", routine.head + routine.body)
    assert JobStatus.PENDING in body(dialect, "task_face_claim")
