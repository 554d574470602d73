"""`herdsman run` and `herdsman logs`: a job as it happens, on the screen."""

import json
import sys
from collections.abc import Generator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from herdsman.cli.connection import connect
from herdsman.cli.jobs import (
    Agent,
    AllowCpu,
    Attempts,
    JobIdOption,
    JobName,
    Key,
    MaxDefer,
    Memory,
    Model,
    Payload,
    PoolOption,
    Priority,
    Tag,
    Timeout,
    Type,
    job_in,
    parse,
)
from herdsman.cli.output import Output, OutputOption, echo, print_json
from herdsman.cli.run_comfyui import Asked, payload_of, print_saved, save_result, shown
from herdsman.cli.short_ids import resolve_job
from herdsman.client import Client, calls
from herdsman.ids import DEFAULT_POOL
from herdsman.jobs.wire import JobDetail, LogsOut, ResultOut
from herdsman.ports import SystemClock
from herdsman.states import JOB, JobState
from herdsman.text import printable

LOOK = timedelta(milliseconds=200)
HINT = timedelta(seconds=10)
FAILED, CANCELLED = 1, 7

Workflow = Annotated[
    str | None, typer.Argument(metavar="WORKFLOW", help="Of comfyui: a workflow in API format, as a file.")
]
Values = Annotated[
    list[str] | None,
    typer.Option("--set", help="Of comfyui: an input of a node, as NODE.NAME=VALUE; may be repeated."),
]
Files = Annotated[
    list[str] | None,
    typer.Option("--file", help="Of comfyui: a file for a node, as NODE.NAME=PATH; may be repeated."),
]
SaveTo = Annotated[
    Path | None, typer.Option(metavar="DIRECTORY", help="Of comfyui: where to save what it makes; here.")
]


def run(
    type: Type,  # noqa: A002  (the users' word)
    workflow: Workflow = None,
    payload: Payload = "{}",
    set_: Values = None,
    file: Files = None,
    save_to: SaveTo = None,
    job_id: JobIdOption = None,
    pool: PoolOption = DEFAULT_POOL,
    priority: Priority = 0,
    tag: Tag = None,
    timeout: Timeout = None,
    max_attempts: Attempts = None,
    agent: Agent = None,
    model: Model = None,
    gpu_memory_mb: Memory = None,
    key: Key = None,
    allow_cpu: AllowCpu = False,
    max_defer: MaxDefer = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit a job, show what it writes and how far it is, and end as it ends."""
    asked = Asked(workflow=workflow, values=set_ or (), files=file or (), save_to=save_to)
    new = job_in(
        type=type,
        payload=payload_of(type, parse(payload), asked),
        job_id=job_id,
        pool=pool,
        priority=priority,
        tags=tuple(tag or ()),
        timeout_seconds=timeout,
        max_attempts=max_attempts,
        agent=agent,
        model=model,
        gpu_memory_mb=gpu_memory_mb,
        concurrency_key=key,
        allow_cpu=allow_cpu,
        max_defer_seconds=max_defer,
    )
    client = connect()
    submitted = client.send(calls.submit(new))
    try:
        result = _follow(client, submitted.job_id, quiet=output is Output.JSON)
    except KeyboardInterrupt:
        echo(
            f"{submitted.job_id} goes on; see herdsman job {submitted.job_id}, or herdsman cancel it",
            err=True,
        )
        raise typer.Exit(130) from None
    saved = save_result(client, result, asked)
    if output is Output.JSON:
        print_json(shown(result, saved))
    elif saved:
        print_saved(result, saved)
    else:
        _print_end(result)
    raise typer.Exit(_status(result))


def logs(
    job_id: JobName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what a job wrote, attempt after attempt."""
    client = connect()
    for page in _pages(client, resolve_job(client, job_id), follow=follow):
        for piece in page.pieces:
            if output is Output.JSON:
                echo(piece.model_dump_json())
            else:
                echo("\n".join(piece.lines))


def _pages(client: Client, job_id: str, *, follow: bool) -> Iterator[LogsOut]:
    since: str | None = None
    while True:
        page = client.send(calls.logs(job_id, since))
        yield page
        since = page.next
        if page.ended or not (follow or page.pieces):
            return
        if not page.pieces:
            SystemClock().sleep(LOOK)


def _follow(client: Client, job_id: str, *, quiet: bool) -> ResultOut:
    console = Console(stderr=True, quiet=quiet)
    with _bar(console) as bar:
        task = bar.add_task(printable(job_id), total=1.0, note="")
        since: str | None = None
        hints = _hints(console, job_id)
        next(hints)
        while True:
            job = client.send(calls.job(job_id))  # before its log, so that nothing it wrote at last is missed
            hints.send(job)
            page = client.send(calls.logs(job_id, since))
            since = page.next
            for line in (line for piece in page.pieces for line in piece.lines):
                console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
            note = job.progress_note or (
                f"on {job.worker_id}" if job.worker_id else f"{job.status}: {job.reason}"
            )
            done = 1.0 if job.status == JobState.DONE else job.progress or 0.0
            bar.update(task, completed=done, note=printable(note))
            if job.status in JOB.terminal and not page.pieces:
                break
            if not page.pieces:
                SystemClock().sleep(LOOK)
    result = client.send(calls.result(job_id))
    assert result is not None, "a job that has ended goes on"
    return result


def _hints(console: Console, job_id: str) -> Generator[None, JobDetail]:
    """A job that nobody takes is worth a word, once: it may wait for ever."""
    job = yield
    waits = 0
    while waits < HINT / LOOK:
        waits = waits + 1 if job.claimed_at is None else 0
        job = yield
    console.print(
        printable(f"{job_id} is {job.status} and waits; what for says: herdsman why job {job_id}"),
        markup=False,
        soft_wrap=True,
    )
    while True:
        yield


def _bar(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _print_end(result: ResultOut) -> None:
    if result.status == JobState.DONE:
        echo(json.dumps(result.result, indent=2, ensure_ascii=False))
        return
    why = f" ({result.failure_class}): {result.last_error}" if result.last_error else ""
    echo(f"{result.job_id} is {result.status}{why}", err=True)
    sys.stdout.flush()


def _status(result: ResultOut) -> int:
    if result.status == JobState.DONE:
        return 0
    return CANCELLED if result.status == JobState.CANCELLED else FAILED
