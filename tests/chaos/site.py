"""A control plane and workers as real processes over HTTP, hurried, and all of them may be killed."""

import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import func, select

from herdsman.cli.main import main
from herdsman.client import Client
from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.db.schema import audit
from herdsman.ids import JobId
from herdsman.jobs.commands import count_jobs, find_job, list_jobs
from herdsman.jobs.model import Job, JobPolicy
from herdsman.states import JOB, JobStatus
from herdsman.testing.simulation.checks import violations
from herdsman.testing.simulation.checks.history import Limits, Submission
from herdsman.testing.simulation.event_log import only, read_history
from herdsman.wire import new_job_id
from tests.chaos.children import Children
from tests.chaos.kill_handlers import LANE
from tests.support.databases import opened

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
MARK = "KILL_SITE"
"""In the environment of every handler's process: whatever of it is left is found by it."""
QUICK = {
    "PROVIDER": "local",
    "MIN_ACTIVE_GPUS": "0",
    "MAX_ACTIVE_GPUS": "0",
    "GPU_OVERCAPACITY_IDLE_TIMEOUT_SEC": "3600",
    "GPU_IDLE_TIMEOUT_SEC": "3600",
    "ORCHESTRATOR_POLL_SEC": "1",
    "LEADER_TTL_SEC": "2",
    "LEADER_RENEW_SEC": "0.5",
    "HEARTBEAT_INTERVAL_SEC": "0.5",
    "CLAIM_TTL_SEC": "3",
    "SELF_FENCE_SEC": "2",
    "SWEEP_INTERVAL_SEC": "0.5",
    "CANCEL_GRACE_SEC": "1",
    "RETRY_BACKOFF_BASE_SEC": "0.1",
    "RETRY_BACKOFF_CAP_SEC": "1",
    "MAX_ATTEMPTS": "50",
    "MAX_WORKER_LOSSES": "50",
    "MAX_INTERRUPTIONS": "50",
}
LIMITS = Limits(most_attempts=50, most_worker_losses=50, most_interruptions=50)


class Pack(Children):
    def __init__(self, *preload: str) -> None:
        super().__init__(*preload)
        self.struck: set[int] = set()
        """Whom the test has killed or stopped: what these had finished and not told yet may be lost."""

    def kill(self, name: str) -> None:
        self.struck.add(self.pid(name))
        super().kill(name)

    def pause(self, name: str) -> None:
        self.struck.add(self.pid(name))
        super().pause(name)

    def pid(self, name: str) -> int:
        return self._pid(name)

    def alive(self, name: str) -> bool:
        return name in self._all and self._all[name].is_alive()

    def status(self, name: str) -> int | None:
        """How it ended by itself; None while it runs."""
        return self._all[name].exitcode


