"""`herdsman pause`, `resume`, `holds`, `drain`, `evict` and `reconcile`: what an operator does to the whole cluster."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer

from herdsman.cli.connect import connect
from herdsman.cli.fleet import confirm_evict
from herdsman.cli.listing import LayoutOption, Listing, Watch, show
from herdsman.cli.output import DryRun, Layout, Output, OutputOption, Yes, age, ask_first, echo, printed_json
from herdsman.client import Client, calls
from herdsman.client.call import built
from herdsman.limits.rules import ALL
from herdsman.limits.wire import DrainIn, PauseIn, PauseOut, PausesOut, ScopeIn
from herdsman.ports import SystemClock

POLL = timedelta(milliseconds=500)

PoolOption = Annotated[str | None, typer.Option("--pool", help="Only this pool.")]
TypeOption = Annotated[str | None, typer.Option("--type", help="Only jobs of this type.")]
Reason = Annotated[str, typer.Option("--reason", help="The reason, for whoever wonders later.")]


def pause(
    pool: PoolOption = None,
    type: TypeOption = None,  # noqa: A002  (the users' word)
    reason: Reason = "",
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", help="Resume automatically after this long.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    wanted = built(lambda: PauseIn(pool=pool, type=type, reason=reason, seconds=seconds))
    hold = connect().send(calls.pause(wanted))
    if not printed_json(output, hold):
        echo(f"{_status(hold)}; {_end(hold)}")


def resume(pool: PoolOption = None, type: TypeOption = None, output: OutputOption = Output.TABLE) -> None:  # noqa: A002
    client = connect()
    done = client.send(calls.resume(built(lambda: ScopeIn(pool=pool, type=type))))
    left = client.send(calls.holds()).holds
    if printed_json(output, {**done.model_dump(), "still_held": [each.scope for each in left]}):
        return
    echo(f"{_named(done.scope)} {'is resumed' if done.resumed else 'was not paused'}")
    for each in left:
        echo(f"still: {_status(each)}")


def holds(watch: Watch = False, output: LayoutOption = Layout.TABLE) -> None:
    client = connect()

    def read() -> Listing:
        """Sentences rather than a table: there are never many."""
        found = client.send(calls.holds())
        held = [f"{_status(one)}, for {age(one.since)}, by {one.actor}; {_end(one)}" for one in found.holds]
        return Listing(
            document=found,
            columns=(),
            rows=(),
            empty="" if held else "nothing is paused",
            below=[*held, _remaining(found)],
            then="herdsman resume" if held else "",
        )

    show(read, output, watch=watch)


def drain(
    reason: Reason = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until no job and no worker is left.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    client = connect()
    if dry_run:
        found = client.send(calls.holds())
        if not printed_json(output, {**found.model_dump(mode="json", exclude={"holds"}), "dry_run": True}):
            echo(f"would drain all workers; {_remaining(found)}; nothing was done")
        return
    ask_first("All workers of all pools will exit, until herdsman resume. Continue?", yes=yes)
    hold = client.send(calls.drain(built(lambda: DrainIn(reason=reason))))
    found = _wait(client, quiet=output is Output.JSON) if wait else client.send(calls.holds())
    remaining = found.model_dump(mode="json", exclude={"holds"})
    if not printed_json(output, {**hold.model_dump(mode="json"), **remaining}):
        echo(f"{_status(hold)}; {_end(hold)}")
        echo(_remaining(found))


def _wait(client: Client, *, quiet: bool) -> PausesOut:
    """Ctrl-C ends the waiting, and nothing else."""
    printed = ""
    while True:
        found = client.send(calls.holds())
        if found.jobs_held == 0 and not found.workers:
            return found
        if not quiet and (remaining := _remaining(found)) != printed:
            echo(remaining, err=True)
            printed = remaining
        SystemClock().sleep(POLL)


def evict(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="The pool's id.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    client = connect()
    if confirm_evict(client, pool, output, dry_run=dry_run, yes=yes):
        ended = client.send(calls.evict_pool(pool))
        if not printed_json(output, ended):
            echo(f"pool {ended.pool_id} is {ended.status}; {ended.queued} jobs are queued for it")


def reconcile(output: OutputOption = Output.TABLE) -> None:
    done = connect().send(calls.reconcile())
    if not printed_json(output, done):
        print_cycle(done.skipped, done.steps, done.status)
    if not done.complete:
        raise typer.Exit(1)


def print_cycle(
    skipped: str | None, steps: Sequence[Mapping[str, Any]], status: Mapping[str, object], *, notes: bool = False
) -> None:
    if skipped:
        echo(f"nothing was done: {skipped}")
    for step in steps:
        if notes or step["action"] != "Note":
            result = "" if step["done"] else f" [not done: {step['said']}]"
            echo(f"{step['phase']:<12} {step['action']:<15} {step['code']}: {step['reason']}{result}")
    if status:
        echo(", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in status.items()))


def _status(hold: PauseOut) -> str:
    word = "drained" if hold.kind == "drain" else "paused"
    return f"{_named(hold.scope)} is {word} ({hold.reason})"


def _named(scope: str) -> str:
    return "everything" if scope == ALL else scope.replace(":", " ", 1)


def _end(hold: PauseOut) -> str:
    if hold.until is not None:
        return f"it resumes automatically at {hold.until:%Y-%m-%d %H:%M:%S}"
    named = "" if hold.scope == ALL else f" --{hold.scope.replace(':', ' ', 1)}"
    return f"resume with: herdsman resume{named}"


def _remaining(found: PausesOut) -> str:
    workers = ", ".join(f"{count} {status}" for status, count in found.workers.items()) or "none"
    return f"jobs still running: {found.jobs_held}; workers: {workers}"
