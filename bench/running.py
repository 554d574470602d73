"""Herdsman as it runs: `herdsman up` with its API and control loop, and beside it one `herdsman worker`."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers.marks import MARKS
from bench.work import BATCH
from herdsman.settings.environment import harmless_environment

ROOT = Path(__file__).resolve().parents[1]
STARTING_S = 60.0
_STEP_S = 0.02
# The one worker is started by hand: the control loop neither adds another nor sends this one home.
_FLEET = {
    "MIN_ACTIVE_GPUS": "1",
    "MAX_ACTIVE_GPUS": "0",
    "SCALE_DOWN_GRACE_PERIOD_SEC": "86400",
    "LOG_LEVEL": "WARNING",
}

Alive = Callable[[], None]


class NotRunning(Exception):
    """A process of ours has ended or never came up; the message ends with what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """An API that answers."""

    url: str
    token: str
    pid: int
    alive: Alive
    directory: Path
    database: str

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@contextmanager
def a_server(database: str, directory: Path, settings: Mapping[str, str] | None = None) -> Generator[Server]:
    """On a database that has its tables already, or gets them now."""
    place = {"DATABASE_URL": database, "LOCAL_STATE_DIR": str(directory)}
    environment = {**_FLEET, **place, **(settings or {})}
    with _process(["up", "--port", "0"], environment, directory / "server.log") as (pid, alive):
        found, token = directory / "api", directory / "admin-token"
        _await(found.exists, alive)
        yield Server(
            url=json.loads(found.read_text())["url"],
            token=token.read_text().strip(),
            pid=pid,
            alive=alive,
            directory=directory,
            database=database,
        )


@contextmanager
def a_replica(first: Server, directory: Path, settings: Mapping[str, str] | None = None) -> Generator[Server]:
    """Another API beside the first: the same database and the same tokens."""
    directory.mkdir()
    for name in ("pepper", "admin-token"):
        shutil.copy2(first.directory / name, directory / name)
    with a_server(first.database, directory, settings) as server:
        yield server


@contextmanager
def a_worker(
    server: Server, marks: Path, *, batch: int = 1, module: str = "bench.handlers", fake_gpus: int = 1
) -> Generator[Alive]:
    environment = {
        "API_URL": server.url,
        "LOCAL_STATE_DIR": str(server.directory),
        "LOG_LEVEL": "WARNING",
        "TMPDIR": str(server.directory),
        MARKS: str(marks),
        BATCH: str(batch),
    }
    words = ["worker", "--module", module, "--fake-gpus", str(fake_gpus)]
    with _process(words, environment, server.directory / "worker.log") as (_, alive):
        yield alive


@contextmanager
def _process(words: list[str], environment: Mapping[str, str], log: Path) -> Generator[tuple[int, Callable[[], None]]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.leashed", str(os.getpid()), *words],
            cwd=ROOT,
            env={**harmless_environment(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def alive() -> None:
        if process.poll() is not None:
            raise NotRunning(f"herdsman {' '.join(words)} ended:\n{log.read_text()[-2000:]}")

    try:
        yield process.pid, alive
    finally:
        process.kill()  # what it leaves behind lies in a directory that goes as well
        process.wait()


def _await(ready: Callable[[], bool], alive: Alive) -> None:
    deadline = time.monotonic() + STARTING_S
    while not ready():
        alive()
        if time.monotonic() > deadline:
            raise NotRunning(f"the server did not say where it is within {STARTING_S:.0f} s")
        time.sleep(_STEP_S)
