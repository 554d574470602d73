"""One replica of the control plane on this machine, from its greeting to its end: API and control loop."""

import shutil
import sys
import time
from pathlib import Path
from threading import Event, Thread

from herdsman.access.commands import first_admin_token
from herdsman.cli.context import Stopping
from herdsman.cli.output import echo, line, step
from herdsman.context import Services
from herdsman.db.checks import inspect_server
from herdsman.db.connection import Tx
from herdsman.errors import HerdsmanError
from herdsman.fleet import installation_sql, snapshot_sql
from herdsman.fleet.model import FleetPolicy, GpuDevice
from herdsman.fleet.snapshot_sql import living_workers
from herdsman.ids import DEFAULT_POOL
from herdsman.jobs.commands import count_jobs
from herdsman.ports import Provider
from herdsman.providers.local.provider import count_gpus
from herdsman.server.replica import open_replica
from herdsman.server.runtime_files import Announced, runtime_files, shown_database
from herdsman.server.wiring import pools_kept, stored_logs
from herdsman.settings.model import Origin, Settings
from herdsman.settings.options import LOCAL
from herdsman.states import WorkerState
from herdsman.worker.gpu import Nvml

_OBSERVE_S = 0.2


def run(settings: Settings, services: Services, schema: str, command: str) -> str:
    """Until it is told to stop; then how many jobs there are."""
    try:
        with stored_logs(settings, services.database):
            tell_database(services, schema)
            return _serve(settings, services, command)
    finally:
        services.database.close()


def _serve(settings: Settings, services: Services, command: str) -> str:
    where = runtime_files(settings)
    replica = open_replica(settings, services)
    with step("starting the API"):
        replica.start()
        secret = first_admin_token(services, replica.state.keyring, where.admin_token)
    stopping = Stopping()  # before anybody is told to type Ctrl-C
    try:
        where.announce(replica.server.url, shown_database(settings), command)
        tell_api(replica.server.url, secret, where.admin_token)
        tell_fleet(services, settings)
        tell_next()
        tell_when_ready(services, settings, stopping)
        services.database.in_service = True
        with where.occupied(replica.control.leadership.holder):
            replica.run(stopping)
    finally:
        _drain_local_workers(replica.control.provider, stopping)
        where.withdraw()
        replica.stop()
        kept = _jobs_left(services) + _machines_left(replica.control.provider, services)
    return kept


def _drain_local_workers(provider: Provider, stopping: Stopping) -> None:
    """Workers of this machine finish the job they hold and leave; rented machines are left to the next leader."""
    told = 0
    if provider.name != LOCAL:
        return
    while workers := provider.list_instances():
        if told != stopping.asked or not told:
            told = stopping.asked or 1
            for worker in workers:
                provider.terminate(worker.ref)
            what = "finish their jobs and leave" if told == 1 else "give their jobs back and leave"
            echo(f"{len(workers)} workers of this machine {what}; Ctrl-C again does not wait for them")
        if told > 2:
            return
        time.sleep(_OBSERVE_S)


def _jobs_left(services: Services) -> str:
    try:
        counts = {state: count for state, count in count_jobs(services).items() if count}
    except HerdsmanError:
        return ""
    return f": {', '.join(f'{count} {state}' for state, count in counts.items())}" if counts else ""


def _machines_left(provider: Provider, services: Services) -> str:
    """What goes on costing money when nobody is there to end it."""
    if provider.name == LOCAL:
        return ""
    try:
        left = sum(
            each.alive and bool(each.instance_name)
            for each in services.database.read(snapshot_sql.see_workers)
        )
    except HerdsmanError:
        return ""
    if not left:
        return ""
    name = provider.name
    goes_on = (
        f"1 machine of {name} runs on and is" if left == 1 else f"{left} machines of {name} run on and are"
    )
    return f"; {goes_on} billed until a control plane ends them"


_LOOK_S = 0.3
_PATIENCE_S = 60.0


def tell_database(services: Services, schema: str) -> None:
    server = inspect_server(services.database)
    line("database", f"{server}, schema {schema}")
    line("", services.database.engine.url.render_as_string(hide_password=True))
    for warning in server.warnings:
        line("warning", warning)
    if doubt := services.database.read(_doubt):
        line("warning", doubt)


