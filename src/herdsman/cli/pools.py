"""`herdsman pools` and `herdsman pool`: workers held ready under a name."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer

from herdsman.cli.connection import connect
from herdsman.cli.listing import LayoutOption, Listing, Watch
from herdsman.cli.listing import show as show_list
from herdsman.cli.output import (
    DryRun,
    Layout,
    Output,
    OutputOption,
    Yes,
    age,
    ask_first,
    counted,
    did_you_mean,
    echo,
    print_json,
)
from herdsman.client import Client, calls
from herdsman.client.call import built
from herdsman.errors import HerdsmanError, InvalidRequest, NotFound
from herdsman.ids import DEFAULT_POOL
from herdsman.pools.rules import ServedBy
from herdsman.pools.wire import PoolIn, PoolOut, PoolsOut, ScaleIn, SwapIn
from herdsman.ports import SystemClock
from herdsman.states import PoolState, WorkerState

COLUMNS = (
    *("POOL", "STATE", "WHY", "MODEL", "WORKERS", "WANTED", "WAITING", "AGE"),
    *("+AGENT", "+REVISION", "+SERVED BY", "+TROUBLE"),
)
_MOST = 200


def pools(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=_MOST, help="How many at most.")] = 50,
    after: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    """List pools: those that were asked for by name, and those of the settings."""
    client = connect()
    show_list(lambda: _look(client, after, limit), output, watch=watch)


def row(pool: PoolOut) -> tuple[str, ...]:
    sizes = str(pool.spawned_workers), str(pool.desired_workers), str(pool.queued)
    narrow = (pool.pool_id, pool.status, pool.reason, pool.model_id or "-", *sizes, age(pool.started_at))
    return (*narrow, pool.agent_name, str(pool.revision), str(pool.served_by), "; ".join(pool.troubles))


def named_well(client: Client, pool: str, error: NotFound) -> HerdsmanError:
    """The same, with the pool that may have been meant."""
    known = [each.pool_id for each in client.send(calls.pools(None, _MOST)).pools]
    return NotFound(f"{error}{did_you_mean(pool, known)}")


def _look(client: Client, after: str | None, limit: int) -> Listing:
    page = client.send(calls.pools(after, limit))
    others = () if after is not None else _others(client, {each.pool_id for each in page.pools})
    rows = [row(each) for each in page.pools] + [_unnamed(each) for each in others]
    return Listing(
        document={**page.model_dump(mode="json", by_alias=True), "other_pools": others},
        columns=COLUMNS,
        rows=rows,
        empty="no pools; ask for one with: herdsman pool create NAME --model MODEL",
        next=page.next,
        then=f"herdsman why pool {rows[0][0]}" if rows else "",
    )


def _others(client: Client, named: set[str]) -> Sequence[dict[str, object]]:
    """Those of the settings, as their workers and jobs show them; the default one is always there."""
    workers, waiting, active = Counter[str](), Counter[str](), Counter[str]()
    for worker in client.send(calls.herd()).workers:
        workers[worker.pool] += 1
        active[worker.pool] += worker.status == WorkerState.ACTIVE
    for line in client.send(calls.overview()).queue:
        waiting[line.pool] += line.queued
    return [
        {"pool_id": pool, "workers": workers[pool], "active": active[pool], "queued": waiting[pool]}
        for pool in sorted({DEFAULT_POOL, *workers, *waiting} - named)
    ]


def _unnamed(other: dict[str, object]) -> tuple[str, ...]:
    narrow = (other["pool_id"], "settings", "", "-", other["workers"], "", other["queued"], "")
    return (*map(str, narrow), "", "", "", "")


pool = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Hold warm workers ready under a name, and change them."
)

Name = Annotated[str, typer.Argument(metavar="POOL", help="The pool's id.")]
Model = Annotated[str | None, typer.Option(help="What its workers load.")]
Adapter = Annotated[str | None, typer.Option(help="What is put on top of the model.")]
Variant = Annotated[str | None, typer.Option(help="Which edition of the model, such as fp16.")]
_LOOK = timedelta(seconds=1)


@pool.command("list")
def list_pools(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="How many at most.")] = 50,
    after: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    """List pools by name; herdsman pools lists those of the settings, too."""
    client = connect()
    show_list(lambda: _list(client.send(calls.pools(after, limit))), output, watch=watch)


@pool.command()
def show(pool_id: Name, output: OutputOption = Output.TABLE) -> None:
    """Show one pool: its state, its workers, and how far a swap has come."""
    client = connect()
    try:
        _show(client.send(calls.pool(pool_id)), output)
    except NotFound as error:
        raise named_well(client, pool_id, error) from error


@pool.command()
def create(
    pool_id: Name,
    model: Model = None,
    adapter: Adapter = None,
    variant: Variant = None,
    agent: Annotated[str | None, typer.Option(help="For whom it is held.")] = None,
    workers: Annotated[int, typer.Option("--workers", "-w", help="Workers kept while it is held.")] = 1,
    hold: Annotated[int, typer.Option(help="Seconds that it is kept after its last use.")] = 600,
    least: Annotated[int, typer.Option("--min", help="Workers kept for as long as it is there.")] = 0,
    most: Annotated[int | None, typer.Option("--max", help="Most workers.")] = None,
    warm_buffer: Annotated[int | None, typer.Option(help="Idle workers beyond those at work.")] = None,
    idle_timeout: Annotated[
        float | None, typer.Option(help="Seconds after which an idle worker too many is let go.")
    ] = None,
    max_lifetime: Annotated[
        float | None, typer.Option(help="Seconds after which a worker is replaced.")
    ] = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option(help='Such as "mon-fri 08:00-18:00 Europe/Berlin min=2 max=4"; may be repeated.'),
    ] = None,
    preload: Annotated[
        list[str] | None, typer.Option(help="A model to load before the first job; may be repeated.")
    ] = None,
    isolated: Annotated[bool, typer.Option("--isolated", help="It has a stream of its own.")] = False,
    served_by: Annotated[
        ServedBy, typer.Option(help="hand: its workers are started by somebody else.")
    ] = ServedBy.HERDSMAN,
    output: OutputOption = Output.TABLE,
) -> None:
    """Ask for a pool, or change what was asked for; one that has ended starts again."""
    asked: dict[str, Any] = {
        "pool_id": pool_id,
        "model_id": model,
        "adapter": adapter,
        "variant": variant,
        "agent_name": agent,
        "desired_workers": workers,
        "hold_seconds": hold,
        "min_workers": least,
        "max_workers": most,
        "warm_buffer": warm_buffer,
        "idle_timeout_seconds": idle_timeout,
        "max_lifetime_seconds": max_lifetime,
        "schedule": [_window(each) for each in schedule or ()],
        "preload": tuple(preload or ()),
        "isolated": isolated,
        "served_by": served_by,
    }
    _show(connect().send(calls.start_pool(built(lambda: PoolIn.model_validate(asked)))), output)


@pool.command()
def scale(
    pool_id: Name,
    workers: Annotated[int, typer.Argument(help="Workers kept while it is held.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Change how many workers are kept."""
    _show(connect().send(calls.scale_pool(pool_id, built(lambda: ScaleIn(desired_workers=workers)))), output)


