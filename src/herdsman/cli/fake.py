"""`herdsman fake-runpod`: a Runpod of one's own, for trying things out without an account."""

import shlex
from typing import Annotated

import typer

from herdsman.cli.context import Stopping
from herdsman.cli.output import echo
from herdsman.core.errors import InvalidRequest
from herdsman.testing import runpod


def fake_runpod(
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same ids and faults.")] = 0,
    speed: Annotated[float, typer.Option(min=0.001, help="How many times faster than time it runs.")] = 1.0,
    fault: Annotated[
        list[str] | None, typer.Option(help="A fault to switch on, NAME or NAME=RATE; may be repeated.")
    ] = None,
    run_commands: Annotated[
        bool, typer.Option("--run-commands/--no-run-commands", help="Run the pods' commands on this machine.")
    ] = True,
) -> None:
    """Run a Runpod of your own until Ctrl-C: no account, no bill, and every fault at will."""
    stopping = Stopping()
    try:
        runpod.serve(
            host,
            port,
            seed=seed,
            speed=speed,
            faults=dict(_fault(each) for each in fault or ()),
            run_commands=run_commands,
            ready=_announce,
            stopping=stopping,
        )
    except BrokenPipeError:
        raise  # whoever read what it prints is gone: it has started well
    except (ValueError, OSError) as error:
        raise InvalidRequest(f"the fake Runpod cannot start: {error}") from error


def _fault(written: str) -> tuple[str, object]:
    name, _, rate = written.partition("=")
    if name not in set(runpod.Fault):
        raise InvalidRequest(f"there is no fault {name!r}; there are: {', '.join(sorted(runpod.Fault))}")
    try:
        return name, {"rate": float(rate or 1)}
    except ValueError as error:
        raise InvalidRequest(f"{written!r}: the rate of a fault is a number from 0 to 1") from error


def _announce(fake: runpod.FakeRunpod) -> None:
    """What a shell needs to use it."""
    lines = {
        "PROVIDER": "runpod",
        "RUNPOD_API_URL": fake.url,
        "RUNPOD_API_KEY": fake.key,
        "RUNPOD_GPU_TYPE": "NVIDIA L4",
        "RUNPOD_WORKER_IMAGE": "herdsman/worker:try",
        "DEPLOYMENT_ID": "try",
        # As long as anybody likes to wait who only tries it: no pod without a job, and none kept for long after it.
        "MIN_ACTIVE_GPUS": "0",
        "ORCHESTRATOR_POLL_SEC": "2",
        "MIN_SCALING_INTERVAL_SEC": "2",
        "SCALE_DOWN_GRACE_PERIOD_SEC": "5",
        "GPU_IDLE_TIMEOUT_SEC": "10",
        "GPU_OVERCAPACITY_IDLE_TIMEOUT_SEC": "5",
        "HEARTBEAT_TIMEOUT_SEC": "60",
    }
    echo(f"fake Runpod at {fake.origin}; what happened: /_ledger, faults: /_faults; stop with Ctrl-C")
    for name, value in lines.items():
        echo(f"export {name}={shlex.quote(value)}")
    echo("then, where these are set: herdsman up; and in a third terminal: herdsman run demo")