def _doubt(tx: Tx) -> str:
    known = installation_sql.find(tx)
    return "" if known is None else known.doubt(installation_sql.place_of(tx), ())


def tell_api(url: str, token: str | None, token_file: Path) -> None:
    """A token that is new is shown once, inside the link too: a click opens the page."""
    line("api", url)
    line("page", f"{url}/" if token is None else f"{url}/#token={token}")
    if token is not None:
        line("token", token)
        line("", f"of an admin, shown only now; kept in {token_file} for the commands of this machine")


def tell_fleet(services: Services, settings: Settings) -> None:
    local = settings.providers.provider == "local"
    devices = Nvml()().devices if local and not settings.local.fake_gpus else ()
    if local:
        asked = settings.origin("FAKE_GPUS") is not Origin.DEFAULT
        line("gpus", gpus_in_words(settings.local.fake_gpus, devices, asked=asked))
    line("fleet", f"{settings.providers.provider}, {pools_in_words(settings)}")
    counts = {state: count for state, count in count_jobs(services).items() if count}
    line("jobs", ", ".join(f"{count} {state}" for state, count in counts.items()) or "none yet")


def gpus_in_words(fake: int, devices: tuple[GpuDevice, ...], *, asked: bool) -> str:
    if fake and not asked:
        return f"none found, so {fake} are pretended: jobs run, on no real GPU (FAKE_GPUS=0 pretends none)"
    if fake:
        return f"{fake} pretended (FAKE_GPUS): jobs run, on no real GPU"
    if not devices:
        return (
            "none on this machine, so no worker is started: herdsman worker starts one without a GPU,"
            " and herdsman up --fake-gpus 2 pretends that there are two"
        )
    return ", ".join(f"{each.name} ({each.total_mb // 1024} GB)" for each in devices)


def tell_next() -> None:
    me = command()
    line("next", f"{me} submit demo --count 20")
    line("", f"{me} top")
    line("", f"{me} chaos kill-worker        in another terminal; stop with Ctrl-C")


def tell_already(there: Announced) -> None:
    assert there.process is not None
    me = command()
    line("running", f"herdsman {there.command} runs here already, as process {there.process.pid}")
    line("api", there.url)
    line("page", f"{there.url}/")
    line("database", there.database)
    line("next", f"{me} jobs")
    line("", f"{me} top")
    line("", f"{me} down        stops it")


def tell_when_ready(services: Services, settings: Settings, stopping: Event) -> None:
    """In the background: the first workers of this machine take a moment."""
    local = settings.providers.provider == "local"
    wanted = min(settings.scaling.min_active_gpus, settings.local.fake_gpus or count_gpus()) if local else 0
    if wanted:
        Thread(target=_wait, args=(services, wanted, stopping), name="greeting", daemon=True).start()


def _wait(services: Services, wanted: int, stopping: Event) -> None:
    waited, ready = 0.0, 0
    while ready < wanted and waited < _PATIENCE_S:
        if stopping.wait(_LOOK_S):
            return
        waited += _LOOK_S
        ready = _ready(services)
    if ready:
        line("workers", f"{ready} ready after {waited:.0f} s")
    else:
        line("workers", f"none ready after {waited:.0f} s; herdsman why pool default says why")


def _ready(services: Services) -> int:
    try:
        found = services.database.read(living_workers).workers
    except HerdsmanError:
        return 0
    return sum(each["status"] == WorkerState.ACTIVE.value for each in found)


def command() -> str:
    """As it can be typed here."""
    if shutil.which("herdsman"):
        return "herdsman"
    beside = Path(sys.executable).parent / "herdsman"
    if not beside.exists():
        return f"{sys.executable} -m herdsman"
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)


def pools_in_words(settings: Settings) -> str:
    return "; ".join(
        f"{'' if name == DEFAULT_POOL else f'pool {name} '}{_size(pool)} workers"
        f"{' (one for each GPU)' if pool.machine_is_full else ''}, policy {pool.scaling}"
        for name, pool in pools_kept(settings).items()
    )


def _size(pool: FleetPolicy) -> str:
    least, most = pool.min_workers, pool.max_workers
    return str(most) if least == most else f"{least} to {most}"
