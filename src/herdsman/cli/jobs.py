"""Commands about jobs: submit, list, look at one, cancel, run again."""

import json
from datetime import timedelta
from typing import Annotated

import typer

from herdsman.cli.job_pages import job_document, print_job, print_jobs
from herdsman.cli.opening import services_here
from herdsman.cli.shown import Output, print_json
from herdsman.control import commands
from herdsman.core.errors import InvalidRequest
from herdsman.core.model import DEFAULT_POOL, JobFilter, JobId, NewJob, PoolId
from herdsman.core.states import JOB, JobState

JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]


def submit(
    type: Annotated[str, typer.Argument(help="What kind of job it is.")],  # noqa: A002  (the users' word)
    payload: Annotated[str, typer.Option(help="The job's input, as JSON.")] = "{}",
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many of it.")] = 1,
    job_id: Annotated[str | None, typer.Option(help="Its id; sending it twice is one job.")] = None,
    pool: Annotated[str, typer.Option(help="The pool whose workers may run it.")] = DEFAULT_POOL,
    priority: Annotated[int, typer.Option(help="-100 to 100; higher goes first.")] = 0,
    tag: Annotated[list[str] | None, typer.Option(help="A tag to find it by; may be repeated.")] = None,
    delay: Annotated[float | None, typer.Option(help="Seconds to wait before it may run.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds that it may run.")] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Attempts it has.")] = None,
) -> None:
    """Submit a job, or several of the same kind."""
    if count > 1 and job_id is not None:
        raise InvalidRequest("--job-id names one job: leave out --count")
    new = NewJob(
        type=type,
        payload=_parse(payload),
        job_id=JobId(job_id) if job_id else None,
        pool=PoolId(pool),
        priority=priority,
        tags=tuple(tag or ()),
        delay=_seconds(delay),
        timeout=_seconds(timeout),
        max_attempts=max_attempts,
    )
    for submitted in commands.submit_jobs(services_here(), [new] * count):
        typer.echo(submitted.job_id if submitted.created else f"{submitted.job_id} (was submitted before)")


def jobs(
    state: Annotated[
        list[JobState] | None, typer.Option("--state", "-s", help="Only jobs in this state.")
    ] = None,
    type: Annotated[str | None, typer.Option(help="Only jobs of this type.")] = None,  # noqa: A002
    tag: Annotated[str | None, typer.Option(help="Only jobs with this tag.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many at most.")] = 20,
    after: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List jobs, newest first."""
    wanted = JobFilter(states=tuple(state or ()), type=type, tag=tag)
    page = commands.list_jobs(services_here(), wanted, after=after, limit=limit)
    if output is Output.JSON:
        print_json({"jobs": [job_document(found) for found in page.jobs], "next": page.next})
        return
    if not page.jobs:
        typer.echo(
            "no such jobs"
            if wanted != JobFilter() or after
            else "no jobs; submit one with: herdsman submit demo"
        )
        return
    print_jobs(page.jobs)
    if page.next:
        typer.echo(f"more: the same command with --after {page.next}")


def job(job_id: JobName, output: OutputOption = Output.TABLE) -> None:
    """Show one job: where it stands, its attempts, and every step it took."""
    services = services_here()
    found = commands.find_job(services, JobId(job_id))
    attempts = commands.find_attempts(services, found.job_id)
    steps = commands.find_history(services, found.job_id)
    if output is Output.JSON:
        print_json(job_document(found) | {"attempt_history": attempts, "history": steps})
    else:
        print_job(found, attempts, steps)


def cancel(job_id: JobName) -> None:
    """Stop a job: a waiting one at once, a running one as soon as its worker has let go."""
    state = commands.cancel_job(services_here(), JobId(job_id))
    if state is JobState.CANCELLED:
        typer.echo(f"{job_id} is cancelled")
    elif state in JOB.terminal:
        typer.echo(f"{job_id} had ended before: {state}")
    else:
        typer.echo(f"{job_id} is {state}; its worker is told to stop")


def requeue(
    job_id: JobName,
    payload: Annotated[str | None, typer.Option(help="Another input, as JSON.")] = None,
) -> None:
    """Run a job that has ended once more."""
    if payload is None:
        commands.requeue_job(services_here(), JobId(job_id))
    else:
        commands.requeue_edited_job(services_here(), JobId(job_id), _parse(payload))
    typer.echo(f"{job_id} is pending again")


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"--payload is not JSON: {error}") from error


def _seconds(value: float | None) -> timedelta | None:
    try:
        return None if value is None else timedelta(seconds=value)
    except (OverflowError, ValueError) as error:
        raise InvalidRequest(f"{value} seconds is no time that a job could take") from error
