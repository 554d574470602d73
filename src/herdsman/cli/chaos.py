"""`herdsman chaos`: kills or pauses a worker of this machine, to see the fleet recover."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

import typer

from herdsman.cli.connect import connect, pick
from herdsman.cli.machine import for_this_machine
from herdsman.cli.output import DryRun, Yes, ask_first, echo
from herdsman.cli.services import settings_here
from herdsman.client import calls
from herdsman.errors import InvalidRequest, NotFound
from herdsman.fleet.model import worker_of
from herdsman.ports import SystemClock
from herdsman.providers.local.processes import Identity, family, is_alive, kill_family
from herdsman.providers.local.provider import LocalProvider
from herdsman.server.wiring import open_provider
from herdsman.settings import Settings, load_settings
from herdsman.states import WorkerStatus

chaos = typer.Typer(add_completion=False, no_args_is_help=True)

WorkerName = Annotated[
    str | None, typer.Argument(metavar="[WORKER]", help="The worker's id, or the end of it; by default a busy one.")
]
Count = Annotated[int, typer.Option("--count", min=1, max=64, help="How many workers.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    worker_id: str
    process: Identity
    jobs: tuple[str, ...]

    def __str__(self) -> str:
        held = f"running {', '.join(self.jobs)}" if self.jobs else "idle"
        return f"{self.worker_id} (process {self.process.pid}, {held})"


@chaos.command("kill-worker")
def kill_worker(worker: WorkerName = None, count: Count = 1, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Kill workers with kill -9, like a machine that loses power."""
    if victims := _agreed("kill", _chosen(worker, count), dry_run=dry_run, yes=yes):
        for each in victims:
            kill_family(each.process)
            echo(f"killed {each}")
        _print_next(victims)


@chaos.command("pause-worker")
def pause_worker(
    worker: WorkerName = None,
    count: Count = 1,
    seconds: Annotated[
        float, typer.Option("--for", min=0.1, max=3600, metavar="SECONDS", help="How long to pause.")
    ] = 10,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Pause workers for a while, like a machine that hangs; they continue afterwards."""
    victims = _agreed("pause", _chosen(worker, count), dry_run=dry_run, yes=yes)
    if not victims:
        return
    try:
        for each in victims:
            _send(each.process, signal.SIGSTOP)
            echo(f"paused {each} for {seconds:g} s")
        _print_next(victims)
        with suppress(KeyboardInterrupt):
            SystemClock().sleep(timedelta(seconds=seconds))
    finally:
        for each in victims:
            _send(each.process, signal.SIGCONT)
    echo(f"resumed {', '.join(each.worker_id for each in victims)}")


def _chosen(named: str | None, count: int) -> Sequence[Victim]:
    if named is not None and count > 1:
        raise InvalidRequest("--count chooses the workers itself: leave out the id, or --count")
    settings = settings_here()
    if settings.providers.provider != "local":
        raise InvalidRequest(
            f"chaos is for workers of this machine, and PROVIDER is {settings.providers.provider}:"
            " terminate a rented one with herdsman terminate-gpu WORKER"
        )
    provider = open_provider(settings)
    assert isinstance(provider, LocalProvider)
    # Active workers, those with a job first; a worker of another machine has no process here.
    with provider.state.locked():
        running = {worker_of(each.name): each.process for each in provider.state.records()}
    found: list[Victim] = []
    for each in connect().send(calls.fleet()).workers:
        process = running.get(each.worker_id)
        if each.status == WorkerStatus.ACTIVE and process is not None and is_alive(process):
            jobs = tuple(job.job_id for job in each.jobs)
            found.append(Victim(worker_id=each.worker_id, process=process, jobs=jobs))
    here = sorted(found, key=lambda each: not each.jobs)
    if named is not None:
        whole = pick("worker of this machine", named, [each.worker_id for each in here])
        return [each for each in here if each.worker_id == whole]
    if len(here) < count:
        raise NotFound(
            f"{len(here)} workers are active on this machine, not {count}: see herdsman workers,"
            " or start some with herdsman up"
        )
    return here[:count]


def _send(process: Identity, number: int) -> None:
    for pid in family(process):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def when(settings: Settings, *, jobs: bool) -> str:
    """How long recovery may take, with the defaults of `herdsman up`."""
    claim = settings.jobs.claim_ttl_sec + settings.jobs.sweep_interval_sec
    requeued = f"its job is requeued within {claim:g} s (CLAIM_TTL_SEC), and " if jobs else ""
    timeout = f"{settings.health.heartbeat_timeout_sec:g} s without a heartbeat (HEARTBEAT_TIMEOUT_SEC)"
    return f"{requeued}the worker is replaced after {timeout}, if it is needed"


def _agreed(verb: str, victims: Sequence[Victim], *, dry_run: bool, yes: bool) -> Sequence[Victim]:
    """Those that a person agrees to; none in a dry run."""
    if dry_run:
        for each in victims:
            echo(f"would {verb} {each}")
        echo("nothing was done")
    elif len(victims) > 1:
        ask_first(f"{verb.capitalize()} {len(victims)} workers of this machine?", yes=yes)
    return () if dry_run else victims


def _print_next(victims: Sequence[Victim]) -> None:
    jobs = [job for each in victims for job in each.jobs]
    echo(f"watch it recover: {when(for_this_machine(load_settings()), jobs=bool(jobs))}:")
    echo(f"  herdsman why worker {victims[0].worker_id}")
    echo(f"  herdsman why {jobs[0]}" if jobs else "  herdsman events --kind worker")
    echo("  herdsman workers --watch")
