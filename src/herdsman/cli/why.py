"""`herdsman why`: what was decided about a worker, a pool or a job, on which numbers, and what would change it."""

from datetime import datetime
from typing import Annotated, Any

import typer

from herdsman.cli.opening import settings_here
from herdsman.cli.services import services_here
from herdsman.cli.shown import Output, age, print_json
from herdsman.control.explain import Answer, Told, why_job, why_pool, why_worker
from herdsman.core.model import JobId, PoolId, WorkerId
from herdsman.wiring import open_control

OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]

why = typer.Typer(
    add_completion=False, help="Say why a worker, a pool or a job is as it is.", no_args_is_help=True
)


@why.command()
def worker(
    worker_id: Annotated[str, typer.Argument(metavar="WORKER", help="The worker's id.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Say what became of a worker, and what the control loop decided about it."""
    _show(why_worker(services_here(), WorkerId(worker_id)), output)


@why.command()
def pool(
    pool_id: Annotated[str, typer.Argument(metavar="POOL", help="The pool's name.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Say when a pool would get its next worker, what is in the way, and what was decided about it."""
    services = services_here()
    seen = open_control(settings_here(), services).reconciler.observer.glance()
    _show(why_pool(services, seen, PoolId(pool_id)), output)


@why.command()
def job(
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Say what a job waits for, since when, and how many go before it."""
    _show(why_job(services_here(), JobId(job_id)), output)


def _show(answer: Answer, output: Output) -> None:
    if output is Output.JSON:
        print_json(answer)
        return
    since = f", since {_ago(answer.since)}" if answer.since else ""
    typer.echo(f"{answer.kind} {answer.id}: {answer.state}{since}")
    for sentence in answer.because:
        typer.echo(f"  {sentence}")
    if answer.decided:
        typer.echo("decided, newest first:")
    for told in answer.decided:
        typer.echo(f"  {_line(told)}")
    if answer.history:
        typer.echo("steps:")
    for step in answer.history:
        typer.echo(f"  {_instant(step.ts)}  {step.to_state:<12} {step.reason:<18} {step.actor}")


def _line(told: Told) -> str:
    often = f" ({told.times} times since {_instant(told.since)})" if told.times > 1 else ""
    numbers = f" [{_numbers(told.numbers)}]" if told.numbers else ""
    undone = "" if told.done else f" [not done: {told.said}]"
    return f"{_instant(told.last)}  {told.action:<15} {told.code}: {told.why}{numbers}{undone}{often}"


def _numbers(numbers: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in numbers.items())


def _instant(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S}"


def _ago(when: datetime) -> str:
    return f"{age(when)} ago"
