"""How PostgreSQL and MariaDB say the same steps of a routine, and how statements of ours become part of one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Dialect, UpdateBase, literal_column
from sqlalchemy.sql import visitors

from herdsman.store.hot import Hot


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """SQL text of one database, where the two differ."""

    types: Mapping[str, str]
    now: str
    later: str
    micros: str
    random: str
    refuse: str
    allow: str
    """Whether the caller may act for the worker in `v_worker`."""
    free: str
    """How the row of a worker is locked while it is given a job."""
    current: str
    """How a read sees what was committed before it, whatever the isolation of the caller."""
    json: str
    noted: str
    """What is known of a worker, with the memory that it reports."""
    loop: tuple[str, str]


POSTGRES = Words(
    types={"name": "text", "text": "text", "whole": "bigint", "real": "double precision", "instant": "timestamptz", "truth": "boolean"},
    now="clock_timestamp()",
    later="({at} + ({seconds}) * INTERVAL '1 second')",
    micros="CAST(EXTRACT(EPOCH FROM {at}) * 1000000 AS bigint)",
    random="random()",
    refuse="RAISE EXCEPTION USING MESSAGE = v_said",
    allow="PERFORM task_face_allow(v_worker);",
    free="FOR NO KEY UPDATE",
    current="",
    json="CAST({text} AS json)",
    noted=(
        "w.metadata || jsonb_build_object('vram_total_mb', p_total, 'vram_used_mb', p_used, 'vram_timestamp',"
        " to_char(v_now AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"+00:00\"'))"
    ),
    loop=("LOOP", "END LOOP"),
)  # fmt: skip

_EXACT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"

MARIADB = Words(
    types={
        "name": f"varchar(255) {_EXACT}",
        "text": f"longtext {_EXACT}",
        "whole": "bigint",
        "real": "double",
        "instant": "datetime(6)",
        "truth": "boolean",
    },
    now="UTC_TIMESTAMP(6)",
    later="TIMESTAMPADD(MICROSECOND, ROUND(({seconds}) * 1000000), {at})",
    micros="TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {at})",
    random="RAND()",
    refuse="SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_said",
    allow="",
    free="FOR UPDATE",
    current="LOCK IN SHARE MODE",
    json="{text}",
    noted=(
        "JSON_SET(w.metadata, '$.vram_total_mb', p_total, '$.vram_used_mb', p_used,"
        " '$.vram_timestamp', CONCAT(REPLACE(v_now, ' ', 'T'), '+00:00'))"
    ),
    loop=("DO", "END WHILE"),
)

VARIABLES: Mapping[str, str] = {
    "actor": "name",
    "busy": "name",
    "cancel": "instant",
    "cap": "real",
    "base": "real",
    "deadline": "instant",
    "error": "text",
    "expires": "instant",
    "failure_class": "name",
    "finished": "instant",
    "interruptions": "whole",
    "job": "name",
    "max_attempts": "whole",
    "now": "instant",
    "out_of_memory": "whole",
    "place": "whole",
    "pool": "name",
    "priority": "whole",
    "reason": "name",
    "result": "text",
    "run_at": "instant",
    "said": "name",
    "slot": "whole",
    "spent": "whole",
    "status": "name",
    "timeout": "real",
    "token": "whole",
    "worker": "name",
    "worker_losses": "whole",
}
"""Every routine has all of these, as `v_…`; the parameter `b_…` of a statement becomes the variable of that name."""


def statement(hot: Hot, dialect: Dialect, **given: str) -> str:
    """A statement of the commands as a routine runs it: what was bound is a variable, or one of `given`."""

    def swap(element: Any, **_: Any) -> ColumnElement[Any] | None:
        if not isinstance(element, BindParameter) or not element.key.startswith("b_"):
            return None
        name = element.key.removeprefix("b_")
        assert name in given or name in VARIABLES, f"no routine has a variable for {element.key}"
        return literal_column(given.get(name, f"v_{name}"))

    swapped = visitors.replacement_traverse(hot.build(0), {}, swap)
    assert isinstance(swapped, UpdateBase)
    compiled = swapped.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
    return " ".join(str(compiled).split())
