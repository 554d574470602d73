"""`herdsman chaos`: pulls the plug of a worker on this machine, to see the fleet heal."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

import typer

from herdsman.cli.connection import connect
from herdsman.cli.context import settings_here
from herdsman.cli.machine import for_this_machine
from herdsman.cli.output import DryRun, Yes, ask_first, echo
from herdsman.cli.short_ids import pick
from herdsman.client import Client, calls
from herdsman.errors import InvalidRequest, NotFound
from herdsman.fleet.model import worker_of
from herdsman.fleet.wire import HerdWorkerOut
from herdsman.ports import SystemClock
from herdsman.providers.local import LocalProvider
from herdsman.providers.local.processes import Identity, family, is_alive, kill_family
from herdsman.server.wiring import open_provider
from herdsman.settings import Settings, load_settings
from herdsman.states import WorkerState

chaos = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Break a worker of this machine, and watch it heal."
)

WorkerName = Annotated[
    str | None,
    typer.Argument(metavar="[WORKER]", help="The worker's id, or the end of it; without it, one at work."),
]
Count = Annotated[int, typer.Option("--count", min=1, max=64, help="How many workers.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    worker_id: str
    process: Identity
    jobs: tuple[str, ...]

    def __str__(self) -> str:
        held = f"held {', '.join(self.jobs)}" if self.jobs else "held no job"
        return f"{self.worker_id} (process {self.process.pid}, {held})"


@chaos.command("kill-worker")
def kill_worker(
    worker: WorkerName = None, count: Count = 1, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """End workers without a word, as a machine that loses its power: kill -9, with all that they run."""
    victims = _chosen(worker, count)
    if dry_run:
        _would("kill", victims)
        return
    if len(victims) > 1:
        ask_first(f"Kill {len(victims)} workers of this machine?", yes=yes)
    for each in victims:
        kill_family(each.process)
        echo(f"killed {each}")
    _watch_it_heal(victims)


@chaos.command("pause-worker")
def pause_worker(
    worker: WorkerName = None,
    count: Count = 1,
    seconds: Annotated[
        float, typer.Option("--for", min=0.1, max=3600, metavar="SECONDS", help="How long it stands still.")
    ] = 10,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Stop workers for a while, as a machine that hangs: they say nothing, do nothing, and go on afterwards."""
    victims = _chosen(worker, count)
    if dry_run:
        _would("pause", victims)
        return
    if len(victims) > 1:
        ask_first(f"Pause {len(victims)} workers of this machine?", yes=yes)
    try:
        for each in victims:
            _send(each.process, signal.SIGSTOP)
            echo(f"paused {each} for {seconds:g} s")
        _watch_it_heal(victims)
        with suppress(KeyboardInterrupt):
            SystemClock().sleep(timedelta(seconds=seconds))
    finally:
        for each in victims:
            _send(each.process, signal.SIGCONT)
    echo("they go on" if len(victims) > 1 else f"{victims[0].worker_id} goes on")


def _chosen(named: str | None, count: int) -> Sequence[Victim]:
    if named is not None and count > 1:
        raise InvalidRequest("--count picks workers by itself: leave out the id, or --count")
    provider = _local_provider()
    client = connect()
    here = _victims(provider, client)
    if named is not None:
        whole = pick("worker of this machine", named, [each.worker_id for each in here])
        return [each for each in here if each.worker_id == whole]
    if len(here) < count:
        raise NotFound(
            f"{len(here)} workers of this machine are at work, not {count}: see herdsman workers,"
            " or start some with herdsman up"
        )
    return here[:count]


def _local_provider() -> LocalProvider:
    settings = settings_here()
    if settings.providers.provider != "local":
        raise InvalidRequest(
            f"chaos is for workers of this machine, and PROVIDER is {settings.providers.provider}:"
            " end a rented one with herdsman terminate-gpu WORKER"
        )
    provider = open_provider(settings)
    assert isinstance(provider, LocalProvider)
    return provider


def _victims(provider: LocalProvider, client: Client) -> list[Victim]:
    """Workers that are up, those with a job first: with them there is something to heal."""
    with provider.state.locked():
        running = {worker_of(each.name): each.process for each in provider.state.records()}
    found = [
        _victim(each, running)
        for each in client.send(calls.herd()).workers
        if (each.status == WorkerState.ACTIVE)
    ]
    return sorted((each for each in found if each is not None), key=lambda each: not each.jobs)


def _victim(worker: HerdWorkerOut, running: dict[str, Identity | None]) -> Victim | None:
    """A worker of another machine has no process here."""
    process = running.get(worker.worker_id)
    if process is None or not is_alive(process):
        return None
    return Victim(
        worker_id=worker.worker_id, process=process, jobs=tuple(each.job_id for each in worker.jobs)
    )


def _send(process: Identity, number: int) -> None:
    for pid in family(process):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def when(settings: Settings, *, jobs: bool) -> str:
    """How long it may take, with what `herdsman up` chooses for this machine."""
    claim = settings.jobs.claim_ttl_sec + settings.jobs.sweep_interval_sec
    replaced = (
        f"a worker that stays silent is replaced after {settings.health.heartbeat_timeout_sec:g} s"
        " (HEARTBEAT_TIMEOUT_SEC), if it is needed"
    )
    back = f"what it held goes back to the queue within {claim:g} s (CLAIM_TTL_SEC), and "
    return f"{back if jobs else ''}{replaced}"


def _would(what: str, victims: Sequence[Victim]) -> None:
    for each in victims:
        echo(f"would {what} {each}")
    echo("nothing was done")


def _watch_it_heal(victims: Sequence[Victim]) -> None:
    jobs = [job for each in victims for job in each.jobs]
    echo(f"watch it heal; {when(for_this_machine(load_settings()), jobs=bool(jobs))}:")
    echo(f"  herdsman why worker {victims[0].worker_id}")
    echo(f"  herdsman why {jobs[0]}" if jobs else "  herdsman events --kind worker")
    echo("  herdsman workers --watch")
