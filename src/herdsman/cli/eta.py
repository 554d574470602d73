"""`herdsman eta`: when a job is likely to start and to end."""

from typing import Annotated

import typer

from herdsman.cli.connection import connect
from herdsman.cli.output import Output, echo, print_json
from herdsman.cli.short_ids import resolve_job
from herdsman.client import dashboard_calls
from herdsman.core.spoken import spoken
from herdsman.wire.dashboard import EtaOut, SpanOut


def eta(
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")],
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
) -> None:
    """Say where a job stands in the line, and when it is likely to start and to end."""
    client = connect()
    found = client.send(dashboard_calls.eta(resolve_job(client, job_id)))
    if output is Output.JSON:
        print_json(found.model_dump(mode="json"))
    else:
        _show(found)


def _show(found: EtaOut) -> None:
    place = "" if found.position is None else f", number {found.position} in the line of its pool"
    echo(f"job {found.job_id}: {found.status}{place}")
    for what, span in (("starts", found.start), ("ends", found.finish)):
        if span is not None:
            echo(f"  {what:<6} in {_told(span)}")
    echo(f"  from {found.basis}" if found.start or found.finish else f"  {found.basis}")


def _told(span: SpanOut) -> str:
    return f"{spoken(span.p50)} (half of the times), {spoken(span.p80)} (four times out of five)"
