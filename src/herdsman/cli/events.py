"""`herdsman events`: everything that happens, as it happens."""

import sys
from contextlib import suppress
from itertools import islice
from typing import Annotated, Literal

import typer

from herdsman.cli.connection import connect
from herdsman.cli.jobs import OutputOption
from herdsman.cli.output import Output, echo
from herdsman.cli.short_ids import resolve_job
from herdsman.wire.jobs import EventOut

Kind = Literal["job", "worker", "pool", "lease", "stream", "policy", "hold"]


def events(
    kind: Annotated[Kind | None, typer.Option(help="Only what happens to such things.")] = None,
    job: Annotated[str | None, typer.Option(help="Only what happens to this job.")] = None,
    since: Annotated[
        int | None,
        typer.Option(min=0, metavar="NUMBER", help="Begin behind this event; 0 begins with the first."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after so many.")] = None,
    follow: Annotated[
        bool | None,
        typer.Option(
            "--follow/--no-follow",
            "-f",
            help="Go on with what happens from now on, until Ctrl-C; in a terminal.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what happens: in a terminal as it happens, until Ctrl-C; in a pipe what has happened."""
    client = connect()
    meant = None if job is None else resolve_job(client, job)
    with suppress(KeyboardInterrupt):
        goes_on = sys.stdout.isatty() if follow is None else follow
        for event in islice(client.events(since=since, kind=kind, job_id=meant, follow=goes_on), limit):
            echo(event.model_dump_json() if output is Output.JSON else line(event))


def line(event: EventOut) -> str:
    """Its number first: `--since` takes it."""
    move = event.to_status if event.from_status is None else f"{event.from_status} -> {event.to_status}"
    return (
        f"{event.id:>6}  {event.ts:%H:%M:%S}  {event.kind:<6} {event.object_id}"
        f"  {move}  {event.reason}  {event.actor}"
    )
