"""`herdsman workers`, `pools` and `pool`: the workers of the fleet, and pools of warm ones under a name."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Annotated, Any

import typer

from herdsman.cli import output as out
from herdsman.cli.connect import PAGE, connect, resolve_worker
from herdsman.cli.listing import After, LayoutOption, Limit, Listing, Watch
from herdsman.cli.listing import show as show_list
from herdsman.client import Client, calls
from herdsman.client.call import built
from herdsman.errors import InvalidRequest, NotFound
from herdsman.fleet.wire import DrainedOut, FleetWorkerOut, WorkerOut
from herdsman.ids import DEFAULT_POOL
from herdsman.pools.rules import ServedBy
from herdsman.pools.wire import PoolIn, PoolOut, ScaleIn, SwapIn
from herdsman.ports import SystemClock
from herdsman.states import WORKER, PoolStatus, WorkerStatus

workers = typer.Typer(add_completion=False, invoke_without_command=True)
pool = typer.Typer(add_completion=False, no_args_is_help=True)

_WORKER_COLUMNS = (
    *("WORKER", "POOL", "STATUS", "REASON", "JOB", "HEARTBEAT", "AGE"),
    *("+TYPE", "+GPU", "+USED", "+USD/H", "+NODE"),
)
_POOL_COLUMNS = (
    *("POOL", "STATUS", "REASON", "MODEL", "WORKERS", "WANTED", "WAITING", "AGE"),
    *("+AGENT", "+REVISION", "+SERVED BY", "+TROUBLE"),
)
_POLL = timedelta(seconds=1)


@workers.callback()
def list_workers(
    context: typer.Context,
    status: Annotated[
        list[WorkerStatus] | None, typer.Option("--status", "-s", help="Only workers with this status.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Only workers of this pool.")] = None,
    limit: Limit = 50,
    after: After = None,
    watch: Watch = False,
    output: LayoutOption = out.Layout.TABLE,
) -> None:
    if context.invoked_subcommand is not None:
        return
    client, states = connect(), tuple(status or ())

    def read() -> Listing:
        page = client.send(calls.workers(after, limit, states=states, pool=pool))
        live = {each.worker_id: each for each in client.send(calls.fleet()).workers}
        # The first that is in trouble, or else the first that lives.
        order = sorted(
            page.workers, key=lambda each: (each.status != WorkerStatus.ERROR, each.status not in WORKER.live)
        )
        empty = "" if order else _no_workers(client, pool, filtered=bool(states or pool or after))
        return Listing(
            document={
                "workers": [_document(each, live.get(each.worker_id)) for each in page.workers],
                "next": page.next,
            },
            columns=_WORKER_COLUMNS,
            rows=[_worker_row(each, live.get(each.worker_id)) for each in page.workers],
            empty=empty,
            next=page.next,
            then=f"herdsman why worker {order[0].worker_id}" if order else "",
        )

    show_list(read, output, watch=watch)


@workers.command("drain")
def drain_worker(
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="The worker's id, or the end of it.")],
) -> None:
    """Drain one worker: it finishes its job and exits; the control loop replaces it where it is needed."""
    client = connect()
    out.echo(drained(client.send(calls.drain_worker(resolve_worker(client, worker)))))


def drained(done: DrainedOut) -> str:
    if done.already:
        return f"{done.worker_id} was already {done.status}"
    return f"{done.worker_id} is {done.status}: it finishes its job and exits"


def _document(worker: WorkerOut, live: FleetWorkerOut | None) -> dict[str, object]:
    """As the API has it, with the jobs that it runs; `id` and `state` are older names of its fields."""
    jobs = [] if live is None else [each.model_dump(mode="json") for each in live.jobs]
    names = {"id": worker.worker_id, "status": worker.status, "jobs": jobs}
    return {**worker.model_dump(mode="json"), **names}


def _worker_row(worker: WorkerOut, live: FleetWorkerOut | None) -> tuple[str, ...]:
    jobs, gpus, node = ((), (), None) if live is None else (live.jobs, live.gpus, live.node_id)
    more = f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""
    unfit: dict[str, str] = worker.metadata.get("unfit") or {} if worker.status in WORKER.live else {}
    reasons = [
        worker.error or worker.reason,
        worker.warning,
        *(f"no {kind}: {reason}" for kind, reason in unfit.items()),
    ]
    used = f"{sum(each.used_mb for each in gpus)}/{sum(each.total_mb for each in gpus)} MB" if gpus else ""
    return (
        worker.worker_id,
        worker.pool,
        worker.status,
        "; ".join(filter(None, reasons)),
        f"{jobs[0].job_id}{more}" if jobs else "",
        out.ago(worker.last_heartbeat),
        out.age(worker.created_at),
        worker.instance_type or "",
        ", ".join(each.name or each.uuid for each in gpus),
        used,
        "" if worker.cost_per_hour is None else f"{worker.cost_per_hour:.2f}",
        node or "",
    )


def _no_workers(client: Client, pool: str | None, *, filtered: bool) -> str:
    known = client.send(calls.workers(None, PAGE)).workers if filtered else ()
    if not known:
        return "no workers; the control loop starts them: herdsman up, or herdsman cycle"
    return f"no matching workers{out.did_you_mean(pool, {each.pool for each in known}) if pool else ''}"


def pools(
    limit: Limit = 50, after: After = None, watch: Watch = False, output: LayoutOption = out.Layout.TABLE
) -> None:
    client = connect()
    show_list(lambda: _list_pools(client, after, limit, everything=True), output, watch=watch)


@pool.command("list")
def list_pools(
    limit: Limit = 50, after: After = None, watch: Watch = False, output: LayoutOption = out.Layout.TABLE
) -> None:
    """List named pools; herdsman pools also lists those of the settings."""
    client = connect()
    show_list(lambda: _list_pools(client, after, limit, everything=False), output, watch=watch)


def _list_pools(client: Client, after: str | None, limit: int, *, everything: bool) -> Listing:
    page = client.send(calls.pools(after, limit))
    document: dict[str, object] = page.model_dump(mode="json", by_alias=True)
    rows = [_pool_row(each) for each in page.pools]
    if everything:
        others = () if after is not None else _other_pools(client, {each.pool_id for each in page.pools})
        document["other_pools"] = others
        for each in others:
            narrow = (each["pool_id"], "settings", "", "-", each["workers"], "", each["queued"], "")
            rows.append((*map(str, narrow), "", "", "", ""))
    return Listing(
        document=document,
        columns=_POOL_COLUMNS,
        rows=rows,
        empty="no pools; create one with: herdsman pool create NAME --model MODEL",
        next=page.next,
        then=f"herdsman why pool {rows[0][0]}" if rows else "",
    )


def _pool_row(pool: PoolOut) -> tuple[str, ...]:
    sizes = str(pool.spawned_workers), str(pool.desired_workers), str(pool.queued)
    narrow = (pool.pool_id, pool.status, pool.reason, pool.model_id or "-", *sizes, out.age(pool.started_at))
    return (*narrow, pool.agent_name, str(pool.revision), str(pool.served_by), "; ".join(pool.troubles))


def _other_pools(client: Client, named: set[str]) -> Sequence[dict[str, object]]:
    """Those of the settings, as their workers and jobs show them; the default one is always there."""
    workers, waiting, active = Counter[str](), Counter[str](), Counter[str]()
    for worker in client.send(calls.fleet()).workers:
        workers[worker.pool] += 1
        active[worker.pool] += worker.status == WorkerStatus.ACTIVE
    for line in client.send(calls.overview()).queue:
        waiting[line.pool] += line.queued
    return [
        {"pool_id": pool, "workers": workers[pool], "active": active[pool], "queued": waiting[pool]}
        for pool in sorted({DEFAULT_POOL, *workers, *waiting} - named)
    ]


Name = Annotated[str, typer.Argument(metavar="POOL", help="The pool's id.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What workers load, under the names of the API."""

    model_id: Annotated[str | None, typer.Option("--model", help="The model that its workers load.")] = None
    adapter: Annotated[str | None, typer.Option(help="An adapter on top of the model.")] = None
    variant: Annotated[str | None, typer.Option(help="The variant of the model, such as fp16.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions(ModelOptions):
    agent_name: Annotated[str | None, typer.Option("--agent", help="Whose pool it is.")] = None
    desired_workers: Annotated[int, typer.Option("--workers", "-w", help="Workers to keep while it is in use.")] = 1
    hold_seconds: Annotated[int, typer.Option("--hold", help="Seconds to keep it after its last use.")] = 600
    min_workers: Annotated[int, typer.Option("--min", help="Workers to keep for as long as the pool exists.")] = 0
    max_workers: Annotated[int | None, typer.Option("--max", help="Workers at most.")] = None
    warm_buffer: Annotated[int | None, typer.Option(help="Idle workers to keep beyond the busy ones.")] = None
    idle_timeout_seconds: Annotated[
        float | None, typer.Option("--idle-timeout", help="Seconds after which a surplus idle worker is drained.")
    ] = None
    max_lifetime_seconds: Annotated[
        float | None, typer.Option("--max-lifetime", help="Seconds after which a worker is replaced.")
    ] = None
    schedule: Annotated[
        list[str] | None, typer.Option(help='Such as "mon-fri 08:00-18:00 Europe/Berlin min=2 max=4"; may be repeated.')
    ] = None
    preload: Annotated[
        list[str] | None, typer.Option(help="A model to load before the first job; may be repeated.")
    ] = None
    isolated: Annotated[bool, typer.Option("--isolated", help="Give it a stream of its own.")] = False
    served_by: Annotated[ServedBy, typer.Option(help="hand: its workers are started by somebody else.")] = (
        ServedBy.HERDSMAN
    )


@pool.command()
def show(pool_id: Name, output: out.OutputOption = out.Output.TABLE) -> None:
    """Show one pool: its status, its workers, and the progress of a swap."""
    _show(_find(connect(), pool_id), output)


def _find(client: Client, pool: str) -> PoolOut:
    try:
        return client.send(calls.pool(pool))
    except NotFound as error:
        known = [each.pool_id for each in client.send(calls.pools(None, PAGE)).pools]
        raise NotFound(f"{error}{out.did_you_mean(pool, known)}") from error


@pool.command()
@out.with_options
def create(pool_id: Name, options: PoolOptions, output: out.OutputOption = out.Output.TABLE) -> None:
    """Create a pool, or change its settings; a pool that has ended starts again."""
    lists = {"schedule": [_window(each) for each in options.schedule or ()], "preload": tuple(options.preload or ())}
    asked = {"pool_id": pool_id, **asdict(options), **lists}
    _show(connect().send(calls.start_pool(built(lambda: PoolIn.model_validate(asked)))), output)


@pool.command()
def scale(
    pool_id: Name,
    workers: Annotated[int, typer.Argument(help="Workers to keep while it is in use.")],
    output: out.OutputOption = out.Output.TABLE,
) -> None:
    """Change how many workers a pool keeps."""
    _show(connect().send(calls.scale_pool(pool_id, built(lambda: ScaleIn(desired_workers=workers)))), output)


@pool.command()
@out.with_options
def swap(pool_id: Name, options: ModelOptions, output: out.OutputOption = out.Output.TABLE) -> None:
    """Swap the model, worker by worker; none removes an adapter or a variant."""
    given = {name: value for name, value in asdict(options).items() if value is not None}
    changed = {name: None if value == "none" else value for name, value in given.items()}
    _show(connect().send(calls.swap_pool(pool_id, built(lambda: SwapIn.model_validate(changed)))), output)


@pool.command()
def drain(
    pool_id: Name,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until its last worker is gone.")] = False,
    dry_run: out.DryRun = False,
    output: out.OutputOption = out.Output.TABLE,
) -> None:
    """Drain a pool: it takes no new jobs, and its workers exit when they have finished theirs."""
    client = connect()
    if dry_run:
        _show(client.send(calls.pool(pool_id)), output)
        out.echo("dry run: the pool would be drained; nothing was done", err=True)
        return
    found = client.send(calls.drain_pool(pool_id))
    while wait and found.status == PoolStatus.DRAINING:
        SystemClock().sleep(_POLL)
        found = client.send(calls.pool(pool_id))
    _show(found, output)


@pool.command()
def evict(
    pool_id: Name, dry_run: out.DryRun = False, yes: out.Yes = False, output: out.OutputOption = out.Output.TABLE
) -> None:
    """Terminate all workers of a pool at once; their jobs go back to the queue."""
    client = connect()
    if confirm_evict(client, pool_id, output, dry_run=dry_run, yes=yes):
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


def _show(found: PoolOut, output: out.Output) -> None:
    if output is out.Output.JSON:
        out.print_json(found.model_dump(mode="json", by_alias=True))
        return
    workers = ", ".join(f"{count} {status}" for status, count in found.workers.items() if count) or "none"
    out.echo(f"pool {found.pool_id} is {found.status} ({found.reason}), for {found.agent_name}")
    out.echo(f"workers: {workers}; {found.desired_workers} wanted, {found.queued} jobs queued")
    served = " ".join(each for each in (found.model_id, found.adapter, found.variant) if each) or "no model"
    how_far = f"; {found.at_revision} workers have it so far" if found.swapping else ""
    out.echo(f"serves {served}, revision {found.revision}{how_far}")
    for trouble in found.troubles:
        out.echo(f"trouble: {trouble}")


def confirm_evict(client: Client, pool: str, output: out.Output, *, dry_run: bool, yes: bool) -> bool:
    """Whether to continue: the pool exists, and a person agrees."""
    _find(client, pool)
    living = [each for each in client.send(calls.fleet()).workers if each.pool == pool]
    jobs = [job.job_id for each in living for job in each.jobs]
    if not dry_run:
        out.ask_first(f"{out.counted(len(living), 'worker')} of {pool} will be terminated at once. Continue?", yes=yes)
        return True
    if output is out.Output.JSON:
        out.print_json({"workers": [each.worker_id for each in living], "jobs": jobs, "dry_run": True})
        return False
    for each in living:
        held = ", ".join(job.job_id for job in each.jobs) or "no job"
        out.echo(f"{each.worker_id} ({held})")
    out.echo(
        f"would terminate {out.counted(len(living), 'worker')} of {pool} and requeue {out.counted(len(jobs), 'job')}; nothing was done"
    )
    return False
