"""Herdsman measured as its peers are: a server and a worker process of its own for every measurement."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from sqlalchemy import func, select

from bench.backlog import BATCH, settle
from bench.databases import Place, opened
from bench.peers import marks
from bench.peers.child import sample
from bench.peers.peer import wait_for
from bench.running import Alive, Server, a_server, a_worker
from bench.work import NOOP
from herdsman import Client, __version__
from herdsman.control.commands import submit_jobs
from herdsman.control.services import Services
from herdsman.core.model import NewJob
from herdsman.core.states import JobState
from herdsman.store.schema import jobs as job_rows

_DATABASE = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ourselves:
    """As it comes; `place` is one of `bench.databases`."""

    name: str
    place: Callable[[list[str]], AbstractContextManager[Place]]
    over_http: bool = True
    """Else the worker stands beside the database and speaks to that."""
    batch: int = 1

    def version(self) -> str:
        return __version__

    def drain(self, jobs: int) -> float:
        with self._home() as (directory, url), opened(url) as services:
            _fill(services, jobs + 1)
            with self._at_work(directory, url) as (_, path, alive):
                wait_for(lambda: marks.count(path), jobs + 1, alive)
                wait_for(lambda: _done(services), jobs + 1, alive)
                known = monotonic()
                return known - marks.read(path)[0]

    def latency(self, samples: int, pause_s: float) -> list[float]:
        with self._home() as (directory, url), opened(url) as services:
            _fill(services, 1)
            with self._at_work(directory, url) as (server, path, alive):
                wait_for(lambda: marks.count(path), 1, alive)
                with Client(server.url, server.token) as client:
                    submitted = sample(lambda: client.submit(NOOP), path, samples, pause_s)
                began = marks.read(path)[-samples:]
        return [after - before for before, after in zip(submitted, began, strict=True)]

    @contextmanager
    def _home(self) -> Generator[tuple[Path, str]]:
        with (
            TemporaryDirectory(prefix="herdsman-bench-") as directory,
            self.place([_DATABASE]) as place,
        ):
            yield Path(directory), place.urls[_DATABASE]

    @contextmanager
    def _at_work(self, directory: Path, url: str) -> Generator[tuple[Server, Path, Alive]]:
        path = directory / "marks"
        with (
            a_server(url, directory) as server,
            a_worker(server, path, over_http=self.over_http, batch=self.batch) as alive,
        ):

            def both() -> None:
                server.alive()
                alive()

            yield server, path, both


def _fill(services: Services, count: int) -> None:
    for start in range(0, count, BATCH):
        submit_jobs(services, [NewJob(type=NOOP, payload={}) for _ in range(min(BATCH, count - start))])
    settle(services)


def _done(services: Services) -> int:
    ended = select(func.count()).select_from(job_rows).where(job_rows.c.status == JobState.DONE)
    with services.database.engine.connect() as connection:
        return connection.execute(ended).scalar_one()
