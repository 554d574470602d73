"""The command `herdsman`: its sub-commands, which are loaded when they are used, and how errors reach a person."""

import gc
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command as build

from herdsman import __version__
from herdsman.cli.errors import SERVER, exit_code, needed
from herdsman.cli.output import did_you_mean, echo, with_options, with_suggestion
from herdsman.errors import HerdsmanError, InvalidSettings
from herdsman.text import printable_lines

_ABOUT = "Runs GPU jobs to completion on a fleet that it grows, heals and shrinks by itself."
_GC_THRESHOLD = 10_000
"""Nearly everything that a command allocates while it loads stays; collecting it took a tenth of its time."""


@dataclass(frozen=True, slots=True)
class Entry:
    place: str
    """The module under `herdsman.cli`, and the name in it."""
    help: str = ""
    """Kept here, so that listing the commands imports none of them."""
    needs: str = SERVER
    """What to install where a package is missing."""
    hidden: bool = False


# In the order in which a newcomer meets them.
COMMANDS = {
    "up": Entry("up:up", "Start database, API, control loop and workers on this machine, until Ctrl-C."),
    "down": Entry("up:down", "Stop the herdsman up of this machine; workers finish their jobs first."),
    "doctor": Entry("doctor:doctor", "Check everything that Herdsman needs here, and say how to fix it."),
    "serve": Entry("up:serve", "Run one replica of the control plane in production, until SIGTERM."),
    "submit": Entry("jobs:submit", "Submit one job, or many of the same type."),
    "run": Entry("run:run", "Submit a job and follow its log, progress and result; exits as the job does."),
    "jobs": Entry("jobs:jobs", "List jobs, newest first."),
    "job": Entry("jobs:job", "Show one job: its status, its attempts and its history."),
    "logs": Entry("run:logs", "Print the log of a job, attempt by attempt."),
    "cancel": Entry("jobs:cancel", "Cancel jobs: waiting ones at once, running ones once their worker has stopped."),
    "retry": Entry("jobs:retry", "Run finished jobs again."),
    "top": Entry("top.command:top", "Watch queues, workers, jobs, cost and decisions live."),
    "workers": Entry("fleet:workers", "List workers, newest first, or drain one."),
    "events": Entry("explain:events", "Print events: live in a terminal until Ctrl-C, in a pipe those of the past."),
    "leader": Entry("explain:leader", "Show which replica is the leader, since when, and its epoch."),
    "plan": Entry("control:plan", "Show what a control cycle would do with a given queue and fleet."),
    "whatif": Entry("whatif:whatif", "Replay jobs in virtual time to compare scaling policies and settings."),
    "cycle": Entry("control:cycle", "Run one control cycle here; exits with 0 if every action succeeded."),
    "reconcile": Entry("holds:reconcile", "Have the leader run one control cycle; exits with 0 if it succeeded."),
    "pause": Entry("holds:pause", "Give out no jobs; workers finish theirs, and new jobs are still accepted."),
    "resume": Entry("holds:resume", "Resume what was paused or drained."),
    "holds": Entry("holds:holds", "List what is paused or drained, and what is still running."),
    "drain": Entry("holds:drain", "Drain the whole cluster: all workers finish their jobs and exit."),
    "evict": Entry("holds:evict", "Terminate all workers of a pool at once; their jobs are requeued."),
    "policy": Entry("policy:policy", "Show and change limits and gates, or compare a shadow scaling policy."),
    "pools": Entry("fleet:pools", "List pools: those created by name, and those of the settings."),
    "pool": Entry("fleet:pool", "Create, scale, swap, drain or evict a named pool of warm workers."),
    "leases": Entry("leases:leases", "List GPU leases, or end one."),
    "gpus": Entry("leases:gpus", "List GPUs, report those of this machine, or lift a quarantine."),
    "worker": Entry("worker:worker", "Run jobs on this machine until stopped."),
    "connectors": Entry("connectors:connectors", "List connectors, or check a service."),
    "audit": Entry("control:audit", "Compare the provider with the database; exits with 1 while they differ."),
    "cost": Entry("explain:cost", "Show what instances cost: busy, idle and in total."),
    "config": Entry("config:config", "Show every setting with its origin and default; secrets stay hidden."),
    "spawn-gpu": Entry("control:spawn_gpu", "Start one worker now, within all limits; print its id and instance."),
    "terminate-gpu": Entry("control:terminate_gpu", "Terminate one worker and its instance."),
    "render-startup": Entry(
        "config:render_startup_command", "Print the startup script of a Runpod pod, without secrets."
    ),
    "fake-runpod": Entry("fakes:fake_runpod", "Run a fake Runpod until Ctrl-C: no account, no bill, faults on demand."),
    "fake-comfyui": Entry(
        "fakes:fake_comfyui", "Run a fake ComfyUI until Ctrl-C: no GPU, no models, faults on demand."
    ),
    "why": Entry("explain:why", "Explain why a job, worker or pool is in its state, and what would change it."),
    "eta": Entry("explain:eta", "Show the queue position of a job, and when it will probably start and end."),
    "chaos": Entry("chaos:chaos", "Kill or pause a worker of this machine, and watch the fleet recover."),
    "sim": Entry(
        "sim:sim",
        "Run the control plane in a deterministic simulation with fault injection.",
        needs="herdsman[server,sim]",
    ),
    "db": Entry("database:database", "Create, upgrade or check the database."),
    "token": Entry("database:token", "Create, list and revoke API tokens."),
    # Names that they had at first, or that older scripts use.
    "requeue": Entry("jobs:retry", "Old name of retry.", hidden=True),
    "spawn_gpu": Entry("control:spawn_gpu", "Old name of spawn-gpu.", hidden=True),
    "terminate_gpu": Entry("control:terminate_gpu", "Old name of terminate-gpu.", hidden=True),
}


