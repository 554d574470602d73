"""`herdsman spawn-gpu` and `herdsman terminate-gpu`: one instance more or less, for smoke tests."""

from typing import Annotated

import typer

from herdsman.cli.context import services_here, settings_here
from herdsman.cli.output import echo
from herdsman.cli.short_ids import pick
from herdsman.control.by_hand import spawn_worker, terminate_worker
from herdsman.core.model import DEFAULT_POOL, PoolId, WorkerId
from herdsman.store.sight import see_workers
from herdsman.wiring import open_control


def spawn_gpu(pool: Annotated[str, typer.Option(help="The pool that gets it.")] = DEFAULT_POOL) -> None:
    """Start one worker now, within all limits, and print its id and its instance."""
    echo(spawn_worker(open_control(settings_here(), services_here()).reconciler, PoolId(pool)))


def terminate_gpu(
    worker_id: Annotated[str, typer.Argument(metavar="WORKER", help="The worker's id, or the end of it.")],
    force: Annotated[bool, typer.Option("--force", help="Even if it holds a job, which goes back.")] = False,
) -> None:
    """Let one worker go and ask for the end of its instance; the control loop sees to it that it is gone."""
    services = services_here()
    reconciler = open_control(settings_here(), services, spawns=False).reconciler
    known = [each.id for each in services.database.read(see_workers)]
    worker_id = pick("worker", worker_id, known)
    ran = terminate_worker(reconciler, WorkerId(worker_id), with_job=force)
    if reason := ran.summary()["skipped"]:
        echo(f"its instance was not looked at: {reason}")
    for step in ran.steps():
        result = "" if step["done"] else f" [not done: {step['said']}]"
        echo(f"{step['action']}: {step['why']}{result}")
    echo(f"{worker_id} is let go; cycles end its instance, and confirm that it is gone")
    if not ran.complete:
        raise typer.Exit(1)
