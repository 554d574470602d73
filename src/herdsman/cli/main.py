"""The command `herdsman`: its groups, and how errors reach a person."""

import gc
import os
import sys
from contextlib import suppress
from typing import Annotated

import typer

from herdsman import __version__
from herdsman.cli.errors import exit_code
from herdsman.cli.lazy import Entry, group
from herdsman.cli.output import echo
from herdsman.errors import HerdsmanError
from herdsman.text import printable_lines

_NEW_OBJECTS = 10_000
"""Nearly all that a command makes while it loads stays, and searching it for garbage took a tenth of its time."""

# In the order in which a newcomer meets them.
COMMANDS = {
    "up": Entry("up:up"),
    "down": Entry("up:down"),
    "doctor": Entry("doctor:doctor"),
    "serve": Entry("up:serve"),
    "submit": Entry("jobs:submit"),
    "run": Entry("run:run"),
    "jobs": Entry("jobs:jobs"),
    "job": Entry("jobs:job"),
    "logs": Entry("run:logs"),
    "cancel": Entry("jobs:cancel"),
    "retry": Entry("jobs:retry"),
    "top": Entry("top.command:top"),
    "workers": Entry("workers:workers"),
    "events": Entry("explain:events"),
    "leader": Entry("explain:leader"),
    "plan": Entry("plan:plan"),
    "whatif": Entry("whatif:whatif"),
    "cycle": Entry("control:cycle"),
    "reconcile": Entry("holds:reconcile"),
    "pause": Entry("holds:pause"),
    "resume": Entry("holds:resume"),
    "holds": Entry("holds:holds"),
    "drain": Entry("holds:drain"),
    "evict": Entry("holds:evict"),
    "policy": Entry("policy:policy"),
    "pools": Entry("pools:pools"),
    "pool": Entry("pools:pool"),
    "leases": Entry("leases:leases"),
    "gpus": Entry("leases:gpus"),
    "worker": Entry("worker:worker"),
    "connectors": Entry("connectors:connectors"),
    "audit": Entry("control:audit"),
    "cost": Entry("explain:cost"),
    "config": Entry("config:config"),
    "spawn-gpu": Entry("control:spawn_gpu"),
    "terminate-gpu": Entry("control:terminate_gpu"),
    "render-startup": Entry("startup:render_startup_command"),
    "fake-runpod": Entry("fakes:fake_runpod"),
    "fake-comfyui": Entry("fakes:fake_comfyui"),
    "why": Entry("explain:why"),
    "eta": Entry("explain:eta"),
    "chaos": Entry("chaos:chaos"),
    "sim": Entry("sim:sim"),
    "db": Entry("database:database"),
    "token": Entry("token:token"),
    # Names that they had at first, or that older scripts use.
    "requeue": Entry("jobs:retry", hidden=True),
    "spawn_gpu": Entry("control:spawn_gpu", hidden=True),
    "terminate_gpu": Entry("control:terminate_gpu", hidden=True),
}

app = typer.Typer(
    name="herdsman",
    cls=group(COMMANDS),
    help="Runs GPU jobs to completion on a fleet that it grows, heals and shrinks by itself.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        echo(f"herdsman {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Runs GPU jobs to completion on a fleet that it grows, heals and shrinks by itself."""
    del version


def main() -> None:
    """Every error that we raise on purpose is one sentence; a traceback means a bug of ours. When whoever reads what is
    printed has had enough, as `head -1` has, the command ends without a word."""
    gc.set_threshold(_NEW_OBJECTS)
    try:
        app()
    except HerdsmanError as error:
        with suppress(BrokenPipeError):
            print(f"herdsman: {printable_lines(str(error))}", file=sys.stderr)
        sys.exit(exit_code(error))
    except BrokenPipeError:
        sys.exit(1)
    finally:
        _flush()


def _flush() -> None:
    """Here and not when the interpreter ends, which would complain about a pipe that nobody reads."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
