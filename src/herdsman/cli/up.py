"""`herdsman up`, `serve` and `down`: start and stop a control plane on this machine."""

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import Annotated

import typer

from herdsman.access.commands import first_admin_token
from herdsman.cli.connect import connect
from herdsman.cli.errors import needed
from herdsman.cli.machine import for_this_machine, on_a_free_port, require_room
from herdsman.cli.output import DryRun, Yes, ask_first, counted, echo, line, step
from herdsman.cli.services import Stopping, services_here, settings_here
from herdsman.cli.worker import HandlerOptions
from herdsman.client import calls
from herdsman.context import Services
from herdsman.db.checks import inspect_server, latest, require_current, require_undamaged
from herdsman.db.connection import Tx
from herdsman.db.upgrade import upgrade
from herdsman.errors import Conflict, Forbidden, HerdsmanError, InvalidSettings
from herdsman.fleet import installation_sql, snapshot_sql
from herdsman.fleet.model import GpuDevice
from herdsman.ids import DEFAULT_POOL, JobId
from herdsman.jobs.commands import count_jobs, find_job
from herdsman.ports import Provider, SystemClock
from herdsman.providers.local.provider import count_gpus
from herdsman.server.runtime_files import Announced, runtime_files, shown_database
from herdsman.server.wiring import open_services, pools_kept, require_address, stored_logs
from herdsman.settings import Settings, load_settings
from herdsman.settings.environment import harmless_environment, keep_secrets
from herdsman.settings.model import Origin
from herdsman.settings.options import LOCAL
from herdsman.states import JobStatus, WorkerStatus
from herdsman.worker.gpu import Nvml
from herdsman.worker.reload import SourceCheck

_SERVER = "herdsman.server.replica"
"""Imports the web framework, which takes a while and which `down` does not need."""
_POLL_S = 0.2
_READY_PATIENCE_S = 60.0
BETWEEN_SIGNALS = timedelta(seconds=1)
"""Two signals at the same moment would be one."""


