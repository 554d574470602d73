"""How jobs look: a list of them, and one with all that happened to it."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

import typer
from rich.console import Console
from rich.table import Table

from herdsman.cli.shown import age
from herdsman.core.model import Attempt, AuditEntry, Job


def job_document(job: Job) -> dict[str, object]:
    """A job under the names that its columns have."""
    document = asdict(job)
    document["status"] = document.pop("state")
    for column in ("retry_base", "retry_cap", "timeout"):
        span = document.pop(column)
        document[f"{column}_s"] = None if span is None else span.total_seconds()
    first = ("job_id", "status", "reason")
    return {key: document[key] for key in (*first, *(key for key in document if key not in first))}


def print_jobs(found: Sequence[Job]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("JOB", "TYPE", "STATE", "WHY", "ATTEMPTS", "AGE"):
        table.add_column(heading, no_wrap=heading == "JOB")
    for one in found:
        # Interruptions are no fault of the job's, and do not use its attempts up.
        tried = f"{one.attempts - one.interruptions}/{one.max_attempts}"
        table.add_row(one.job_id, one.type, one.state, one.reason, tried, age(one.created_at))
    Console(width=None if Console().is_terminal else 120).print(table)


def print_job(job: Job, attempts: Sequence[Attempt], steps: Sequence[AuditEntry]) -> None:
    shown = {key: value for key, value in job_document(job).items() if value not in (None, [], ())}
    width = max(len(key) for key in shown)
    for key, value in shown.items():
        typer.echo(f"{key:{width}}  {_plain(value)}")
    for each in attempts:
        error = f": {each.error}" if each.error else ""
        typer.echo(f"attempt {each.attempt} on {each.worker_id}, {each.outcome or 'not ended yet'}{error}")
    for step in steps:
        typer.echo(
            f"{step.seq:>4}  {step.ts:%Y-%m-%d %H:%M:%S}  {step.to_state:<12} {step.reason:<18} {step.actor}"
        )


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
