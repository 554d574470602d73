"""`herdsman worker`: the process that runs jobs on this machine."""

import signal
from datetime import timedelta
from pathlib import Path
from secrets import token_hex
from typing import Annotated

import typer

from herdsman.cli.connection import server_url
from herdsman.cli.context import settings_here
from herdsman.cli.errors import WorkersServer
from herdsman.cli.output import echo
from herdsman.cli.working import Choices, a_supervisor, watched
from herdsman.client.queue import register
from herdsman.control.whereabouts import whereabouts
from herdsman.core.errors import InvalidSettings
from herdsman.core.model import DEFAULT_POOL, WorkerId
from herdsman.ports import WorkQueue
from herdsman.settings import Settings
from herdsman.settings.surroundings import keep_secrets, show_name
from herdsman.worker.orphans import adopt_orphans
from herdsman.worker.supervisor import Parting

LONGEST_OUTAGE = timedelta(days=1)
"""A machine whose control plane answers is owned, and waits for its database; its token may end before."""

Names = Annotated[
    list[str] | None, typer.Option("--handler", help="A handler as MODULE:FUNCTION; may be repeated.")
]
Modules = Annotated[
    list[str] | None,
    typer.Option("--module", "-m", help="A module whose decorated functions are handlers; may be repeated."),
]
Commands = Annotated[
    list[str] | None,
    typer.Option("--exec", help="A command that runs jobs, as TYPE=COMMAND; may be repeated."),
]


def worker(
    worker_id: Annotated[
        str | None, typer.Option("--id", help="Its id; without one, HERDSMAN_WORKER_ID or a new one.")
    ] = None,
    pool: Annotated[str, typer.Option(help="The pool whose jobs it runs, where it is new.")] = DEFAULT_POOL,
    handler: Names = None,
    module: Modules = None,
    exec_: Commands = None,
    comfyui: Annotated[
        str | None,
        typer.Option(help="Run jobs of type comfyui on the ComfyUI at this URL; else COMFYUI_URL."),
    ] = None,
    isolate: Annotated[bool, typer.Option(help="A fresh process for each job, in a sandbox.")] = False,
    sandbox: Annotated[
        bool, typer.Option(help="Handlers see neither this program's processes nor its files.")
    ] = False,
    dev: Annotated[
        bool, typer.Option("--dev", help="Load handlers again when their source files change.")
    ] = False,
    fake: Annotated[
        int | None, typer.Option("--fake-gpus", min=0, help="GPUs to pretend that it has.")
    ] = None,
) -> None:
    """Run jobs on this machine until told to stop."""
    settings = settings_here()
    keep_secrets(exec_ or ())
    show_name()
    adopt_orphans()
    queue, named = _queue(settings, worker_id or settings.worker.worker_id, pool)
    choices = Choices(
        functions=tuple(handler or ()),
        modules=tuple(module or ()),
        commands=tuple(exec_ or ()),
        comfyui=comfyui,
        isolate=isolate,
        sandbox=sandbox,
        dev=dev,
        fake_gpus=settings.local.fake_gpus if fake is None else fake,
        worker_id=named,
        directory=Path.cwd(),
    )
    supervisor = a_supervisor(settings, queue, choices)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: supervisor.drain())
    with watched(settings, supervisor):
        parted = supervisor.run()
    if parted.how is Parting.DRAINED:
        echo(f"Worker {named} shutting down gracefully")
        return
    echo(f"Worker {named} ends: {parted.why}", err=True)
    raise typer.Exit(parted.how.value)


def _queue(settings: Settings, worker_id: str | None, pool: str) -> tuple[WorkQueue, str]:
    """At the server that API_URL names, or at the one of this machine, whose admin token its user can read."""
    url, given = server_url(settings), settings.worker.bootstrap_token or settings.api.api_token
    secret = given.get_secret_value() if given is not None else whereabouts(settings).token()
    if secret is None:
        raise InvalidSettings(
            f"{url} wants a token, and neither BOOTSTRAP_TOKEN nor API_TOKEN is set:"
            " give the worker a token to register with"
        )
    named = None if worker_id is None else WorkerId(worker_id)
    server = WorkersServer(say=echo)
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
    echo(f"Worker {registered.worker_id} reports for duty at {url}")
    return queue, registered.worker_id
