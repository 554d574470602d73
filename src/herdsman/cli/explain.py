"""`herdsman why`, `eta`, `cost`, `events` and `leader`: why things are as they are, what comes, and what it costs."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any, Literal

import typer

from herdsman.cli.connection import connect
from herdsman.cli.listing import LayoutOption, Listing, Watch, show
from herdsman.cli.output import Layout, Output, OutputOption, age, echo, indented, print_json
from herdsman.cli.short_ids import resolve_job, resolve_worker
from herdsman.client import Client, calls
from herdsman.errors import Forbidden, InvalidRequest, NotFound
from herdsman.explain.wire import SpanOut, WhyOut
from herdsman.fleet.wire import CostOut, MoneyOut
from herdsman.jobs.wire import EventOut
from herdsman.text import spoken


def why(
    what: Annotated[
        list[str],
        typer.Argument(metavar="[KIND] ID", help="The id; before it job, worker or pool, if you like."),
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Say why a job, a worker or a pool is as it is: what it waits for, since when, and what would change it."""
    answer = _asked(connect(), what)
    if output is Output.JSON:
        print_json(answer.model_dump(mode="json"))
    else:
        _show_why(answer)


def _asked(client: Client, what: list[str]) -> WhyOut:
    match what:
        case [named]:
            return find(client, named)
        case ["job", named]:
            return client.send(calls.why("job", resolve_job(client, named)))
        case ["worker", named]:
            return client.send(calls.why("worker", resolve_worker(client, named)))
        case ["pool", named]:
            return client.send(calls.why("pool", named))
        case [kind, _]:
            raise InvalidRequest(f"{kind!r} is nothing that can be asked about: use job, worker or pool")
        case _:
            raise InvalidRequest("one thing at a time: herdsman why ID, or herdsman why job|worker|pool ID")


def find(client: Client, named: str) -> WhyOut:
    """A job of this name, else a worker, else a pool; else the one job or worker that it is a part of."""
    ways: tuple[Callable[[], WhyOut], ...] = (
        lambda: client.send(calls.why("job", named)),
        lambda: client.send(calls.why("worker", named)),
        lambda: client.send(calls.why("pool", named)),
        lambda: client.send(calls.why("job", resolve_job(client, named))),
        lambda: client.send(calls.why("worker", resolve_worker(client, named))),
    )
    for way in ways:
        with suppress(NotFound, Forbidden):  # a submitter has jobs and nothing else
            return way()
    raise NotFound(f"there is no job, worker or pool {named!r}: see herdsman jobs, workers and pools")


def _show_why(answer: WhyOut) -> None:
    since = f", since {age(answer.since)} ago" if answer.since else ""
    echo(f"{answer.kind} {answer.id}: {answer.state}{since}")
    for sentence in answer.because:
        echo(indented(f"  {sentence}", 4))
    if answer.decided:
        echo("decided, newest first:")
    for told in answer.decided:
        often = f" ({told.times} times since {_instant(told.since)})" if told.times > 1 else ""
        numbers = f" [{_numbers(told.numbers)}]" if told.numbers else ""
        undone = "" if told.done else f" [not done: {told.said}]"
        decision_line = (
            f"{_instant(told.last)}  {told.action:<15} {told.code}: {told.why}{numbers}{undone}{often}"
        )
        echo(indented(f"  {decision_line}", 4))
    if answer.history:
        echo("steps:")
    for step in answer.history:
        echo(f"  {_instant(step.ts)}  {step.to_status:<12} {step.reason:<18} {step.actor}")


def _numbers(numbers: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in numbers.items())


def _instant(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S}"


def eta(
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Say where a job stands in the line, and when it is likely to start and to end."""
    client = connect()
    found = client.send(calls.eta(resolve_job(client, job_id)))
    if output is Output.JSON:
        print_json(found.model_dump(mode="json"))
    else:
        place = "" if found.position is None else f", number {found.position} in the line of its pool"
        echo(f"job {found.job_id}: {found.status}{place}")
        for what, span in (("starts", found.start), ("ends", found.finish)):
            if span is not None:
                echo(f"  {what:<6} in {_told_span(span)}")
        echo(f"  from {found.basis}" if found.start or found.finish else f"  {found.basis}")


def _told_span(span: SpanOut) -> str:
    return f"{spoken(span.p50)} (half of the times), {spoken(span.p80)} (four times out of five)"


class By(StrEnum):
    DAY = "day"
    POOL = "pool"
    TYPE = "type"


def cost(
    by: Annotated[By, typer.Option(help="What to add up by.")] = By.DAY,
    days: Annotated[int, typer.Option(min=1, max=366, help="How many days, today's included.")] = 7,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    """Show what instances cost: while they worked, while they waited, and together."""
    client = connect()
    show(lambda: _cost_list(client, by, days), output, watch=watch)


def _cost_list(client: Client, by: By, days: int) -> Listing:
    found = client.send(calls.cost(days))
    lines = {By.DAY: found.by_day, By.POOL: found.by_pool, By.TYPE: found.by_type}[by]
    whole = (sum(line.busy_usd for line in lines), sum(line.idle_usd for line in lines), found.total_usd)
    each = [(line.key, *_row(line.busy_usd, line.idle_usd, line.total_usd)) for line in lines]
    return Listing(
        document=_document(found, by, lines),
        columns=(by.value.upper(), "BUSY", "IDLE", "TOTAL", "+IDLE SHARE"),
        rows=[*each, ("all", *_row(*whole))] if lines else (),
        empty=f"no instance cost anything since {found.since:%Y-%m-%d}",
        below=[f"{_money(found.per_hour_usd)} USD an hour at this moment"] if lines else (),
    )


def _document(found: CostOut, by: By, lines: Sequence[MoneyOut]) -> dict[str, object]:
    return {
        "since": found.since,
        "until": found.until,
        "by": by.value,
        "lines": [
            {
                by.value: line.key,
                "busy_usd": line.busy_usd,
                "idle_usd": line.idle_usd,
                "total_usd": line.total_usd,
            }
            for line in lines
        ],
        "total_usd": found.total_usd,
        "per_hour_usd": found.per_hour_usd,
    }


def _row(busy: float, idle: float, total: float) -> tuple[str, ...]:
    share = f"{idle / total:.0%}" if total else ""
    return *(f"{_money(each):>10}" for each in (busy, idle, total)), share


def _money(amount: float) -> str:
    return f"{amount:.4f}"


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


def leader(output: OutputOption = Output.TABLE) -> None:
    """Say which replica leads, since when, and under which epoch."""
    found = connect().send(calls.leader())
    if output is Output.JSON:
        print_json(found.model_dump(mode="json"))
    elif found.since is None:
        echo("nobody has led yet; start one with: herdsman up, or herdsman cycle")
    else:
        verb = "leads" if found.leads else "led last"
        echo(f"{found.holder} {verb}, epoch {found.epoch}, since {age(found.since)} ago")
