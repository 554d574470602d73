"""`herdsman why`: what was decided about a job, a worker or a pool, on which numbers, and what would change it."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

import typer

from herdsman.cli.connection import connect
from herdsman.cli.output import Output, age, echo, indented, print_json
from herdsman.cli.short_ids import resolve_job, resolve_worker
from herdsman.client import Client, dashboard_calls
from herdsman.core.errors import Forbidden, InvalidRequest, NotFound
from herdsman.wire.dashboard import ToldOut, WhyOut


def why(
    what: Annotated[
        list[str],
        typer.Argument(metavar="[KIND] ID", help="The id; before it job, worker or pool, if you like."),
    ],
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
) -> None:
    """Say why a job, a worker or a pool is as it is: what it waits for, since when, and what would change it."""
    answer = _asked(connect(), what)
    if output is Output.JSON:
        print_json(answer.model_dump(mode="json"))
    else:
        _show(answer)


def _asked(client: Client, what: list[str]) -> WhyOut:
    match what:
        case [named]:
            return find(client, named)
        case ["job", named]:
            return client.send(dashboard_calls.why("job", resolve_job(client, named)))
        case ["worker", named]:
            return client.send(dashboard_calls.why("worker", resolve_worker(client, named)))
        case ["pool", named]:
            return client.send(dashboard_calls.why("pool", named))
        case [kind, _]:
            raise InvalidRequest(f"{kind!r} is nothing that can be asked about: use job, worker or pool")
        case _:
            raise InvalidRequest("one thing at a time: herdsman why ID, or herdsman why job|worker|pool ID")


def find(client: Client, named: str) -> WhyOut:
    """A job of this name, else a worker, else a pool; else the one job or worker that it is a part of."""
    ways: tuple[Callable[[], WhyOut], ...] = (
        lambda: client.send(dashboard_calls.why("job", named)),
        lambda: client.send(dashboard_calls.why("worker", named)),
        lambda: client.send(dashboard_calls.why("pool", named)),
        lambda: client.send(dashboard_calls.why("job", resolve_job(client, named))),
        lambda: client.send(dashboard_calls.why("worker", resolve_worker(client, named))),
    )
    for way in ways:
        with suppress(NotFound, Forbidden):  # a submitter has jobs and nothing else
            return way()
    raise NotFound(f"there is no job, worker or pool {named!r}: see herdsman jobs, workers and pools")


def _show(answer: WhyOut) -> None:
    since = f", since {age(answer.since)} ago" if answer.since else ""
    echo(f"{answer.kind} {answer.id}: {answer.state}{since}")
    for sentence in answer.because:
        echo(indented(f"  {sentence}", 4))
    if answer.decided:
        echo("decided, newest first:")
    for told in answer.decided:
        echo(indented(f"  {_line(told)}", 4))
    if answer.history:
        echo("steps:")
    for step in answer.history:
        echo(f"  {_instant(step.ts)}  {step.to_status:<12} {step.reason:<18} {step.actor}")


def _line(told: ToldOut) -> str:
    often = f" ({told.times} times since {_instant(told.since)})" if told.times > 1 else ""
    numbers = f" [{_numbers(told.numbers)}]" if told.numbers else ""
    undone = "" if told.done else f" [not done: {told.said}]"
    return f"{_instant(told.last)}  {told.action:<15} {told.code}: {told.why}{numbers}{undone}{often}"


def _numbers(numbers: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in numbers.items())


def _instant(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S}"
