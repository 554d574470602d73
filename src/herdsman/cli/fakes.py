"""`herdsman fake-runpod` and `herdsman fake-comfyui`: stand-ins for the real services, with faults on demand."""

import re
import shlex
from typing import Annotated

import typer

from herdsman.cli.output import echo
from herdsman.cli.services import Stopping
from herdsman.errors import InvalidRequest
from herdsman.testing.fakes import comfyui, runpod

Host = Annotated[str, typer.Option(help="The address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")]
Speed = Annotated[float, typer.Option(min=0.001, help="How many times faster than real time it runs.")]


def fake_runpod(
    host: Host = "127.0.0.1",
    port: Port = 0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same ids and faults.")] = 0,
    speed: Speed = 1.0,
    fault: Annotated[
        list[str] | None, typer.Option(help="A fault to enable, as NAME or NAME=RATE; may be repeated.")
    ] = None,
    run_commands: Annotated[
        bool, typer.Option("--run-commands/--no-run-commands", help="Run the pods' commands on this machine.")
    ] = True,
) -> None:
    faults, stopping = dict(_runpod_fault(each) for each in fault or ()), Stopping()
    try:
        with runpod.FakeRunpod(host=host, port=port, seed=seed, speed=speed, run_commands=run_commands) as fake:
            fake.faults.replace(faults)
            # What a shell needs to use it.
            lines = {
                "PROVIDER": "runpod",
                "RUNPOD_API_URL": fake.url,
                "RUNPOD_API_KEY": fake.key,
                "RUNPOD_GPU_TYPE": "NVIDIA L4",
                "RUNPOD_WORKER_IMAGE": "herdsman/worker:try",
                "DEPLOYMENT_ID": "try",
                # Short times for whoever only tries it: no pod without a job, and none kept for long after it.
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
            echo("set these in a second terminal and run herdsman up there; then, in a third: herdsman run demo")
            stopping.wait()
    except BrokenPipeError:
        raise  # the reader of its output is gone: not a failure to start
    except (ValueError, OSError) as error:
        raise InvalidRequest(f"the fake Runpod cannot start: {error}") from error


def _runpod_fault(written: str) -> tuple[str, object]:
    name, _, rate = written.partition("=")
    if name not in set(runpod.Fault):
        raise InvalidRequest(f"there is no fault {name!r}; there are: {', '.join(sorted(runpod.Fault))}")
    try:
        return name, {"rate": float(rate or 1)}
    except ValueError as error:
        raise InvalidRequest(f"{written!r}: the rate of a fault is a number from 0 to 1") from error


def fake_comfyui(
    host: Host = "127.0.0.1",
    port: Port = 0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same ids.")] = 0,
    speed: Speed = 1.0,
    version: Annotated[str, typer.Option(help="The version of ComfyUI to behave like.")] = "0.7.0",
    fault: Annotated[
        list[str] | None,
        typer.Option(help="A fault to enable, as NAME[=TIMES][@AT]; without TIMES for ever; may be repeated."),
    ] = None,
) -> None:
    faults = [_comfyui_fault(each) for each in fault or ()]
    stopping = Stopping()
    try:
        with comfyui.FakeComfyUI(host=host, port=port, seed=seed, speed=speed, version=version) as fake:
            for name, times, at in faults:
                fake.add_fault(name, times=times, at=at)
            # What a shell needs to use it.
            echo(f"fake ComfyUI at {fake.url}; stop with Ctrl-C")
            echo(f"export COMFYUI_URL={shlex.quote(fake.url)}")
            stopping.wait()
    except (ValueError, OSError) as error:
        raise InvalidRequest(f"the fake ComfyUI cannot start: {error}") from error


def _comfyui_fault(written: str) -> tuple[comfyui.Fault, int | None, str | None]:
    found = re.fullmatch(r"([a-z_]+)(?:=(\d+))?(?:@(.+))?", written)
    if found is None:
        raise InvalidRequest(f"{written!r} is not a fault; write NAME, NAME=TIMES, NAME@AT or NAME=TIMES@AT")
    name, times, at = found.groups()
    if name not in set(comfyui.Fault):
        raise InvalidRequest(f"there is no fault {name!r}; there are: {', '.join(sorted(comfyui.Fault))}")
    return comfyui.Fault(name), None if times is None else int(times), at
