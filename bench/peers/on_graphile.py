"""Graphile Worker on PostgreSQL: a program for Node, which `npm ci` in `bench/peers/graphile` installs."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from bench.peers.marks import MARKS

_PROGRAM = str(Path(__file__).with_name("graphile") / "side.mjs")


def fill(url: str, count: int) -> None:
    said = subprocess.run(
        ["node", _PROGRAM, "fill", url, "", str(count)],
        stdin=subprocess.PIPE,
        capture_output=True,
        check=False,
    )
    if said.returncode != 0:
        raise RuntimeError(said.stderr.decode())


def work(url: str, _mark: Callable[[], None]) -> None:
    """It leaves its marks itself, and becomes this process."""
    os.execvp("node", ["node", _PROGRAM, "work", url, os.environ[MARKS]])
