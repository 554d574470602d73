"""`herdsman worker`: the process that runs jobs on this machine."""

import signal
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Annotated

import typer

from herdsman.cli.connect import server_url
from herdsman.cli.errors import Server
from herdsman.cli.output import echo
from herdsman.cli.services import settings_here
from herdsman.client.queue import register
from herdsman.connectors.registry import Around, ConnectorManager
from herdsman.errors import InvalidRequest, InvalidSettings
from herdsman.ids import DEFAULT_POOL, WorkerId, check_name
from herdsman.jobs.protocol import Load, from_variables, to_variables
from herdsman.ports import SystemClock, WorkQueue
from herdsman.results import open_store
from herdsman.server.runtime_files import runtime_files
from herdsman.settings import Settings
from herdsman.settings import environment as env
from herdsman.settings.options import COMFYUI, result_options, services_of
from herdsman.worker.ahead import Prefetch
from herdsman.worker.gpu import GpuReader, Nvml, Sampler, fake_gpus, on_node, unseen_gpus
from herdsman.worker.handler_pool import HandlerPool
from herdsman.worker.handler_process import HandlerChild, SplitChild, remove_dead_homes
from herdsman.worker.health import MachineHealth, ServiceHealth
from herdsman.worker.heartbeat import Keeper, WorkerProbes
from herdsman.worker.pids import adopt_orphans, own_processes
from herdsman.worker.registry import Sources
from herdsman.worker.reload import QUICK, Reloading
from herdsman.worker.sandbox import Sandbox, require_sandbox
from herdsman.worker.service_run import Outside, Watching
from herdsman.worker.stop_rules import DeadMan, ExitReason, Limits
from herdsman.worker.supervisor import Supervisor

