"""How far a start has come: a line that moves on a terminal, and plain lines of what is done everywhere."""

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console

from herdsman.cli.shown import echo


@contextmanager
def step(doing: str) -> Generator[None]:
    """Shown while it goes on, to people at a terminal; what came of it is a `line`."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(f"{doing} ..."):
            yield
    else:
        yield


def line(what: str, text: object) -> None:
    echo(f"{what:<8}  {text}")
