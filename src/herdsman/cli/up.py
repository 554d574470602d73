"""`herdsman up`, `serve` and `down`: start and end a control plane on this machine."""

import os
import signal
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from herdsman.cli.connection import connect
from herdsman.cli.context import services_here, settings_here
from herdsman.cli.lazy import SERVER, needed
from herdsman.cli.machine import for_this_machine, on_a_free_port, require_room
from herdsman.cli.output import DryRun, Yes, ask_first, counted, echo, step
from herdsman.cli.worker import Choices, Commands, Modules, Names, sources_of
from herdsman.client import calls
from herdsman.context import Services
from herdsman.db.checks import latest, require_current, require_undamaged
from herdsman.db.upgrade import upgrade
from herdsman.errors import Conflict, Forbidden, HerdsmanError, InvalidSettings
from herdsman.ids import JobId
from herdsman.jobs.commands import find_job
from herdsman.ports import SystemClock
from herdsman.server.runtime_files import Announced, runtime_files, shown_database
from herdsman.server.wiring import open_services, require_address
from herdsman.settings import Settings, load_settings
from herdsman.settings.environment import harmless_environment, keep_secrets
from herdsman.states import JobState
from herdsman.worker.reload import SourceCheck

_LOOK_S = 0.05


def up(
    fake_gpus: Annotated[
        int | None, typer.Option(min=1, help="Pretend that this machine has so many GPUs.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port of the API; 0 takes any that is free.")
    ] = None,
    handler: Names = None,
    module: Modules = None,
    exec_: Commands = None,
) -> None:
    """Prepare the database and run everything on this machine, until Ctrl-C: API, control loop, workers."""
    with needed(SERVER.format("up")):
        from herdsman.cli import replica  # noqa: PLC0415  (imports the server, which takes a while)
    given = {"FAKE_GPUS": fake_gpus, "API_PORT": port}
    told = {name: str(value) for name, value in given.items() if value is not None}
    own = _own_handlers(handler or [], module or [], exec_ or [])
    settings = for_this_machine(settings_here(told | own))
    keep_secrets(exec_ or ())
    if (there := runtime_files(settings).running()) is not None:
        _require_same_database(there, settings)
        replica.tell_already(there)
        return
    settings = on_a_free_port(settings)
    require_address(settings)
    require_room(settings)
    if own:
        _require_handlers(settings)
    with step("preparing the database"):
        services = open_services(settings)
        require_undamaged(services.database)
        schema = upgrade(services.database)
    kept = replica.run(settings, services, schema, "up")
    echo(f"stopped; every job is kept in the database{kept}")


def _own_handlers(functions: list[str], modules: list[str], commands: list[str]) -> dict[str, str]:
    """What the workers of this machine are to run, beside what the settings say already."""
    if not (functions or modules or commands):
        return {}
    known = load_settings().worker
    return {
        "WORKER_HANDLERS": ",".join([*known.worker_handlers, *functions]),
        "WORKER_MODULES": ",".join([*known.worker_modules, *modules]),
        "WORKER_EXEC": "\n".join([*([known.worker_exec] if known.worker_exec else []), *commands]),
    }


def _require_handlers(settings: Settings) -> None:
    """A slip in them is told here, in one sentence, and not by workers that end one after the other."""
    sources = sources_of(settings, Choices(directory=Path.cwd()))
    check = SourceCheck(sources, harmless_environment())
    try:
        with step("loading the handlers"):
            while (found := check.verdict()) is None:
                time.sleep(_LOOK_S)
    finally:
        check.close()
    if found.error is not None:
        raise InvalidSettings(f"the handlers cannot be loaded:\n{found.error}")


def serve() -> None:
    """Run one replica of the control plane, for production: API and control loop, until SIGTERM."""
    with needed(SERVER.format("serve")):
        from herdsman.cli import replica  # noqa: PLC0415
    settings = settings_here()
    keep_secrets()
    require_address(settings)
    services = open_services(settings)
    require_undamaged(services.database)
    require_current(services.database)
    kept = replica.run(settings, services, latest(), "serve")
    echo(f"stopped; every job is kept in the database{kept}")


def _require_same_database(there: Announced, settings: Settings) -> None:
    """Two of them on one directory would take each other's workers for strays."""
    if there.database != shown_database(settings):
        assert there.process is not None
        raise Conflict(
            f"herdsman {there.command} runs here already, as process {there.process.pid}, on the database"
            f" {there.database}: stop it with herdsman down, or give this one a LOCAL_STATE_DIR of its own"
        )


LOOK = timedelta(milliseconds=200)
BETWEEN = timedelta(seconds=1)
"""Two signals in one moment would be one."""


def down(
    now: Annotated[
        bool, typer.Option("--now", help="Have jobs given back, instead of waiting for their ends.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """End the herdsman up of this machine: workers finish their jobs and leave, and every job is kept."""
    settings = settings_here()
    where = runtime_files(settings)
    there = where.running()
    if there is None:
        echo(f"nothing runs here: no herdsman up has its files in {where.directory}")
        return
    _require_up(there)
    held = _held()
    if dry_run:
        echo(f"would end process {_pid(there)} at {there.url}; workers hold {counted(len(held), 'job')}")
        return
    if held:
        ask_first(f"Workers hold {counted(len(held), 'job')}. End them all?", yes=yes)
    _end(there, now=now)
    echo(f"process {_pid(there)} at {there.url} has ended")
    services = services_here(settings)
    for job_id in held:
        echo(f"{job_id} {_became(services, job_id)}")
    echo("every job is kept; herdsman up goes on with them")


def _require_up(there: Announced) -> None:
    if there.command != "up":
        raise Conflict(
            f"process {_pid(there)} is herdsman {there.command}, not herdsman up: whoever started it ends it,"
            f" or kill -TERM {_pid(there)} does"
        )


def _end(there: Announced, *, now: bool) -> None:
    """It is the very process that wrote the file in our directory, begun at the same tick: nobody else is hit."""
    _signal(there)
    if now:
        SystemClock().sleep(BETWEEN)
        _signal(there)
    with step("waiting for the workers; Ctrl-C stops waiting"):
        while there.alive:
            SystemClock().sleep(LOOK)


def _signal(there: Announced) -> None:
    if not there.alive:
        return
    try:
        with suppress(ProcessLookupError):
            os.kill(_pid(there), signal.SIGTERM)
    except PermissionError as error:
        raise Forbidden(
            f"process {_pid(there)} belongs to another user: run herdsman down as the one who started it"
        ) from error


def _held() -> list[str]:
    """The jobs that workers hold; none known where nobody answers."""
    try:
        return [job.job_id for worker in connect().send(calls.herd()).workers for job in worker.jobs]
    except HerdsmanError:
        return []


def _became(services: Services, job_id: str) -> str:
    try:
        state = find_job(services, JobId(job_id)).state
    except HerdsmanError as error:
        return f"is not known: {error}"
    return "went back to the queue" if state is JobState.PENDING else f"is {state}"


def _pid(there: Announced) -> int:
    assert there.process is not None
    return there.process.pid
