"""`herdsman down`: ends the `herdsman up` of this machine, and says what became of the jobs."""

import os
import signal
from contextlib import suppress
from datetime import timedelta
from typing import Annotated

import typer

from herdsman.cli.connection import connect
from herdsman.cli.context import services_here, settings_here
from herdsman.cli.output import DryRun, Yes, ask_first, echo, step
from herdsman.client import dashboard_calls
from herdsman.control.commands import find_job
from herdsman.control.services import Services
from herdsman.control.whereabouts import Announced, whereabouts
from herdsman.core.errors import Conflict, Forbidden, HerdsmanError
from herdsman.core.model import JobId
from herdsman.core.states import JobState
from herdsman.ports import SystemClock
from herdsman.settings import Settings

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
    where = whereabouts(settings)
    there = where.running()
    if there is None:
        echo(f"nothing runs here: no herdsman up has its files in {where.directory}")
        return
    _require_up(there)
    held = _held()
    if dry_run:
        echo(f"would end process {_pid(there)} at {there.url}; workers hold {_jobs(len(held))}")
        return
    if held:
        ask_first(f"Workers hold {_jobs(len(held))}. End them all?", yes=yes)
    _end(there, now=now)
    echo(f"process {_pid(there)} at {there.url} has ended")
    _tell(settings, held)


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
        return [
            job.job_id for worker in connect().send(dashboard_calls.herd()).workers for job in worker.jobs
        ]
    except HerdsmanError:
        return []


def _tell(settings: Settings, held: list[str]) -> None:
    services = services_here(settings)
    for job_id in held:
        echo(f"{job_id} {_became(services, job_id)}")
    echo("every job is kept; herdsman up goes on with them")


def _became(services: Services, job_id: str) -> str:
    try:
        state = find_job(services, JobId(job_id)).state
    except HerdsmanError as error:
        return f"is not known: {error}"
    return "went back to the queue" if state is JobState.PENDING else f"is {state}"


def _pid(there: Announced) -> int:
    assert there.process is not None
    return there.process.pid


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