LONGEST_OUTAGE = timedelta(days=1)
"""A machine whose control plane answers waits for its database; its token may expire before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """Where handlers come from, beside what the settings name."""

    handler: Annotated[
        list[str] | None, typer.Option("--handler", help="A handler as MODULE:FUNCTION; may be repeated.")
    ] = None
    module: Annotated[
        list[str] | None,
        typer.Option("--module", "-m", help="A module whose decorated functions are handlers; may be repeated."),
    ] = None
    exec_: Annotated[
        list[str] | None, typer.Option("--exec", help="A command that runs jobs, as TYPE=COMMAND; may be repeated.")
    ] = None

    def sources(self, settings: Settings) -> Sources:
        """Modules are looked for in the current directory first."""
        chosen = settings.worker
        written = (line.strip() for line in (chosen.worker_exec or "").splitlines())
        return Sources(
            functions=(*chosen.worker_handlers, *(self.handler or ())),
            modules=(*chosen.worker_modules, *(self.module or ())),
            commands=(*filter(None, written), *(self.exec_ or ())),
            paths=(str(Path.cwd()),),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions(HandlerOptions):
    comfyui: Annotated[
        str | None, typer.Option(help="Run jobs of type comfyui on the ComfyUI at this URL; COMFYUI_URL by default.")
    ] = None
    isolate: Annotated[bool, typer.Option(help="Run each job in a new process, in a sandbox.")] = False
    sandbox: Annotated[bool, typer.Option(help="Hide the processes and files of this program from handlers.")] = False
    dev: Annotated[bool, typer.Option("--dev", help="Reload handlers when their source files change.")] = False
    prefetch: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="Hold at most this many jobs; 1 takes none ahead of the one at work."),
    ] = None
    fake_gpus: Annotated[int | None, typer.Option("--fake-gpus", min=0, help="Simulate this many GPUs.")] = None


def worker(
    options: WorkerOptions,
    worker_id: Annotated[
        str | None, typer.Option("--id", help="Its id; by default HERDSMAN_WORKER_ID or a new one.")
    ] = None,
    pool: Annotated[str, typer.Option(help="The pool whose jobs it runs, if it is new.")] = DEFAULT_POOL,
) -> None:
    settings = settings_here()
    env.keep_secrets(options.exec_ or ())
    env.show_name()
    adopt_orphans()
    queue, named = _queue(settings, worker_id or settings.worker.worker_id, pool)
    supervisor = build_supervisor(settings, queue, options, named)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: supervisor.drain())
    with watched(settings, supervisor):
        ended = supervisor.run()
    if ended.how is ExitReason.DRAINED:
        echo(f"Worker {named} shutting down gracefully")
        return
    echo(f"Worker {named} exits: {ended.reason}", err=True)
    raise typer.Exit(ended.how.value)


def _queue(settings: Settings, worker_id: str | None, pool: str) -> tuple[WorkQueue, str]:
    """At the server that API_URL names, or at that of this machine, whose admin token its user can read."""
    url, where = server_url(settings), runtime_files(settings)
    secret, source = where.token(), str(where.admin_token)
    for name, given in (("API_TOKEN", settings.api.api_token), ("BOOTSTRAP_TOKEN", settings.worker.bootstrap_token)):
        if given is not None:
            secret, source = given.get_secret_value(), name
    if secret is None:
        raise InvalidSettings(
            f"{url} requires a token, and neither BOOTSTRAP_TOKEN nor API_TOKEN is set:"
            " set one that the worker can register with"
        )
    named = None if worker_id is None else WorkerId(worker_id)
    server = Server(url, token_from=source, what="this worker", say=echo)
    with server.explained():
        queue, registered = register(
            url,
            secret,
            named,
            incarnation=token_hex(16),
            pool=pool,
            on_version=server.met,
            outage=LONGEST_OUTAGE,
            say=echo,
        )
    echo(f"Worker {registered.worker_id} registered at {url}")
    return queue, registered.worker_id


def build_supervisor(settings: Settings, queue: WorkQueue, options: WorkerOptions, worker_id: str) -> Supervisor:
    remove_dead_homes()
    clock, chosen = SystemClock(), settings.worker
    interval = timedelta(seconds=chosen.heartbeat_interval_sec)
    self_fence = timedelta(seconds=chosen.self_fence_sec)
    outside = _outside(settings, options.comfyui)
    connectors = Around(clock=clock, results=open_store(outside.results))
    manager = ConnectorManager(services=outside.services, around=connectors)
    services = ServiceHealth(manager=manager, interval=interval, stall=outside.watching.stall, say=echo)
    if outside.services:
        services.start()
    sampler = Sampler(on_node(_node(settings), services.seen_by(_gpus(settings, options, worker_id))), clock, interval)
    sampler.start()
    handlers = _handler_pool(settings, options, outside.to_json())
    health = MachineHealth(
        gpus=sampler.latest,
        warm=handlers,
        disk_mb=chosen.worker_min_free_disk_mb,
        memory_mb=chosen.worker_min_free_memory_mb,
    )
    unowned, lifetime = (
        timedelta(seconds=seconds) if seconds else None
        for seconds in (chosen.worker_unowned_sec, chosen.worker_max_lifetime_sec)
    )
    return Supervisor(
        queue=queue,
        keeper=Keeper(
            queue,
            clock,
            interval,
            health.report,
            echo,
            handlers.model_state,
            unfit=services.faults if outside.services else dict[str, str],
            self_fence=self_fence,
            server=server_url(settings),
        ),
        clock=clock,
        limits=Limits(
            self_fence=self_fence,
            drain_grace=timedelta(seconds=settings.health.graceful_shutdown_timeout_sec),
            stop_grace=timedelta(seconds=settings.jobs.cancel_grace_sec),
        ),
        warm=handlers,
        say=echo,
        unfit=services.unfit if outside.services else dict[str, str],
        short=health.short if health.disk_mb or health.memory_mb else lambda: None,
        wait=QUICK if options.dev else Supervisor.wait,
        prefetch=Prefetch(most=1 if options.dev or options.isolate else options.prefetch or chosen.worker_prefetch),
        deadman=DeadMan(unowned_after=unowned, max_lifetime=lifetime),
    )


def _handler_pool(settings: Settings, options: WorkerOptions, services: str | None) -> HandlerPool:
    """The process of the handlers, and beside it one that speaks to services, where there are any."""
    environment, sources = env.harmless_environment(), options.sources(settings)
    if options.dev:
        # Compiled files are known by the second they were made in: two changes within one would look like one.
        environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    sandbox = _sandbox(settings) if options.sandbox or options.isolate else None
    try:
        # What the pool wanted at the start; a heartbeat reply may change it later.
        load = from_variables(env.wanted_models())
    except InvalidRequest as error:
        raise InvalidSettings(str(error)) from error

    def launch(load: Load) -> HandlerChild | SplitChild:
        # With --dev there is a second child: the one that tries what was saved.
        alone = not options.dev and services is None
        given = environment | to_variables(load)
        own = HandlerChild(sources, given, sandbox=sandbox, say=echo, sole=alone)
        if services is None:
            return own
        try:
            outside = HandlerChild(Sources(installed=False), given, services=services, say=echo)
        except BaseException:
            own.close()
            raise
        return SplitChild(own, outside)

    pool = (
        partial(Reloading, sources=sources, environment=environment, directory=Path.cwd())
        if options.dev
        else HandlerPool
    )
    max_jobs = 1 if options.isolate else settings.worker.worker_max_jobs or None
    return pool(launch=launch, load=load, clock=SystemClock(), say=echo, max_jobs=max_jobs)


@contextmanager
def watched(settings: Settings, supervisor: Supervisor) -> Generator[None]:
    """Ends a supervisor that hangs: its job's process dies with it, and another worker gets the job."""
    chosen = settings.worker
    signs = WorkerProbes(
        threshold=settings.watchdog.watchdog_threshold_sec,
        interval=settings.watchdog.watchdog_interval_sec,
        readiness=settings.watchdog.readiness_threshold_sec,
        crash_dir=runtime_files(settings).directory / "crashes",
        address=(chosen.worker_health_host, chosen.worker_health_port) if chosen.worker_health_port else None,
        keeper=supervisor.keeper.heartbeat,
        say=echo,
    )
    supervisor.alive = signs.supervisor.beat
    with signs.shown(lambda: supervisor.warm.ready):
        yield


