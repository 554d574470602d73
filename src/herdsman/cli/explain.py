"""`herdsman why`, `eta`, `cost`, `events` and `leader`: why things are as they are, what comes, and what it costs."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Annotated, Literal

import typer

from herdsman.cli.connect import connect, resolve_job, resolve_worker
from herdsman.cli.listing import LayoutOption, Listing, Watch, show
from herdsman.cli.output import Layout, Output, OutputOption, age, echo, indented, printed_json
from herdsman.client import Client, calls
from herdsman.errors import Forbidden, InvalidRequest, NotFound
from herdsman.explain.wire import WhyOut
from herdsman.fleet.wire import CostOut, MoneyOut
from herdsman.jobs.wire import EventOut
from herdsman.text import spoken

TIME = "%Y-%m-%d %H:%M:%S"


def _as_typed(_: Client, named: str) -> str:
    return named


RESOLVE: Mapping[Literal["job", "worker", "pool"], Callable[[Client, str], str]] = {
    "job": resolve_job,
    "worker": resolve_worker,
    "pool": _as_typed,
}


def why(
    what: Annotated[
        list[str], typer.Argument(metavar="[KIND] ID", help="The id; optionally with job, worker or pool before it.")
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    client = connect()
    match what:
        case [named]:
            answer = find(client, named)
        case ["job" | "worker" | "pool" as kind, named]:
            answer = client.send(calls.why(kind, RESOLVE[kind](client, named)))
        case [kind, _]:
            raise InvalidRequest(f"{kind!r} is not something that can be explained: use job, worker or pool")
        case _:
            raise InvalidRequest("one thing at a time: herdsman why ID, or herdsman why job|worker|pool ID")
    if not printed_json(output, answer):
        since = f", for {age(answer.since)}" if answer.since else ""
        echo(f"{answer.kind} {answer.id}: {answer.status}{since}")
        for sentence in answer.because:
            echo(indented(f"  {sentence}", 4))
        if answer.decided:
            echo("decisions, newest first:")
        for each in answer.decided:
            often = f" ({each.times} times since {each.since:{TIME}})" if each.times > 1 else ""
            terms = ", ".join(f"{name} {value}" for name, value in each.numbers.items())
            numbers = f" [{terms}]" if terms else ""
            undone = "" if each.done else f" [not done: {each.said}]"
            line = f"{each.last:{TIME}}  {each.action:<15} {each.code}: {each.reason}{numbers}{undone}{often}"
            echo(indented(f"  {line}", 4))
        if answer.history:
            echo("history:")
        for step in answer.history:
            echo(f"  {step.ts:{TIME}}  {step.to_status:<12} {step.reason:<18} {step.actor}")


def find(client: Client, named: str) -> WhyOut:
    """A job of this name, else a worker, else a pool; else the one job or worker that it is a part of."""
    ways = [(kind, _as_typed) for kind in RESOLVE] + list(RESOLVE.items())
    for kind, resolve in ways:
        with suppress(NotFound, Forbidden):  # a submitter's token may read jobs and nothing else
            return client.send(calls.why(kind, resolve(client, named)))
    raise NotFound(f"there is no job, worker or pool {named!r}: see herdsman jobs, workers and pools")


def eta(
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")], output: OutputOption = Output.TABLE
) -> None:
    client = connect()
    found = client.send(calls.eta(resolve_job(client, job_id)))
    if printed_json(output, found):
        return
    place = "" if found.position is None else f", number {found.position} in the queue of its pool"
    echo(f"job {found.job_id}: {found.status}{place}")
    for what, span in (("starts", found.start), ("ends", found.finish)):
        if span is not None:
            echo(f"  {what:<6} in {spoken(span.p50)} (50% likely), {spoken(span.p80)} (80% likely)")
    echo(f"  from {found.basis}" if found.start or found.finish else f"  {found.basis}")


By = Literal["day", "pool", "type"]


def cost(
    by: Annotated[By, typer.Option(help="What to group by.")] = "day",
    days: Annotated[int, typer.Option(min=1, max=366, help="How many days, including today.")] = 7,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    client = connect()
    show(lambda: _list_costs(client.send(calls.cost(days)), by), output, watch=watch)


def _list_costs(found: CostOut, by: By) -> Listing:
    lines: Sequence[MoneyOut] = getattr(found, f"by_{by}")
    busy, idle = sum(line.busy_usd for line in lines), sum(line.idle_usd for line in lines)
    rows = [_row(line.key, line.busy_usd, line.idle_usd, line.total_usd) for line in lines]
    amounts = ("busy_usd", "idle_usd", "total_usd")
    return Listing(
        document={
            "since": found.since,
            "until": found.until,
            "by": by,
            "lines": [{by: line.key, **{name: getattr(line, name) for name in amounts}} for line in lines],
            "total_usd": found.total_usd,
            "per_hour_usd": found.per_hour_usd,
        },
        columns=(by.upper(), "BUSY", "IDLE", "TOTAL", "+IDLE SHARE"),
        rows=[*rows, _row("all", busy, idle, found.total_usd)] if lines else (),
        empty=f"no costs since {found.since:%Y-%m-%d}",
        below=[f"{found.per_hour_usd:.4f} USD an hour at the moment"] if lines else (),
    )


def _row(key: str, busy: float, idle: float, total: float) -> tuple[str, ...]:
    return key, *(f"{each:>10.4f}" for each in (busy, idle, total)), f"{idle / total:.0%}" if total else ""


Kind = Literal["job", "worker", "pool", "lease", "stream", "policy", "hold"]


def events(
    kind: Annotated[Kind | None, typer.Option(help="Only events of such objects.")] = None,
    job: Annotated[str | None, typer.Option(help="Only events of this job.")] = None,
    since: Annotated[
        int | None, typer.Option(min=0, metavar="NUMBER", help="Start after this event; 0 starts with the first.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after so many.")] = None,
    follow: Annotated[
        bool | None,
        typer.Option(
            "--follow/--no-follow", "-f", help="Keep printing new events until Ctrl-C; the default in a terminal."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    client = connect()
    job_id = None if job is None else resolve_job(client, job)
    goes_on = sys.stdout.isatty() if follow is None else follow
    with suppress(KeyboardInterrupt):
        for event in islice(client.events(since=since, kind=kind, job_id=job_id, follow=goes_on), limit):
            echo(event.model_dump_json() if output is Output.JSON else line(event))


def line(event: EventOut) -> str:
    """Its number first: `--since` takes it."""
    move = event.to_status if event.from_status is None else f"{event.from_status} -> {event.to_status}"
    return (
        f"{event.id:>6}  {event.ts:%H:%M:%S}  {event.kind:<6} {event.object_id}  {move}  {event.reason}  {event.actor}"
    )


def leader(output: OutputOption = Output.TABLE) -> None:
    found = connect().send(calls.leader())
    if printed_json(output, found):
        return
    if found.since is None:
        echo("there is no leader yet; start one with: herdsman up, or herdsman cycle")
    else:
        verb = "leads" if found.leads else "led last"
        echo(f"{found.holder} {verb}, epoch {found.epoch}, since {age(found.since)} ago")