@pool.command()
def swap(
    pool_id: Name,
    model: Model = None,
    adapter: Adapter = None,
    variant: Variant = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Serve something else; workers follow one after the other. The word none takes an adapter or variant away."""
    given = {"model_id": model, "adapter": adapter, "variant": variant}
    changed = {name: None if value == "none" else value for name, value in given.items() if value is not None}
    _show(connect().send(calls.swap_pool(pool_id, built(lambda: SwapIn.model_validate(changed)))), output)


@pool.command()
def drain(
    pool_id: Name,
    wait: Annotated[bool, typer.Option("--wait", help="Until its last worker is gone.")] = False,
    dry_run: DryRun = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let a pool go: no new jobs, and its workers leave when they have finished what they hold."""
    client = connect()
    if dry_run:
        _show(client.send(calls.pool(pool_id)), output)
        echo("nothing was done: without --dry-run, it would be let go", err=True)
        return
    found = client.send(calls.drain_pool(pool_id))
    while wait and found.status == PoolState.DRAINING:
        SystemClock().sleep(_LOOK)
        found = client.send(calls.pool(pool_id))
    _show(found, output)


@pool.command()
def evict(
    pool_id: Name, dry_run: DryRun = False, yes: Yes = False, output: OutputOption = Output.TABLE
) -> None:
    """End all workers of a pool at once; the jobs that they hold go back unharmed."""
    client = connect()
    if evicting(client, pool_id, output, dry_run=dry_run, yes=yes):
        _show(client.send(calls.evict_pool(pool_id)), output)


def _window(text: str) -> dict[str, Any]:
    days, _, rest = text.strip().partition(" ")
    hours, *words = rest.split() or [""]
    begin, dash, end = hours.partition("-")
    sizes = dict(word.split("=", 1) for word in words if "=" in word)
    zones = [word for word in words if "=" not in word]
    if not dash or len(zones) > 1 or not set(sizes) <= {"min", "max"}:
        raise InvalidRequest(
            f'--schedule is {text!r}: write it as "DAYS FROM-TO [ZONE] [min=N] [max=N]",'
            ' such as "mon-fri 08:00-18:00 Europe/Berlin min=2"'
        )
    return {"days": days, "from": begin, "to": end, **({"timezone": zones[0]} if zones else {}), **sizes}


def _show(found: PoolOut, output: Output) -> None:
    if output is Output.JSON:
        print_json(found.model_dump(mode="json", by_alias=True))
        return
    workers = ", ".join(f"{count} {state}" for state, count in found.workers.items() if count) or "none"
    echo(f"pool {found.pool_id} is {found.status} ({found.reason}), for {found.agent_name}")
    echo(f"workers: {workers}; {found.desired_workers} are wanted, {found.queued} jobs wait")
    served = " ".join(each for each in (found.model_id, found.adapter, found.variant) if each) or "no model"
    how_far = f"; {found.at_revision} workers serve it so far" if found.swapping else ""
    echo(f"serves {served}, revision {found.revision}{how_far}")
    for trouble in found.troubles:
        echo(f"trouble: {trouble}")


def _list(page: PoolsOut) -> Listing:
    return Listing(
        document=page.model_dump(mode="json", by_alias=True),
        columns=COLUMNS,
        rows=[row(each) for each in page.pools],
        empty="no pools; ask for one with: herdsman pool create NAME --model MODEL",
        next=page.next,
        then=f"herdsman why pool {page.pools[0].pool_id}" if page.pools else "",
    )


def evicting(client: Client, pool: str, output: Output, *, dry_run: bool, yes: bool) -> bool:
    """Whether to go on: the pool is there, and somebody agrees."""
    try:
        client.send(calls.pool(pool))
    except NotFound as error:
        raise named_well(client, pool, error) from error
    living = [each for each in client.send(calls.herd()).workers if each.pool == pool]
    jobs = [job.job_id for each in living for job in each.jobs]
    if not dry_run:
        ask_first(f"{counted(len(living), 'worker')} of {pool} are ended without waiting. Go on?", yes=yes)
        return True
    if output is Output.JSON:
        print_json({"workers": [each.worker_id for each in living], "jobs": jobs, "dry_run": True})
        return False
    for each in living:
        held = ", ".join(job.job_id for job in each.jobs) or "no job"
        echo(f"{each.worker_id} ({held})")
    echo(
        f"would end {counted(len(living), 'worker')} of {pool}; {len(jobs)} jobs would go back; nothing was done"
    )
    return False
