"""The command `herdsman`: its groups, and how errors reach a person."""

import sys
from typing import Annotated

import typer

from herdsman import __version__
from herdsman.cli.audit import audit
from herdsman.cli.config import config
from herdsman.cli.control import cycle, leader, workers
from herdsman.cli.cost import cost
from herdsman.cli.database import database
from herdsman.cli.exits import exit_code
from herdsman.cli.fake import fake_runpod
from herdsman.cli.jobs import cancel, job, jobs, retry, submit
from herdsman.cli.plan import plan
from herdsman.cli.run import logs, run
from herdsman.cli.smoke import spawn_gpu, terminate_gpu
from herdsman.cli.startup import render_startup_command
from herdsman.cli.token import token
from herdsman.cli.up import serve, up
from herdsman.cli.why import why
from herdsman.cli.worker import worker
from herdsman.core.errors import HerdsmanError

app = typer.Typer(
    name="herdsman",
    help="Runs GPU jobs to completion on a fleet that it grows, heals and shrinks by itself.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    up,
    serve,
    submit,
    run,
    jobs,
    job,
    logs,
    cancel,
    retry,
    workers,
    leader,
    plan,
    cycle,
    worker,
    audit,
    cost,
    config,
):
    app.command()(command)
app.command("requeue", hidden=True)(retry)  # the name that it had at first
for command in (spawn_gpu, terminate_gpu):
    app.command()(command)
    app.command(command.__name__, hidden=True)(command)  # the name that older scripts use
app.command("render-startup")(render_startup_command)
app.command()(fake_runpod)
app.add_typer(why, name="why")
app.add_typer(database, name="db")
app.add_typer(token, name="token")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"herdsman {__version__}")
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
    """Every error that we raise on purpose is one sentence; a traceback means a bug of ours."""
    try:
        app()
    except HerdsmanError as error:
        print(f"herdsman: {error}", file=sys.stderr)
        sys.exit(exit_code(error))
