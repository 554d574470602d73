"""How jobs look: a list of them, and one with all that happened to it."""

import json
from collections.abc import Mapping, Sequence

import typer
from rich.console import Console
from rich.table import Table

from herdsman.cli.shown import age
from herdsman.wire.jobs import AttemptOut, EventOut, JobOut


def print_jobs(found: Sequence[JobOut]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("JOB", "TYPE", "STATE", "WHY", "ATTEMPTS", "AGE"):
        table.add_column(heading, no_wrap=heading == "JOB")
    for one in found:
        # Interruptions are no fault of the job's, and do not use its attempts up.
        tried = f"{one.attempts - one.interruptions}/{one.max_attempts}"
        table.add_row(one.job_id, one.type, one.status, one.reason, tried, age(one.created_at))
    Console(width=None if Console().is_terminal else 120).print(table)


def print_job(
    document: Mapping[str, object], attempts: Sequence[AttemptOut], steps: Sequence[EventOut]
) -> None:
    shown = {key: value for key, value in document.items() if value not in (None, [], (), False)}
    width = max(len(key) for key in shown)
    for key, value in shown.items():
        typer.echo(f"{key:{width}}  {_plain(value)}")
    for each in attempts:
        error = f": {each.error}" if each.error else ""
        typer.echo(f"attempt {each.attempt} on {each.worker_id}, {each.outcome or 'not ended yet'}{error}")
    for step in steps:
        typer.echo(
            f"{step.seq:>4}  {step.ts:%Y-%m-%d %H:%M:%S}  {step.to_status:<12} {step.reason:<18} {step.actor}"
        )


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
