"""`herdsman workers`: who works here, on what, and who is gone; one that is to go is drained."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from herdsman.cli.connection import connect
from herdsman.cli.listing import LayoutOption, Listing, Watch, show
from herdsman.cli.output import Layout, age, ago, did_you_mean, echo
from herdsman.cli.short_ids import PAGE, resolve_worker
from herdsman.client import Client, calls
from herdsman.fleet.wire import HerdWorkerOut, WorkerOut
from herdsman.states import WORKER, WorkerState

_COLUMNS = (
    *("WORKER", "POOL", "STATE", "WHY", "JOB", "HEARTBEAT", "AGE"),
    *("+TYPE", "+GPU", "+USED", "+USD/H", "+NODE"),
)

workers = typer.Typer(
    add_completion=False, invoke_without_command=True, help="List workers, newest first, and drain them."
)


@workers.callback()
def list_workers(
    context: typer.Context,
    status: Annotated[
        list[WorkerState] | None, typer.Option("--status", "-s", help="Only workers with this status.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Only workers of this pool.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=PAGE, help="How many at most.")] = 50,
    after: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
    watch: Watch = False,
    output: LayoutOption = Layout.TABLE,
) -> None:
    """List workers, newest first, those that are gone too."""
    if context.invoked_subcommand is not None:
        return
    client, states = connect(), tuple(status or ())
    show(lambda: _look(client, states, pool, after, limit), output, watch=watch)


@workers.command()
def drain(
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="The worker's id, or the end of it.")],
) -> None:
    """Let one worker finish what it holds and leave; the control loop replaces it where it is needed."""
    client = connect()
    worker_id = resolve_worker(client, worker)
    drained = client.send(calls.drain_worker(worker_id))
    if drained.already:
        echo(f"{worker_id} was leaving already: {drained.status}")
    else:
        echo(f"{worker_id} is {drained.status}: it finishes what it holds, and leaves")


def _look(
    client: Client, states: Sequence[WorkerState], pool: str | None, after: str | None, limit: int
) -> Listing:
    page = client.send(calls.workers(after, limit, states=states, pool=pool))
    found, herd = page.workers, {each.worker_id: each for each in client.send(calls.herd()).workers}
    return Listing(
        document={"workers": [document(each, herd) for each in found], "next": page.next},
        columns=_COLUMNS,
        rows=[_row(each, herd.get(each.worker_id)) for each in found],
        empty="" if found else _nothing(client, pool, chosen=bool(states or pool or after)),
        next=page.next,
        then=_next(found),
    )


def document(worker: WorkerOut, herd: Mapping[str, HerdWorkerOut]) -> dict[str, object]:
    """As the API has it, with the jobs that it holds; `id` and `state` are the names they had at first."""
    held = herd.get(worker.worker_id)
    jobs = [] if held is None else [each.model_dump(mode="json") for each in held.jobs]
    return {
        **worker.model_dump(mode="json"),
        "id": worker.worker_id,
        "state": worker.status,
        "jobs": jobs,
    }


def _row(worker: WorkerOut, living: HerdWorkerOut | None) -> tuple[str, ...]:
    jobs = () if living is None else living.jobs
    job = f"{jobs[0].job_id}{f' and {len(jobs) - 1} more' if len(jobs) > 1 else ''}" if jobs else ""
    narrow = (
        worker.worker_id,
        worker.pool,
        worker.status,
        _why(worker),
        job,
        ago(worker.last_heartbeat),
        age(worker.created_at),
    )
    gpus = () if living is None else living.gpus
    names = ", ".join(each.name or each.uuid for each in gpus)
    used = f"{sum(each.used_mb for each in gpus)}/{sum(each.total_mb for each in gpus)} MB" if gpus else ""
    price = "" if worker.cost_per_hour is None else f"{worker.cost_per_hour:.2f}"
    wide = (worker.instance_type or "", names, used, price, (living.node_id or "") if living else "")
    return (*narrow, *wide)


def _why(worker: WorkerOut) -> str:
    """Why it is in its state; and of one that lives, what does not fit and what it does not take."""
    unfit: dict[str, str] = worker.metadata.get("unfit") or {} if worker.status in WORKER.live else {}
    besides = [*filter(None, [worker.warning]), *(f"no {kind}: {why}" for kind, why in unfit.items())]
    return "; ".join([worker.error or worker.reason, *besides])


def _nothing(client: Client, pool: str | None, *, chosen: bool) -> str:
    """A pool that has no workers may be one that was spelled wrong."""
    seen = client.send(calls.workers(None, PAGE)).workers if chosen else ()
    if not seen:
        return "no workers; the control loop makes them: herdsman up, or herdsman cycle"
    return f"no such workers{did_you_mean(pool, {each.pool for each in seen}) if pool else ''}"


def _next(found: Sequence[WorkerOut]) -> str:
    """About the first that is in trouble, or else about the first that lives."""
    order = sorted(found, key=lambda each: (each.status != WorkerState.ERROR, each.status not in WORKER.live))
    return f"herdsman why worker {order[0].worker_id}" if order else ""
