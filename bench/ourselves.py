"""Herdsman measured as its peers are: a server and a worker process of its own for every measurement."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from redis import Redis
from sqlalchemy import func, select

from bench.backlog import BATCH, settle
from bench.databases import Place, opened
from bench.machine import cpu_s
from bench.peers import marks
from bench.peers.child import flooded, sample
from bench.peers.peer import Drained, Passage, Start, drained, wait_for
from bench.running import Alive, Server, a_replica, a_server, a_worker
from bench.work import NOOP
from herdsman import Client, __version__
from herdsman.context import Services
from herdsman.db.schema import audit, job_attempts
from herdsman.db.schema import jobs as job_rows
from herdsman.jobs.commands import submit_jobs
from herdsman.jobs.model import NewJob
from herdsman.states import JOB, JobStatus

STREAM = "stream:orchestrator:inference_jobs"
_DATABASE = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ourselves:
    """As it comes; `place` is one of `bench.databases`."""

    name: str
    place: Callable[[list[str]], AbstractContextManager[Place]]
    batch: int = 1
    """So many are submitted at once, too, where they are sent to a worker that waits."""
    redis: Start | None = None
    """Its streams then tell the replicas of new jobs."""
    replicas: int = 1
    """Of two, one takes the jobs, and the worker waits at the other."""

    def version(self) -> str:
        return __version__

    def drain(self, jobs: int) -> Drained:
        with self._home() as (directory, url), opened(url) as services:
            _fill(services, jobs + 1)
            with self._at_work(directory, url, None) as (_, path, alive):
                found = drained(path, jobs, alive, lambda: _done(services))
            check_history(services, jobs + 1, marks.count(path))
            return found

    def through(self, jobs: int) -> Passage:
        with self._home() as (directory, url), opened(url) as services, self._streams() as streams:
            _fill(services, 1)
            with self._at_work(directory, url, streams) as (server, path, alive):
                wait_for(lambda: marks.count(path), 1, alive)
                used = cpu_s(server.pid)
                with Client(server.url, server.token) as client:
                    first, last = flooded(lambda count: self._submit(client, count), jobs)
                wait_for(lambda: marks.count(path), jobs + 2, alive)
                wait_for(lambda: _done(services), jobs + 2, alive)
                known = monotonic()
                hinted = None if streams is None else _settled(streams, alive) / (jobs + 2)
                used = (cpu_s(server.pid) - used) / jobs
        rates = {"submitted": jobs / (last - first), "through": jobs / (known - first)}
        return Passage(**rates, hinted=hinted, cpu_s=used)

    def latency(self, samples: int, pause_s: float) -> list[float]:
        with self._home() as (directory, url), opened(url) as services, self._streams() as streams:
            _fill(services, 1)
            with self._at_work(directory, url, streams) as (server, path, alive):
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

    def _submit(self, client: Client, count: int) -> None:
        for done in range(0, count, self.batch):
            size = min(self.batch, count - done)
            if size == 1:
                client.submit(NOOP)
            else:
                client.submit_many(NOOP, [None] * size)

    def _streams(self) -> AbstractContextManager[str | None]:
        return nullcontext() if self.redis is None else self.redis()

    @contextmanager
    def _at_work(self, directory: Path, url: str, streams: str | None) -> Generator[tuple[Server, Path, Alive]]:
        path, settings = directory / "marks", {} if streams is None else {"REDIS_URL": streams}
        with ExitStack() as stack:
            desk = door = stack.enter_context(a_server(url, directory, settings))
            if self.replicas > 1:
                door = stack.enter_context(a_replica(desk, directory / "replica", settings))
            worker = a_worker(door, path, batch=self.batch)
            alive = stack.enter_context(worker)

            def all_alive() -> None:
                desk.alive()
                door.alive()
                alive()

            yield desk, path, all_alive


def _settled(url: str, alive: Alive) -> int:
    """How many entries the stream of the jobs has had, once none is left."""
    with Redis.from_url(url) as redis:  # pyright: ignore[reportUnknownMemberType]
        opened: Any = redis
        wait_for(lambda: int(opened.xlen(STREAM) == 0), 1, alive)
        return opened.xinfo_stream(STREAM)["entries-added"]


def _fill(services: Services, count: int) -> None:
    for start in range(0, count, BATCH):
        submit_jobs(services, [NewJob(type=NOOP, payload={}) for _ in range(min(BATCH, count - start))])
    settle(services)


def _done(services: Services) -> int:
    ended = select(func.count()).select_from(job_rows).where(job_rows.c.status == JobStatus.DONE)
    with services.database.engine.connect() as connection:
        return connection.execute(ended).scalar_one()


class Wrong(Exception):
    """The run was fast, but not what is promised: its figures are worth nothing."""


def check_history(services: Services, jobs: int, executions: int) -> None:
    """Each job was done once, by one execution, and its history has no gap."""
    entries = select(audit.c.object_id, func.count().label("rows"), func.max(audit.c.seq).label("last"))
    histories = entries.where(audit.c.object_kind == JOB.kind).group_by(audit.c.object_id).subquery()
    gaps = select(func.count()).select_from(histories).where(histories.c.rows != histories.c.last)
    recorded = select(func.count()).select_from(histories)
    attempts = select(func.count()).select_from(job_attempts)
    done = _done(services)
    with services.database.engine.connect() as connection:
        found = {
            "jobs done": (done, jobs),
            "executions": (executions, jobs),
            "attempts": (connection.execute(attempts).scalar_one(), jobs),
            "jobs with a history": (connection.execute(recorded).scalar_one(), jobs),
            "histories with a gap": (connection.execute(gaps).scalar_one(), 0),
        }
    wrong = [f"{what}: {value}, not {wanted}" for what, (value, wanted) in found.items() if value != wanted]
    if wrong:
        raise Wrong("; ".join(wrong))
