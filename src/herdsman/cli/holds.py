"""`herdsman pause`, `resume`, `holds`, `drain`, `evict` and `reconcile`: what an operator does to all that runs."""

from datetime import timedelta
from typing import Annotated

import typer

from herdsman.cli.connection import connect
from herdsman.cli.listing import LayoutOption, Listing, Watch, show
from herdsman.cli.output import DryRun, Layout, Output, OutputOption, Yes, age, ask_first, echo, print_json
from herdsman.cli.pools import evicting
from herdsman.client import Client, calls
from herdsman.client.call import built
from herdsman.fleet.wire import CycleOut
from herdsman.limits.rules import ALL
from herdsman.limits.wire import DrainIn, PauseIn, PauseOut, PausesOut, ScopeIn
from herdsman.ports import SystemClock

LOOK = timedelta(milliseconds=500)

PoolOption = Annotated[str | None, typer.Option("--pool", help="Only this pool.")]
TypeOption = Annotated[str | None, typer.Option("--type", help="Only jobs of this type.")]
Why = Annotated[str, typer.Option("--why", help="For who wonders later.")]


def pause(
    pool: PoolOption = None,
    type: TypeOption = None,  # noqa: A002  (the users' word)
    why: Why = "",
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", help="Go on by itself after so long.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Give out no jobs: workers finish what they hold and stay, and new jobs are still taken in."""
    wanted = built(lambda: PauseIn(pool=pool, type=type, why=why, seconds=seconds))
    hold = connect().send(calls.pause(wanted))
    if output is Output.JSON:
        print_json(hold.model_dump(mode="json"))
    else:
        echo(f"{_said(hold)}; it goes on {_end(hold)}")


def resume(pool: PoolOption = None, type: TypeOption = None, output: OutputOption = Output.TABLE) -> None:  # noqa: A002
    """Go on with what was paused or drained."""
    client = connect()
    done = client.send(calls.resume(built(lambda: ScopeIn(pool=pool, type=type))))
    left = client.send(calls.holds()).holds
    if output is Output.JSON:
        print_json({**done.model_dump(), "still_held": [each.scope for each in left]})
        return
    echo(f"{_named(done.scope)} {'goes on' if done.resumed else 'was not held'}")
    for each in left:
        echo(f"still held: {_said(each)}")


def holds(watch: Watch = False, output: LayoutOption = Layout.TABLE) -> None:
    """List what is paused or drained, and what goes on all the same."""
    client = connect()
    show(lambda: _list(client.send(calls.holds())), output, watch=watch)


def _list(found: PausesOut) -> Listing:
    """Sentences rather than a table: there are never many."""
    held = [
        f"{_said(each)}, for {age(each.since)}, by {each.actor}; it goes on {_end(each)}"
        for each in found.holds
    ]
    return Listing(
        document=found.model_dump(mode="json"),
        columns=(),
        rows=(),
        empty="" if held else "nothing is held",
        below=[*held, _going(found)],
        then="herdsman resume" if held else "",
    )


def drain(
    why: Why = "",
    wait: Annotated[bool, typer.Option("--wait", help="Until no job runs and no worker lives.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let the whole cluster run dry: every worker finishes what it holds and leaves, none are made."""
    client = connect()
    if dry_run:
        _would_drain(client.send(calls.holds()), output)
        return
    ask_first("All workers of all pools leave, until herdsman resume. Go on?", yes=yes)
    hold = client.send(calls.drain(built(lambda: DrainIn(why=why))))
    found = _wait(client, quiet=output is Output.JSON) if wait else client.send(calls.holds())
    if output is Output.JSON:
        print_json({**hold.model_dump(mode="json"), **found.model_dump(mode="json", exclude={"holds"})})
    else:
        echo(f"{_said(hold)}; it goes on {_end(hold)}")
        echo(_going(found))


def evict(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="The pool's id.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """End all workers of a pool at once, whatever they do; the jobs that they hold go back unharmed."""
    client = connect()
    if not evicting(client, pool, output, dry_run=dry_run, yes=yes):
        return
    ended = client.send(calls.evict_pool(pool))
    if output is Output.JSON:
        print_json(ended.model_dump(mode="json"))
    else:
        echo(f"pool {ended.pool_id} is {ended.status}; {ended.queued} jobs wait for it")


def reconcile(output: OutputOption = Output.TABLE) -> None:
    """Have the leader run one cycle of its control loop now, wherever it is: 0 when all could be done."""
    done = connect().send(calls.reconcile())
    if output is Output.JSON:
        print_json(done.model_dump(mode="json"))
    else:
        _print_cycle(done)
    if not done.complete:
        raise typer.Exit(1)


def _would_drain(found: PausesOut, output: Output) -> None:
    if output is Output.JSON:
        print_json({**found.model_dump(mode="json", exclude={"holds"}), "dry_run": True})
    else:
        echo(f"would let all workers leave; {_going(found)}; nothing was done")


def _wait(client: Client, *, quiet: bool) -> PausesOut:
    """Ctrl-C ends the waiting, and nothing else."""
    said = ""
    while True:
        found = client.send(calls.holds())
        if found.jobs_held == 0 and not found.workers:
            return found
        if not quiet and (going := _going(found)) != said:
            echo(going, err=True)
            said = going
        SystemClock().sleep(LOOK)


def _print_cycle(done: CycleOut) -> None:
    if done.skipped:
        echo(f"nothing was done: {done.skipped}")
    for step in done.steps:
        if step["action"] != "Note":
            result = "" if step["done"] else f" [not done: {step['said']}]"
            echo(f"{step['phase']:<12} {step['action']:<15} {step['code']}: {step['why']}{result}")
    echo(f"{done.status}")


def _said(hold: PauseOut) -> str:
    word = "drained" if hold.kind == "drain" else "paused"
    return f"{_named(hold.scope)} is {word} ({hold.why})"


def _named(scope: str) -> str:
    return "everything" if scope == ALL else scope.replace(":", " ", 1)


def _end(hold: PauseOut) -> str:
    if hold.until is not None:
        return f"by itself at {hold.until:%Y-%m-%d %H:%M:%S}"
    named = "" if hold.scope == ALL else f" --{hold.scope.replace(':', ' ', 1)}"
    return f"with herdsman resume{named}"


def _going(found: PausesOut) -> str:
    workers = ", ".join(f"{count} {state}" for state, count in found.workers.items()) or "none"
    return f"jobs that workers hold: {found.jobs_held}; workers: {workers}"