def group(entries: Mapping[str, Entry]) -> type[TyperGroup]:
    shown = [name for name, entry in entries.items() if not entry.hidden]

    class Lazy(TyperGroup):
        listing = False

        def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  (the signature is typer's)
            return list(entries)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
            entry = entries.get(cmd_name)
            if entry is not None and self.listing:
                return TyperCommand(cmd_name, help=entry.help, hidden=entry.hidden)
            return None if entry is None else _load(cmd_name, entry)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            self.listing = True
            try:
                super().format_help(ctx, formatter)
            finally:
                self.listing = False

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args and args[0] not in entries and not ctx.resilient_parsing:
                meant = did_you_mean(args[0], shown) or "; herdsman --help lists them"
                ctx.fail(f"there is no command {args[0]!r}{meant}")
            return super().resolve_command(ctx, args)

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except typer.BadParameter as error:
                raise with_suggestion(error) from error

        def shell_complete(self, ctx: Any, incomplete: str) -> Any:
            """Loads no command: a person waits for it at every key."""
            found = super(TyperGroup, self).shell_complete(ctx, incomplete)
            names = (name for name in shown if name.startswith(incomplete))
            # As typer's shells read a word to complete with; typer's own class for it moves between versions.
            return [*(SimpleNamespace(value=name, type="plain", help=None) for name in names), *found]

    return Lazy


def _load(name: str, entry: Entry) -> Any:
    module, _, attribute = entry.place.partition(":")
    alone = typer.Typer(add_completion=False)
    try:
        with needed(name, entry.needs):
            found = getattr(import_module(f"herdsman.cli.{module}"), attribute)
    except InvalidSettings as error:
        lacking = error

        @alone.command(name, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
        def found() -> None:
            raise lacking
    else:
        if isinstance(found, typer.Typer):
            alone = found
        else:
            alone.command(name)(with_options(found))
    command = build(alone)
    command.name, command.help, command.hidden = name, entry.help or command.help, entry.hidden
    return command


app = typer.Typer(
    name="herdsman",
    cls=group(COMMANDS),
    help=_ABOUT,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        echo(f"herdsman {__version__}")
        raise typer.Exit


@app.callback(help=_ABOUT)
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Every error that we raise on purpose is one sentence; a traceback means a bug. When the reader of a pipe is gone,
    as after `| head -1`, the command ends silently."""
    gc.set_threshold(_GC_THRESHOLD)
    # The command line of httpx, which it loads when it can, takes longer than the rest of it.
    sys.modules.setdefault("httpx._main", None)  # pyright: ignore[reportArgumentType]
    try:
        app()
    except HerdsmanError as error:
        with suppress(BrokenPipeError):
            print(f"herdsman: {printable_lines(str(error))}", file=sys.stderr)
        sys.exit(exit_code(error))
    except BrokenPipeError:
        sys.exit(1)
    finally:
        # Here and not at the end of the interpreter, which would complain about a closed pipe.
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
