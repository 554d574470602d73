"""What is asked of every job queue that is measured beside ours, and how one that is a Python package does it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import LiteralString, Protocol

import psycopg

from bench.machine import cpu_of_all_s
from bench.peers import marks

ROOT = Path(__file__).resolve().parents[2]
SILENCE_S = 60.0
_STEP_S = 0.002

Start = Callable[[], AbstractContextManager[str]]
"""A server of the peer's own; yields its address."""


class PeerFailed(Exception):
    """A peer could not be measured; the message ends with what its process said."""


class Peer(Protocol):
    """Someone else's job queue, with a server and a worker process of its own for every measurement."""

    @property
    def name(self) -> str: ...

    def version(self) -> str: ...

    def drain(self, jobs: int) -> "Drained":
        """How one worker process works off `jobs` jobs that do nothing and wait already.

        One more comes first and starts the watch, so that neither the start of Python nor the first
        connection counts. The watch stops where the handler of the last one begins or, for a queue that
        says only later that jobs are done, where it has said so of all.
        """
        ...

    def through(self, jobs: int) -> "Passage":
        """So many jobs that do nothing, sent as fast as one process can to one worker process that waits for them."""
        ...

    def latency(self, samples: int, pause_s: float) -> list[float]:
        """Seconds from before the submission to the first line of the handler, on a worker with nothing to do.

        The pauses vary by half, so that a worker that polls is met at any point of its interval as long as
        the interval is no longer than `pause_s`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    per_second: float
    cpu_s: float
    """What all processes together, servers included, used for each job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Jobs that came and went: how many a second were submitted, and how many got through."""

    submitted: float
    through: float
    """From before the first submission until the last is done, where `drain` says that it is."""
    hinted: float | None = None
    """Of ours with Redis: entries of the stream for each job."""
    cpu_s: float | None = None
    """Of ours: what the process of the API used for each job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A peer as a Python package: `side` is the module here that speaks to it, run by `python`."""

    name: str
    package: str
    side: str
    start: Start
    unfinished: LiteralString | None = None
    """SQL that counts the jobs which are not known to be done, for a queue that writes that in batches."""
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    flooding: Mapping[str, object] = field(default_factory=dict[str, object])
    """What its `flooder` is told, where it has one."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    python: str = sys.executable

    def version(self) -> str:
        asked = f"from importlib.metadata import version; print(version({self.package!r}))"
        said = subprocess.run([self.python, "-c", asked], capture_output=True, text=True, check=False)
        if said.returncode != 0:
            raise PeerFailed(
                f"{self.package} is not installed for {self.python}: install the dependency groups of bench"
            )
        return said.stdout.strip()

    def drain(self, jobs: int) -> Drained:
        with self._place() as place:
            self._run(place, "fill", count=jobs + 1)
            with self._worker(place) as alive, self._unfinished(place.url) as unfinished:
                return drained(
                    place.marks,
                    jobs,
                    alive,
                    None if self.unfinished is None else lambda: jobs + 1 - unfinished(),
                )

    def through(self, jobs: int) -> Passage:
        with self._place() as place:
            self._run(place, "fill", count=1)
            with self._worker(place) as alive:
                wait_for(lambda: marks.count(place.marks), 1, alive)
                said = self._run(place, "flood", count=jobs, options=dict(self.flooding))
                wait_for(lambda: marks.count(place.marks), jobs + 2, alive)
            (first, last), began = json.loads(said), marks.read(place.marks)
        return Passage(submitted=jobs / (last - first), through=jobs / (began[jobs + 1] - first))

    def latency(self, samples: int, pause_s: float) -> list[float]:
        with self._place() as place:
            self._run(place, "fill", count=1)
            with self._worker(place) as alive:
                wait_for(lambda: marks.count(place.marks), 1, alive)
                said = self._run(place, "sample", count=samples, pause_s=pause_s)
            submitted, began = json.loads(said), marks.read(place.marks)[-samples:]
        return [after - before for before, after in zip(submitted, began, strict=True)]

    @contextmanager
    def _place(self) -> Generator["_Place"]:
        with TemporaryDirectory(prefix="herdsman-bench-") as directory, self.start() as url:
            yield _Place(url, Path(directory, "marks"), Path(directory, "worker.log"))

    def _run(self, place: "_Place", role: str, **asked: object) -> str:
        command = self._command(place, role, **asked)
        done = subprocess.run(
            command, cwd=ROOT, env=dict(self.environment), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise PeerFailed(f"{self.name} could not {role}:\n{done.stderr[-2000:]}")
        return done.stdout

    @contextmanager
    def _worker(self, place: "_Place") -> Generator[Callable[[], None]]:
        """Ends with us even when we are killed: it watches the pipe that we hold open."""
        command = self._command(place, "work", options=dict(self.options))
        with place.log.open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=dict(self.environment),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

        def alive() -> None:
            if process.poll() is not None:
                raise PeerFailed(f"the worker of {self.name} ended:\n{place.log.read_text()[-2000:]}")

        try:
            yield alive
        finally:
            process.kill()
            process.communicate()

    @contextmanager
    def _unfinished(self, url: str) -> Generator[Callable[[], int]]:
        if (query := self.unfinished) is None:
            yield lambda: 0
            return
        with psycopg.connect(url, autocommit=True) as connection:
            yield lambda: _number(connection, query)

    def _command(self, place: "_Place", role: str, **more: object) -> list[str]:
        asked = {"side": self.side, "role": role, "url": place.url, "marks": str(place.marks), **more}
        return [self.python, "-m", "bench.peers.child", json.dumps(asked)]


class NodeProgram(Program):
    """A peer that runs on Node, installed in `bench/peers/graphile`."""

    def version(self) -> str:
        manifest = Path(__file__).with_name("graphile") / "node_modules" / self.package / "package.json"
        if not manifest.exists():
            raise PeerFailed(f"{self.package} is not installed: run npm ci in {manifest.parents[2]}")
        return json.loads(manifest.read_text())["version"]


@dataclass(frozen=True, slots=True)
class _Place:
    url: str
    marks: Path
    log: Path


def _number(connection: psycopg.Connection, query: LiteralString) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def drained(path: Path, jobs: int, alive: Callable[[], None], done: Callable[[], int] | None = None) -> Drained:
    """From the mark of a first job, which is not counted, until that of the last or, where it is told, its end."""
    wait_for(lambda: marks.count(path), 1, alive)
    early, used = marks.count(path), cpu_of_all_s()
    wait_for(lambda: marks.count(path), jobs + 1, alive)
    if done is not None:
        wait_for(done, jobs + 1, alive)
    known = time.monotonic()
    used = cpu_of_all_s() - used
    began = marks.read(path)
    seconds = (began[jobs] if done is None else known) - began[0]
    return Drained(per_second=jobs / seconds, cpu_s=used / max(1, jobs + 1 - early))


def wait_for(done: Callable[[], int], wanted: int, alive: Callable[[], None]) -> None:
    """Until so many are done. As long as the number grows, it may take as long as it does."""
    seen, since = 0, time.monotonic()
    while (now := done()) < wanted:
        alive()
        if now > seen:
            seen, since = now, time.monotonic()
        if time.monotonic() - since > SILENCE_S:
            raise PeerFailed(f"nothing happened for {SILENCE_S:.0f} s after {seen} of {wanted} jobs")
        time.sleep(_STEP_S)
