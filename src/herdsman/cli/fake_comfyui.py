"""`herdsman fake-comfyui`: a ComfyUI of one's own, for trying things out without a GPU."""

import re
import shlex
from typing import Annotated

import typer

from herdsman.cli.context import Stopping
from herdsman.cli.output import echo
from herdsman.core.errors import InvalidRequest
from herdsman.testing import comfyui


def fake_comfyui(
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same ids.")] = 0,
    speed: Annotated[float, typer.Option(min=0.001, help="How many times shorter all its times are.")] = 1.0,
    version: Annotated[str, typer.Option(help="The version of ComfyUI that it behaves like.")] = "0.7.0",
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="A fault to switch on, NAME[=TIMES][@AT]; without TIMES for ever; may be repeated."
        ),
    ] = None,
) -> None:
    """Run a ComfyUI of your own until Ctrl-C: no GPU, no models, and every fault at will."""
    faults = [_fault(each) for each in fault or ()]
    stopping = Stopping()
    try:
        comfyui.serve(
            host,
            port,
            seed=seed,
            speed=speed,
            version=version,
            faults=faults,
            ready=_announce,
            stopping=stopping,
        )
    except (ValueError, OSError) as error:
        raise InvalidRequest(f"the fake ComfyUI cannot start: {error}") from error


def _fault(written: str) -> tuple[comfyui.Fault, int | None, str | None]:
    found = re.fullmatch(r"([a-z_]+)(?:=(\d+))?(?:@(.+))?", written)
    if found is None:
        raise InvalidRequest(f"{written!r} is no fault; write NAME, NAME=TIMES, NAME@AT or NAME=TIMES@AT")
    name, times, at = found.groups()
    if name not in set(comfyui.Fault):
        raise InvalidRequest(f"there is no fault {name!r}; there are: {', '.join(sorted(comfyui.Fault))}")
    return comfyui.Fault(name), None if times is None else int(times), at


def _announce(fake: comfyui.FakeComfyUI) -> None:
    """What a shell needs to use it."""
    echo(f"fake ComfyUI at {fake.url}; stop with Ctrl-C")
    echo(f"export COMFYUI_URL={shlex.quote(fake.url)}")