def up(
    options: HandlerOptions,
    fake_gpus: Annotated[int | None, typer.Option(min=1, help="Simulate this many GPUs.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="Port of the API; 0 takes any free one.")] = None,
) -> None:
    with needed("up"):
        import_module(_SERVER)
    given = {name: str(value) for name, value in (("FAKE_GPUS", fake_gpus), ("API_PORT", port)) if value is not None}
    own = bool(options.handler or options.module or options.exec_)
    if own:
        sources = options.sources(load_settings())
        given["WORKER_HANDLERS"] = ",".join(sources.functions)
        given["WORKER_MODULES"] = ",".join(sources.modules)
        given["WORKER_EXEC"] = "\n".join(sources.commands)
    settings = for_this_machine(settings_here(given))
    keep_secrets(options.exec_ or ())
    if (there := runtime_files(settings).running()) is not None:
        _print_already_running(there, settings)
        return
    settings = on_a_free_port(settings)
    require_address(settings)
    require_room(settings)
    if own:
        # A mistake in them is reported here, and not by workers that exit one after the other.
        check = SourceCheck(HandlerOptions().sources(settings), harmless_environment())
        try:
            with step("loading the handlers"):
                while (found := check.verdict()) is None:
                    time.sleep(_POLL_S)
        finally:
            check.close()
        if found.error is not None:
            raise InvalidSettings(f"the handlers cannot be loaded:\n{found.error}")
    with step("preparing the database"):
        services = open_services(settings)
        require_undamaged(services.database)
        schema = upgrade(services.database)
    _run(settings, services, schema, "up")


def _print_already_running(there: Announced, settings: Settings) -> None:
    """`Conflict` on another database: two of them in one directory would take each other's workers for orphans."""
    assert there.process is not None
    if there.database != shown_database(settings):
        raise Conflict(
            f"herdsman {there.command} already runs here, as process {there.process.pid}, on the database"
            f" {there.database}: stop it with herdsman down, or give this one a LOCAL_STATE_DIR of its own"
        )
    line("running", f"herdsman {there.command} already runs here, as process {there.process.pid}")
    line("api", there.url)
    line("page", f"{there.url}/")
    line("database", there.database)
    me = _command()
    for name, text in (("next", f"{me} jobs"), ("", f"{me} top"), ("", f"{me} down        stops it")):
        line(name, text)


def serve() -> None:
    with needed("serve"):
        import_module(_SERVER)
    settings = settings_here()
    keep_secrets()
    require_address(settings)
    services = open_services(settings)
    require_undamaged(services.database)
    require_current(services.database)
    _run(settings, services, latest(), "serve")


def _run(settings: Settings, services: Services, schema: str, command: str) -> None:
    """One replica of the control plane, from its greeting until it is stopped."""
    from herdsman.server.replica import open_replica  # noqa: PLC0415

    try:
        with stored_logs(settings, services.database):
            print_database(services, schema)
            files = runtime_files(settings)
            replica = open_replica(settings, services)
            provider = replica.control.provider
            with step("starting the API"):
                replica.start()
                secret = first_admin_token(services, replica.state.keyring, files.admin_token)
            stopping = Stopping()  # before Ctrl-C is suggested
            try:
                files.announce(replica.url, shown_database(settings), command)
                _print_greeting(services, settings, replica.url, secret)
                _announce_workers(services, settings, stopping)
                services.database.in_service = True
                with files.occupied(replica.control.leadership.holder):
                    replica.run(stopping)
            finally:
                _drain_local_workers(provider, stopping)
                files.withdraw()
                replica.stop()
                kept = _left(provider, services)
    finally:
        services.database.close()
    echo(f"stopped; every job is kept in the database{kept}")


def _drain_local_workers(provider: Provider, stopping: Stopping) -> None:
    """Workers of this machine finish their jobs and exit; rented machines are left to the next leader."""
    asked = 0
    if provider.name != LOCAL:
        return
    while workers := provider.list_instances():
        if asked != stopping.asked or not asked:
            asked = stopping.asked or 1
            for worker in workers:
                provider.terminate(worker.ref)
            what = "finish their jobs" if asked == 1 else "give their jobs back"
            echo(f"waiting for {counted(len(workers), 'worker')} to {what} and exit; Ctrl-C again does not wait")
        if asked > 2:
            return
        time.sleep(_POLL_S)


def _left(provider: Provider, services: Services) -> str:
    """The jobs that are kept, and the machines that keep costing money; empty where the database is away."""
    try:
        counts = _counts(services)
        workers = services.database.read(snapshot_sql.read_workers)
    except HerdsmanError:
        return ""
    jobs = f": {counts}" if counts else ""
    machines = sum(each.alive and bool(each.instance_name) for each in workers)
    if provider.name == LOCAL or not machines:
        return jobs
    are = f"1 {provider.name} machine is" if machines == 1 else f"{machines} {provider.name} machines are"
    return f"{jobs}; {are} still running, and billed until a control plane terminates them"


def _counts(services: Services) -> str:
    return ", ".join(f"{count} {status}" for status, count in count_jobs(services).items() if count)


def print_database(services: Services, schema: str) -> None:
    server = inspect_server(services.database)
    line("database", f"{server}, schema {schema}")
    line("", services.database.engine.url.render_as_string(hide_password=True))

    def doubt(tx: Tx) -> str:
        known = installation_sql.find(tx)
        return "" if known is None else known.doubt(installation_sql.place_of(tx), ())

    for warning in (*server.warnings, *filter(None, [services.database.read(doubt)])):
        line("warning", warning)


def _print_greeting(services: Services, settings: Settings, url: str, token: str | None) -> None:
    """A new token is shown once, also inside the link: a click opens the page."""
    line("api", url)
    line("page", f"{url}/" if token is None else f"{url}/#token={token}")
    if token is not None:
        line("token", token)
        kept = runtime_files(settings).admin_token
        line("", f"an admin token, not shown again; {kept} keeps it for the commands of this machine")
    provider, fake = settings.providers.provider, settings.local.fake_gpus
    if provider == LOCAL:
        devices = () if fake else Nvml()().devices
        line("gpus", gpus_in_words(fake, devices, chosen=settings.origin("FAKE_GPUS") is not Origin.DEFAULT))
    line("fleet", f"{provider}, {pools_in_words(settings)}")
    line("jobs", _counts(services) or "none yet")
    me = _command()
    line("next", f"{me} submit demo --count 20")
    line("", f"{me} top")
    line("", f"{me} chaos kill-worker        in another terminal; stop with Ctrl-C")


def gpus_in_words(fake: int, devices: tuple[GpuDevice, ...], *, chosen: bool) -> str:
    if fake and not chosen:
        return f"no GPU found: simulating {fake} (FAKE_GPUS=0 simulates none)"
    if fake:
        return f"simulating {fake} (FAKE_GPUS)"
    if not devices:
        return (
            "no GPU found, so no worker is started: herdsman worker starts one without a GPU,"
            " and herdsman up --fake-gpus 2 simulates two GPUs"
        )
    return ", ".join(f"{each.name} ({each.total_mb // 1024} GB)" for each in devices)


def pools_in_words(settings: Settings) -> str:
    parts: list[str] = []
    for name, pool in pools_kept(settings).items():
        least, most = pool.min_workers, pool.max_workers
        size = str(most) if least == most else f"{least} to {most}"
        prefix = "" if name == DEFAULT_POOL else f"pool {name} "
        full = " (one for each GPU)" if pool.machine_is_full else ""
        parts.append(f"{prefix}{size} workers{full}, policy {pool.scaling}")
    return "; ".join(parts)


def _announce_workers(services: Services, settings: Settings, stopping: Event) -> None:
    """In the background: the first workers of this machine take a moment."""
    local = settings.providers.provider == LOCAL
    wanted = min(settings.scaling.min_active_gpus, settings.local.fake_gpus or count_gpus()) if local else 0

    def wait() -> None:
        waited, ready = 0.0, 0
        while ready < wanted and waited < _READY_PATIENCE_S:
            if stopping.wait(_POLL_S):
                return
            waited += _POLL_S
            with suppress(HerdsmanError):
                workers, _, _ = services.database.read(snapshot_sql.living_workers)
                ready = sum(each["status"] == WorkerStatus.ACTIVE.value for each in workers)
        if ready:
            line("workers", f"{ready} ready after {waited:.0f} s")
        else:
            line("workers", f"none ready after {waited:.0f} s; to see why: herdsman why pool default")

    if wanted:
        Thread(target=wait, name="greeting", daemon=True).start()


def _command() -> str:
    """How to call herdsman here."""
    if shutil.which("herdsman"):
        return "herdsman"
    beside = Path(sys.executable).parent / "herdsman"
    if not beside.exists():
        return f"{sys.executable} -m herdsman"
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)


def down(
    now: Annotated[bool, typer.Option("--now", help="Give jobs back to the queue instead of finishing them.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    settings = settings_here()
    files = runtime_files(settings)
    there = files.running()
    if there is None:
        echo(f"nothing to stop: no herdsman up has its files in {files.directory}")
        return
    assert there.process is not None
    pid = there.process.pid
    if there.command != "up":
        raise Conflict(
            f"process {pid} is herdsman {there.command}, not herdsman up: stop it where it was started,"
            f" or with kill -TERM {pid}"
        )
    held: list[str] = []
    with suppress(HerdsmanError):  # a server that does not answer can be stopped, too
        held = [job.job_id for worker in connect().send(calls.fleet()).workers for job in worker.jobs]
    if dry_run:
        echo(f"would stop process {pid} at {there.url}; {counted(len(held), 'job')} running")
        return
    if held:
        ask_first(f"{counted(len(held), 'job')} running. Stop anyway?", yes=yes)
    # The very process that wrote the file, started at the same tick: no other can be hit.
    _signal(there, pid)
    if now:
        SystemClock().sleep(BETWEEN_SIGNALS)
        _signal(there, pid)
    with step("waiting for the workers; Ctrl-C stops waiting"):
        while there.alive:
            time.sleep(_POLL_S)
    echo(f"process {pid} at {there.url} has stopped")
    services = services_here(settings)
    for job_id in held:
        try:
            status = find_job(services, JobId(job_id)).status
        except HerdsmanError as error:
            echo(f"{job_id} is unknown: {error}")
        else:
            echo(f"{job_id} {'went back to the queue' if status is JobStatus.PENDING else f'is {status}'}")
    echo("every job is kept; herdsman up continues with them")


def _signal(there: Announced, pid: int) -> None:
    try:
        if there.alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    except PermissionError as error:
        raise Forbidden(
            f"process {pid} belongs to another user: run herdsman down as the user who started it"
        ) from error
