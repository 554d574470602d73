"""Two replicas with a Redis beside them that may be flushed, killed and robbed, and workers that take what comes.

Everybody submits at the first replica and works at the second, so that every job has to be heard of over there.
"""

import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
from sqlalchemy import func, select

from herdsman.client import Client
from herdsman.client.queue import HttpQueue, register
from herdsman.db.connection import Database, records
from herdsman.db.schema import job_attempts, jobs, workers
from herdsman.errors import HerdsmanError
from herdsman.fleet.model import GpuReport
from herdsman.jobs.protocol import ClaimRequest, Done, WorkerHeartbeat
from tests.chaos.children import children
from tests.chaos.site import QUICK, ROOT, command, free_port
from tests.support.databases import opened
from tests.support.servers.redis import RedisServer

WORKERS = 6
TOGETHER = 3
EVERY_S = 0.1
PATIENCE_S = 60.0


@dataclass
class RedisCluster:
    server: RedisServer
    database: Database
    urls: tuple[str, str]
    token: str
    closed: Event = field(default_factory=Event)
    """Nobody submits any more."""
    stopping: Event = field(default_factory=Event)
    submitted: set[str] = field(default_factory=set[str])
    finished: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])

    def work(self) -> None:
        """Does nothing with a job but end it."""
        queue, _ = register(self.urls[1], self.token, incarnation=os.urandom(8).hex())
        while not self.stopping.is_set():
            try:
                self._claim(queue)
            except HerdsmanError as error:
                self.refused.append(f"worker: {error}")
        queue.close()

    def _claim(self, queue: HttpQueue) -> None:
        queue.beat(WorkerHeartbeat(report=GpuReport(ready=True, seen=True)))
        for claim in queue.claim(ClaimRequest(), wait=timedelta(seconds=5)):
            queue.start([claim.key])
            queue.finish([Done(claim.key, {"ok": True})])
            self.finished.append(claim.key.job_id)

    def submit(self) -> None:
        with Client(self.urls[0], self.token) as client:
            while not self.closed.is_set():
                if len(self.submitted) - len(self.finished) > WORKERS:
                    self.closed.wait(EVERY_S)  # a machine that is busy otherwise: the wait in a queue is not meant here
                    continue
                try:
                    handles = client.submit_many("demo", [{"number": number} for number in range(TOGETHER)])
                    self.submitted.update(handle.id for handle in handles)
                except HerdsmanError as error:
                    self.refused.append(f"submit: {error}")
                self.closed.wait(EVERY_S)

    @contextmanager
    def busy(self) -> Generator[None]:
        """Submissions and workers go on during the block, and afterwards everything is brought to its end."""
        submitter = Thread(target=self.submit)
        before = self._active()
        crew = [Thread(target=self.work) for _ in range(WORKERS)]
        for thread in crew:
            thread.start()
        try:
            until(lambda: self._active() >= before + WORKERS)
            submitter.start()
            yield
            self._wind_up(submitter)
        finally:
            self.closed.set()
            self.stopping.set()
            for thread in crew:
                thread.join()

    def _wind_up(self, submitter: Thread) -> None:
        self.closed.set()
        submitter.join()
        until(lambda: self.count("done") == len(self.submitted))

    def count(self, status: str) -> int:
        query = select(func.count()).where(jobs.c.status == status)
        return int(self.database.read(lambda tx: tx.execute(query).scalar_one()))

    def _active(self) -> int:
        query = select(func.count()).where(workers.c.status == "active")
        return int(self.database.read(lambda tx: tx.execute(query).scalar_one()))

    def now(self) -> datetime:
        return self.database.read(lambda tx: tx.now())

    def delays(self, since: datetime, until: datetime) -> list[float]:
        """Seconds from the submission to the first claim, of the jobs that were submitted in between."""
        first = func.min(job_attempts.c.claimed_at).label("first")
        query = (
            select(jobs.c.created_at, first)
            .join(job_attempts, job_attempts.c.job_id == jobs.c.job_id)
            .where(jobs.c.created_at >= since, jobs.c.created_at < until)
            .group_by(jobs.c.job_id, jobs.c.created_at)
        )
        found = self.database.read(lambda tx: records(tx, query))
        return [(row["first"] - row["created_at"]).total_seconds() for row in found]

    def says(self, which: int) -> str:
        answer = httpx.get(f"{self.urls[which]}/health", headers={"authorization": f"Bearer {self.token}"})
        return str(answer.json()["streams"])


@contextmanager
def cluster(database_url: str, server: RedisServer, directory: Path, **more: str) -> Generator[RedisCluster]:
    ports = (free_port(), free_port())
    pack = children("tests.chaos.site")
    with pack as family, opened(database_url) as database:
        for number, port in enumerate(ports):
            place = directory / str(number)
            place.mkdir()
            environment = _environment(database_url, server, place, port, more)
            family.start(f"api-{number}", command, ["serve"], environment, place / "api.log")
            until(lambda port=port: _answers(port))
        token = (directory / "0" / "admin-token").read_text().strip()
        urls = (f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}")
        yield RedisCluster(server, database, urls, token)


def _environment(
    database_url: str, server: RedisServer, place: Path, port: int, more: Mapping[str, str]
) -> dict[str, str]:
    own = {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "PYTHONPATH": str(ROOT),
        "LOCAL_STATE_DIR": str(place),
        "DATABASE_URL": database_url,
        "API_PORT": str(port),
        "TOKEN_PEPPER": "p" * 32,
        "REDIS_URL": server.url(),
        "STREAM_RESYNC_SEC": "2",
        "ORCH_CLAIM_IDLE_MS": "2000",
        "ORCH_RECLAIM_INTERVAL_S": "1",
    }
    return {**QUICK, **own, **more}


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health/live").status_code == 200
    except httpx.HTTPError:
        return False


def until(holds: Callable[[], Any], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.05)
