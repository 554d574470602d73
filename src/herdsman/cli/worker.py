"""`herdsman worker`: the process that runs jobs on this machine."""

import signal
from datetime import timedelta
from typing import Annotated

import typer

from herdsman.cli.opening import settings_here
from herdsman.control.direct_queue import DirectQueue
from herdsman.core.model import DEFAULT_POOL, PoolId, WorkerId
from herdsman.settings import Settings
from herdsman.settings.surroundings import harmless_environment, visible_gpus
from herdsman.store.upgrade import require_current
from herdsman.wiring import SystemClock, new_worker_id, open_services
from herdsman.worker import handlers
from herdsman.worker.child import HandlerChild
from herdsman.worker.gpu import Look, Nvml, Sampler, fake_gpus, unseen_gpus
from herdsman.worker.keeper import Keeper
from herdsman.worker.supervisor import Supervisor
from herdsman.worker.watch import Limits

_DISMISSED = 4


def worker(
    worker_id: Annotated[
        str | None, typer.Option("--id", help="Its id; without one, HERDSMAN_WORKER_ID or a new one.")
    ] = None,
    pool: Annotated[str, typer.Option(help="The pool whose jobs it runs, where it is new.")] = DEFAULT_POOL,
    fake: Annotated[
        int | None, typer.Option("--fake-gpus", min=0, help="GPUs to pretend that it has.")
    ] = None,
) -> None:
    """Run jobs on this machine until told to stop."""
    settings = settings_here()
    services = open_services(settings)
    require_current(services.database)
    queue = DirectQueue(services, WorkerId(worker_id or settings.worker.worker_id or new_worker_id()))
    new = queue.enlist(PoolId(pool))
    typer.echo(f"Worker {queue.worker_id} {'registered' if new else 'reports for duty'}")
    supervisor = _supervisor(settings, queue, fake if fake is not None else settings.local.fake_gpus)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: supervisor.drain())
    dismissed = supervisor.run()
    if dismissed is not None:
        typer.echo(f"Worker {queue.worker_id} is not wanted any more: {dismissed}")
        raise typer.Exit(_DISMISSED)
    typer.echo(f"Worker {queue.worker_id} shutting down gracefully")
    services.database.close()


def _supervisor(settings: Settings, queue: DirectQueue, fake: int) -> Supervisor:
    clock, interval = SystemClock(), timedelta(seconds=settings.worker.heartbeat_interval_sec)
    sampler = Sampler(_look(settings, fake), clock, interval)
    sampler.start()
    environment = harmless_environment()
    return Supervisor(
        queue=queue,
        keeper=Keeper(queue, clock, interval, sampler.latest, typer.echo),
        clock=clock,
        limits=Limits(
            self_fence=timedelta(seconds=settings.worker.self_fence_sec),
            drain_grace=timedelta(seconds=settings.health.graceful_shutdown_timeout_sec),
            stop_grace=timedelta(seconds=settings.jobs.cancel_grace_sec),
        ),
        poll=timedelta(seconds=settings.database.sql_poll_sec),
        types=handlers.installed(),
        launch=lambda claim: HandlerChild(claim, environment),
        say=typer.echo,
    )


def _look(settings: Settings, fake: int) -> Look:
    if fake:
        return fake_gpus(fake)
    return Nvml(visible_gpus()) if settings.worker.enable_nvml else unseen_gpus