def command(words: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
    """What a person types, in a process that has imported everything already."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(log.parent)
    book = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(book, 1)
    os.dup2(book, 2)
    sys.argv = ["herdsman", *words]
    main()


class Line(NamedTuple):
    """What a handler wrote down, one line for each thing that it did."""

    word: str
    job_id: str
    attempt: int
    token: int
    pid: int
    supervisor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What became of all jobs of a site. Where nobody broke a promise, all but the first three are 0."""

    jobs: int
    done: int
    executions: int
    lost: int
    doubled: int
    """Jobs that ended as done more than once."""
    thrown_away: int
    """Ends that were reached by a worker that lived on, and neither recorded nor lost to another."""
    lost_to_another: int
    """Ends whose claim had run out by the time that they could be told."""
    twice: int
    """Tokens that were executed more than once."""


@dataclass
class Site:
    database_url: str
    directory: Path
    pack: Pack
    services: Services
    timings: Mapping[str, str]
    port: int
    numbers: dict[JobId, int] = field(default_factory=dict[JobId, int])
    _names: Iterator[int] = field(default_factory=count)

    def open(self) -> None:
        self.serve("api", self.port)

    def serve(self, name: str, port: int, **more: str) -> None:
        """One replica of the control plane; returns when it answers."""
        own = {"DATABASE_URL": self.database_url, "API_PORT": str(port), "TOKEN_PEPPER": "p" * 40, **more}
        self.pack.start(name, command, ["serve"], self._environment(own), self.directory / f"{name}.log")
        self.until(lambda: self._answers(port))

    def kill_api(self) -> None:
        self.pack.kill("api")

    def work(self, kind: str, url: str | None = None, **more: str) -> str:
        """Starts one that runs jobs of this type alone; its name."""
        name = f"{kind}-{next(self._names)}"
        own = {
            "API_URL": url or self.url,
            "API_TOKEN": (self.directory / "admin-token").read_text().strip(),
            "WORKER_MODULES": "tests.chaos.kill_handlers",
            LANE: kind,
            **more,
        }
        self.pack.start(name, command, ["worker"], self._environment(own), self.directory / f"{name}.log")
        return name

    def submit(self, kind: str, **more: object) -> JobId:
        number = len(self.numbers)
        payload = {"number": number, "book": str(self.book), **more}
        with Client(self.url, (self.directory / "admin-token").read_text().strip()) as client:
            job_id = JobId(client.submit(kind, payload).id)
        self.numbers[job_id] = number
        return job_id

    def submit_many(self, kind: str, seconds: Sequence[float]) -> None:
        """One job for each number of seconds."""
        numbers = range(len(self.numbers), len(self.numbers) + len(seconds))
        payloads = [
            {"number": number, "book": str(self.book), "seconds": each}
            for number, each in zip(numbers, seconds, strict=True)
        ]
        with Client(self.url, (self.directory / "admin-token").read_text().strip()) as client:
            handles = client.submit_many(kind, payloads)
        self.numbers |= {JobId(handle.id): number for handle, number in zip(handles, numbers, strict=True)}

    def kill_handlers(self, worker: str) -> int:
        """How many there were: none, when it has just ended by itself."""
        pids = self.handlers_of(worker)
        self.pack.struck.update(pids)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def handlers_of(self, worker: str) -> list[int]:
        return handlers(self.directory, parent=self.pack.pid(worker))

    def job(self, job_id: JobId) -> Job:
        return find_job(self.services, job_id)

    def did(self, word: str, job_id: JobId) -> int:
        """How many attempts at it came so far."""
        return sum(1 for line in self.lines() if (line.word, line.job_id) == (word, job_id))

    def lines(self) -> list[Line]:
        """All that handlers did, in its order."""
        lines = self.book.read_text().splitlines() if self.book.exists() else []
        return [Line(word, job_id, *map(int, numbers)) for word, job_id, *numbers in (line.split() for line in lines)]

    def said(self, worker: str) -> str:
        return (self.directory / f"{worker}.log").read_text()

    def until(self, holds: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not holds():
            assert time.monotonic() < deadline, self.story()
            time.sleep(0.05)

    def until_done(self, meanwhile: Callable[[], object] = lambda: None, patience_s: float = PATIENCE_S) -> None:
        """Until every job is; `meanwhile` is called again and again."""

        def look() -> bool:
            meanwhile()
            return count_jobs(self.services)[JobStatus.DONE] == len(self.numbers)

        self.until(look, patience_s)

    def check(self) -> Figures:
        """Nothing lost, nothing done twice or thrown away, and the audit tells the whole story of each."""
        expected = {str(job_id): {"twice": 2 * number} for job_id, number in self.numbers.items()}
        check_jobs(self.services.database, expected)
        figures = self.figures()
        broken = (figures.lost, figures.doubled, figures.thrown_away, figures.twice)
        assert (figures.done, *broken) == (len(self.numbers), 0, 0, 0, 0), figures
        return figures

    def figures(self) -> Figures:
        lines, jobs = self.lines(), self._jobs()
        begun = Counter((line.job_id, line.token) for line in lines if line.word == "started")
        ended = [line for line in lines if line.word == "finished"]
        done = {job.job_id: job.claim_token for job in jobs if job.status is JobStatus.DONE}
        recorded = {(str(job_id), token) for job_id, token in done.items()}
        # The first end under the recorded token is the one that counts; any other was reached for nothing.
        first = {(line.job_id, line.token): line for line in reversed(ended)}
        counted = {id(line) for key, line in first.items() if key in recorded}
        untold = [
            line for line in ended if id(line) not in counted and not {line.pid, line.supervisor} & self.pack.struck
        ]
        logs = "".join(log.read_text() for log in self.directory.glob("*.log"))
        another = [
            line for line in untold if f"job {line.job_id} was taken away before its end could be reported" in logs
        ]
        twice = self.services.database.read(
            lambda tx: tx.execute(
                select(audit.c.object_id)
                .where(audit.c.object_kind == JOB.kind, audit.c.to_status == JobStatus.DONE.value)
                .group_by(audit.c.object_id)
                .having(func.count() > 1)
            ).all()
        )
        finished = {line.job_id for line in ended}
        return Figures(
            jobs=len(self.numbers),
            done=len(done),
            executions=len(begun),
            lost=len(set(self.numbers) - done.keys()) + len(set(map(str, done)) - finished),
            doubled=len(twice),
            thrown_away=len(untold) - len(another),
            lost_to_another=len(another),
            twice=sum(1 for times in begun.values() if times > 1),
        )

    def _jobs(self) -> list[Job]:
        found, after = list[Job](), None
        while True:
            page = list_jobs(self.services, after=after, limit=200)
            found += page.jobs
            if (after := page.next) is None:
                return found

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def book(self) -> Path:
        return self.directory / "book"

    def story(self) -> str:
        """What everybody said last."""
        logs = [f"--- {log.name}\n{log.read_text()[-3000:]}" for log in sorted(self.directory.glob("*.log"))]
        open_jobs = [job for job in map(self.job, self.numbers) if job.status is not JobStatus.DONE]
        return "\n".join(["it never came to be:", *logs, *map(str, open_jobs)])

    def _environment(self, own: Mapping[str, str]) -> dict[str, str]:
        usual = {"PATH": os.environ["PATH"], "HOME": str(self.directory), "PYTHONPATH": str(ROOT)}
        here = {"LOCAL_STATE_DIR": str(self.directory), MARK: str(self.directory)}
        return {**usual, **here, **QUICK, **self.timings, **own}

    def _answers(self, port: int) -> bool:
        with socket.socket() as probe:
            listens = probe.connect_ex(("127.0.0.1", port)) == 0
        return listens and (self.directory / "admin-token").exists()


def check_jobs(database: Database, expected: Mapping[str, object]) -> None:
    """Of all jobs, with the results that they must have; workers that were killed may still be on their way out."""
    submissions = tuple(Submission(job_id=job_id, at=0, expected=result) for job_id, result in expected.items())
    read = read_history(database, zero=datetime.now(UTC))
    history = replace(read, submissions=submissions, limits=LIMITS)
    found = [*violations(only(history, JOB.kind)), *violations(replace(history, quiet=False))]
    assert found == [], found


@contextmanager
def site(database_url: str, directory: Path, **timings: str) -> Generator[Site]:
    """Everybody is killed at its end, and then no process of a handler may be left."""
    pack = Pack("tests.chaos.site")
    with opened(database_url) as database:
        services = Services(database, JobPolicy(), new_job_id)
        here = Site(database_url, directory, pack, services, timings, free_port())
        try:
            here.open()
            yield here
        finally:
            for name in pack.names:
                pack.kill(name)
        try:
            here.until(lambda: not handlers(directory), patience_s=10)
        finally:
            for pid in handlers(directory):
                os.kill(pid, signal.SIGKILL)


def handlers(directory: Path, parent: int | None = None) -> list[int]:
    """Processes that carry our mark, or only the children of one of our workers."""
    mark = f"{MARK}={directory}".encode()
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    ours = [pid for pid in found if mark in _read(f"/proc/{pid}/environ").split(b"\0")]
    return [pid for pid in ours if parent is None or _parent(pid) == parent]


def _parent(pid: int) -> int | None:
    after_name = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(after_name[1]) if after_name else None


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:  # it has ended, or is another user's
        return b""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
