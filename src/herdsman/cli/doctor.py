"""`herdsman doctor`: is everything here as it must be, and if not, what to do."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from herdsman.cli.doctor_looks import LOOKS, Look, see_from_a_pod, see_rented
from herdsman.cli.findings import Finding, State, fail
from herdsman.cli.jobs import OutputOption
from herdsman.cli.output import Output, print_json, step
from herdsman.core.errors import HerdsmanError
from herdsman.core.printable import printable_lines
from herdsman.settings import Settings, load_settings

LONGEST_S = 15.0
_STYLES = {State.OK: "green", State.WARN: "yellow", State.FAIL: "bold red"}


def doctor(
    provider: Annotated[
        bool,
        typer.Option(
            "--provider", help="Also check what pods are rented with: account, image, GPUs, volumes."
        ),
    ] = False,
    spend: Annotated[
        bool,
        typer.Option(
            "--spend", help="The same, and rent one pod for some minutes that tries to call the API."
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check settings, disk, database, clock, Redis, provider, GPUs, port, certificate and server, and say how to mend
    them."""
    with step("looking"):
        found = examine((*LOOKS, see_rented) if provider or spend else LOOKS)
    if spend and not any(each.state is State.FAIL and each.about == "provider" for each in found):
        with step("a pod tries to call the API"):
            found += _here(see_from_a_pod)
    if output is Output.JSON:
        bad = any(each.state is State.FAIL for each in found)
        print_json({"ok": not bad, "checks": [asdict(each) for each in found]})
    else:
        _print(found)
    if any(each.state is State.FAIL for each in found):
        raise typer.Exit(1)


def examine(looks: Sequence[Look] = LOOKS, longest_s: float = LONGEST_S) -> list[Finding]:
    """Everything, whatever fails on the way."""
    try:
        settings = load_settings()
    except HerdsmanError as error:
        return [fail("settings", str(error), "herdsman config shows what is set where")]
    return [finding for look in looks for finding in _limited(look, settings, longest_s)]


def _here(look: Look) -> list[Finding]:
    """In this thread, for what it has to undo whatever happens, Ctrl-C included."""
    told = SimpleQueue[Finding | None]()
    _look(look, load_settings(), "provider", told)
    return list(iter(told.get, None))


def _limited(look: Look, settings: Settings, longest_s: float) -> list[Finding]:
    """In a thread of its own: a driver or a server that hangs must not keep the others from being told."""
    about, told = look.__name__.removeprefix("see_"), SimpleQueue[Finding | None]()
    Thread(target=_look, args=(look, settings, about, told), name=about, daemon=True).start()
    found: list[Finding] = []
    with suppress(Empty):
        while (one := told.get(timeout=longest_s)) is not None:
            found.append(one)
        return found
    return [*found, fail(about, f"no answer within {longest_s:g} s", "look whether it hangs, and try again")]


def _look(look: Look, settings: Settings, about: str, told: "SimpleQueue[Finding | None]") -> None:
    try:
        for finding in look(settings):
            told.put(finding)
    except ModuleNotFoundError as error:
        told.put(fail(about, f"the package {error.name} is not installed", "pip install 'herdsman[server]'"))
    except HerdsmanError as error:
        # What to do stands behind a semicolon, where the error knows it.
        said, _, fix = str(error).partition("; ")
        told.put(fail(about, said, fix or _USUAL.get(about, "herdsman config shows what is set where")))
    except Exception as error:  # noqa: BLE001  (the outermost place of this thread)
        told.put(fail(about, f"{type(error).__name__}: {error}", "this is a bug of ours: please report it"))
    finally:
        told.put(None)


_USUAL = {
    "database": "check DATABASE_URL, and that the server runs and lets you in",
    "redis": "check REDIS_URL, and that the server runs; without REDIS_URL, workers ask the database",
    "provider": "check PROVIDER and the key of your account",
    "rented": "check PROVIDER and the key of your account",
    "server": "check API_URL and API_TOKEN",
}


def _print(found: Sequence[Finding]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for each in found:
        console.print(
            Text(f"{each.state:<5}", style=_STYLES[each.state]),
            f"{each.about:<11}",
            Text(printable_lines(each.said)),
        )
        if each.fix:
            console.print(
                Text(printable_lines(f"{'':<17} {each.fix}"), style="" if each.state is State.FAIL else "dim")
            )
    counts = Counter(each.state for each in found)
    console.print(f"{counts[State.OK]} ok, {counts[State.WARN]} to look at, {counts[State.FAIL]} to mend")
