"""How values are shown to a person or to a program."""

import json
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import typer

from herdsman.core.model import Job


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


def job_document(job: Job) -> dict[str, object]:
    """A job under the names that its columns have."""
    document = asdict(job)
    document["status"] = document.pop("state")
    for column in ("retry_base", "retry_cap", "timeout"):
        span = document.pop(column)
        document[f"{column}_s"] = None if span is None else span.total_seconds()
    first = ("job_id", "status", "reason")
    return {key: document[key] for key in (*first, *(key for key in document if key not in first))}


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, default=_plain))


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


def age(then: datetime) -> str:
    """`42s`, `7m`, `3h`, `2d`."""
    seconds = max(0, round((datetime.now(UTC) - then).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