def _outside(settings: Settings, comfyui: str | None) -> Outside:
    chosen, services = settings.connectors, services_of(settings)
    if comfyui is not None:
        services[COMFYUI] = {"connector": COMFYUI, "url": comfyui}
    return Outside(
        services=services,
        results=result_options(settings),
        watching=Watching(
            interval=timedelta(milliseconds=chosen.worker_health_check_interval_ms),
            inactivity=timedelta(milliseconds=chosen.worker_websocket_inactivity_timeout_ms),
            patience=timedelta(seconds=chosen.worker_service_patience_sec),
            stall=timedelta(seconds=chosen.worker_service_stall_sec),
        ),
    )


def _sandbox(settings: Settings) -> Sandbox:
    require_sandbox()
    here, temporary = Path.cwd(), Path(tempfile.gettempdir()).absolute()
    database = env.secret_files(settings.database.database_url.get_secret_value())
    ours = [runtime_files(settings).directory, here / ".env", here / "herdsman.toml", *map(Path, database)]
    needed = [Path(each).absolute() for each in (sys.prefix, sys.base_prefix, __file__, here)]
    if not any(each.is_relative_to(temporary) for each in needed):
        ours.append(temporary)
    return Sandbox(hidden=tuple(each for each in ours if each.exists()))


def _gpus(settings: Settings, options: WorkerOptions, worker_id: str) -> GpuReader:
    count = settings.local.fake_gpus if options.fake_gpus is None else options.fake_gpus
    if count:
        return fake_gpus(count, owner=worker_id, given=env.visible_gpus())
    return Nvml(env.visible_gpus(), own_processes) if settings.worker.enable_nvml else unseen_gpus


def _node(settings: Settings) -> str:
    named = settings.worker.worker_node_id
    if named is None:
        return env.this_machine()
    try:
        check_name("WORKER_NODE_ID", named, 128)
    except InvalidRequest as error:
        raise InvalidSettings(str(error)) from error
    return named
