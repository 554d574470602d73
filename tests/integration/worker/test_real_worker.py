"""`herdsman worker` as a process of its own: it outlives handlers that misbehave, drains, and can be PID 1."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from herdsman.context import Services
from herdsman.fleet.commands import move_worker
from herdsman.ids import DEFAULT_POOL, JobId, WorkerId
from herdsman.jobs.commands import cancel_job, find_job, read_logs, submit_job
from herdsman.jobs.model import FailureClass, Job, NewJob
from herdsman.settings import load_settings
from herdsman.states import JobStatus, Reason, WorkerStatus
from tests.conftest import Backend
from tests.integration.worker.worker_programs import ENDS, ROOT, eventually
from tests.support.api_server import serving

MARK = "HOSTILE_PLACE"
QUICK = {"HEARTBEAT_INTERVAL_SEC": "0.2", "SQL_POLL_SEC": "0.1", "CANCEL_GRACE_SEC": "0.3"}
MODULES = ("tests.integration.worker.handlers", "tests.integration.worker.lingering")
COMMAND = [sys.executable, "-P", "-m", "herdsman", "worker"]
AS_PID_1 = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]


@dataclass
class RealWorker:
    services: Services
    place: Path
    process: "subprocess.Popen[bytes]"

    def promote(self, worker_id: WorkerId) -> None:
        """As the control loop would, once it has heard of it."""
        self._wait(lambda: "registered at" in self.said())
        move_worker(self.services, worker_id, WorkerStatus.ACTIVE, Reason.READY)

    def run(self, kind: str, payload: object = None, **wanted: Any) -> Job:
        return self.ended(self.submit(kind, payload, **wanted))

    def submit(self, kind: str, payload: object = None, **wanted: Any) -> JobId:
        asked: dict[str, Any] = {"type": kind, "payload": payload, "max_attempts": 1, **wanted}
        return submit_job(self.services, NewJob(**asked)).job_id

    def job(self, job_id: JobId) -> Job:
        return find_job(self.services, job_id)

    def ended(self, job_id: JobId) -> Job:
        self._wait(lambda: self.job(job_id).status in ENDS)
        return self.job(job_id)

    def still_works(self) -> None:
        """The same process runs a good job, and has nothing left but the process that ran it."""
        good = self.run("echo", "good")
        assert (good.status, good.result["payload"]) == (JobStatus.DONE, "good")  # type: ignore[index]
        assert self.process.poll() is None, self.said()
        eventually(lambda: len(marked(self.place)) == 1)

    @property
    def inside(self) -> int:
        """The worker's own process, where another one made a namespace for it."""
        (pid,) = children(self.process.pid)
        return pid

    def leave(self) -> int:
        self.process.terminate()
        return self.process.wait(60)

    def said(self) -> str:
        return (self.place / "log").read_text()

    def _wait(self, holds: Callable[[], object]) -> None:
        eventually(lambda: holds() or self.process.poll() is not None)
        assert holds(), self.said()


@contextmanager
def real_worker(
    url: str,
    place: Path,
    *before: str,
    pool: str = DEFAULT_POOL,
    state: str | None = None,
    **more: str,
) -> Generator[RealWorker]:
    """Beside a server whose runtime files are in `state`; several workers of one database share them."""
    usual = {"PATH": os.environ["PATH"], "HOME": str(place), "PYTHONPATH": str(ROOT)}
    here = {"DATABASE_URL": url, "LOCAL_STATE_DIR": state or str(place)}
    own = {"WORKER_MODULES": ",".join(MODULES), "WORKER_ID": place.name}
    with serving(load_settings(here, place)) as services, (place / "log").open("wb") as log:
        process = subprocess.Popen(
            [*before, *COMMAND, "--pool", pool],
            cwd=place,
            env={**usual, **here, MARK: str(place), **own, **QUICK, **more},
            stdout=log,
            stderr=log,
        )
        try:
            started = RealWorker(services, place, process)
            started.promote(WorkerId(place.name))
            yield started
        finally:
            process.kill()
            process.wait()
    eventually(lambda: not marked(place), 10)


def marked(place: Path) -> list[int]:
    """Processes that a handler may have left: all that carry our mark and are no worker themselves."""
    found = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    mark = f"{MARK}={place}".encode()
    ours = [entry for entry in found if mark in _read(entry / "environ").split(b"\0")]
    return [int(each.name) for each in ours if b"worker" not in _read(each / "cmdline").split(b"\0")]


def children(pid: int) -> list[int]:
    """Those that nobody has reaped are among them."""
    found = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    stats = {int(entry.name): _read(entry / "stat").rpartition(b")")[2].split() for entry in found}
    return [each for each, stat in stats.items() if stat and int(stat[1]) == pid]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


@pytest.fixture(scope="module")
def worker(sqlite: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealWorker]:
    """One for all of them: each has to leave it as good as new. At its end it drains, and nothing is left."""
    url = sqlite.fresh()
    with real_worker(url, tmp_path_factory.mktemp("worker")) as started:
        yield started
        assert started.leave() == 0, started.said()
        assert not marked(started.place)
    sqlite.drop(url)


@pytest.fixture
def first_process(sqlite: Backend, tmp_path: Path) -> Iterator[RealWorker]:
    """Alone with its database, and PID 1 of its namespace, as in a container without an init (W3)."""
    url = sqlite.fresh()
    with real_worker(url, tmp_path, *AS_PID_1) as started:
        assert pid_inside(started.inside) == 1
        yield started
    sqlite.drop(url)


@pytest.fixture(autouse=True)
def afterwards(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "worker" in request.fixturenames:
        request.getfixturevalue("worker").still_works()


def failure(job: Job) -> FailureClass | None:
    assert job.status is JobStatus.DEAD_LETTER, job
    return job.failure_class


def test_one_that_holds_the_interpreter_lock_in_c_is_a_timeout(worker: RealWorker) -> None:
    """For 60 seconds; its timeout ends it long before."""
    assert failure(worker.run("holds_the_gil", timeout=timedelta(seconds=2))) is FailureClass.TIMEOUT


def test_one_that_segfaults_is_a_job_error(worker: RealWorker) -> None:
    job = worker.run("segfaults")
    assert failure(job) is FailureClass.JOB_ERROR
    assert "SIGSEGV" in str(job.last_error)


def test_one_that_forks_a_daemon_is_done_and_the_daemon_ends(worker: RealWorker, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    assert worker.run("leaves_a_daemon", {"file": str(file)}).status is JobStatus.DONE
    eventually(lambda: int(file.read_text()) not in marked(worker.place), 10)


def test_one_that_fills_stdout_is_done_and_its_log_is_cut(worker: RealWorker) -> None:
    job = worker.run("fills_stdout")
    assert (job.status, job.result) == (JobStatus.DONE, "written")
    assert "log truncated" in last_line(worker, job.job_id)


def test_one_that_ignores_a_cancel_is_cancelled(worker: RealWorker) -> None:
    job_id = worker.submit("ignores_cancel")
    eventually(lambda: worker.job(job_id).progress is not None)
    cancel_job(worker.services, job_id)
    assert worker.ended(job_id).status is JobStatus.CANCELLED


def test_one_that_allocates_past_its_limit_is_out_of_memory(worker: RealWorker) -> None:
    assert failure(worker.run("allocates")) is FailureClass.OUT_OF_MEMORY


def last_line(worker: RealWorker, job_id: JobId) -> str:
    line, since = "", None
    while (page := read_logs(worker.services, job_id, since=since)).pieces:
        line, since = page.pieces[-1].lines[-1], page.next
    return line


def test_as_pid_1_it_finishes_its_job_and_drains(first_process: RealWorker, tmp_path: Path) -> None:
    go = tmp_path / "go"
    last = first_process.submit("lingers", {"file": str(go)})
    eventually(lambda: first_process.job(last).progress is not None)
    os.kill(first_process.inside, signal.SIGTERM)
    eventually(lambda: "draining" in first_process.said())
    go.touch()
    assert first_process.process.wait(60) == 0, first_process.said()
    assert first_process.job(last).status is JobStatus.DONE
    assert "shutting down gracefully" in first_process.said()


def test_as_pid_1_it_ends_and_reaps_orphans(first_process: RealWorker, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    first_process.run("leaves_a_daemon", {"file": str(tmp_path / "pid")})
    for _ in range(3):
        first_process.run("lingers", {"file": str(tmp_path / "go")})
    first_process.still_works()
    assert len(children(first_process.inside)) == 2, "its handler's process and the fence, and nobody who is dead"


def pid_inside(pid: int) -> int:
    """As it is called in its own namespace."""
    status = _read(Path(f"/proc/{pid}/status")).decode()
    (line,) = [line for line in status.splitlines() if line.startswith("NSpid:")]
    return int(line.split()[-1])


def test_killed_it_leaves_no_directory_behind(sqlite: Backend, tmp_path: Path) -> None:
    """Its fence removes it; where that was killed as well, the next worker of this user does, and no living one's."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    url = sqlite.fresh()
    with homed_worker(url, tmp_path / "first", temporary) as first:
        assert first.run("echo", "good").status is JobStatus.DONE
        assert len(list(temporary.iterdir())) == 1
        first.process.kill()
        eventually(lambda: not list(temporary.iterdir()), 10)
    with homed_worker(url, tmp_path / "second", temporary) as second:
        assert second.run("echo", "good").status is JobStatus.DONE
        fences = [pid for pid in children(second.process.pid) if b"fence.py" in _read(Path(f"/proc/{pid}/cmdline"))]
        for pid in (*fences, second.process.pid):
            os.kill(pid, signal.SIGKILL)
    (left,) = temporary.iterdir()
    with homed_worker(url, tmp_path / "third", temporary) as third:
        assert third.run("echo", "good").status is JobStatus.DONE
        (own,) = temporary.iterdir()
        assert own != left
        with homed_worker(url, tmp_path / "fourth", temporary) as fourth:
            eventually(lambda: len(list(temporary.iterdir())) == 2)
            assert own in temporary.iterdir(), "it is in use"
            assert fourth.leave() == 0
        assert list(temporary.iterdir()) == [own]
    sqlite.drop(url)


@contextmanager
def homed_worker(url: str, place: Path, temporary: Path) -> Generator[RealWorker]:
    place.mkdir()
    with real_worker(url, place, state=str(place.parent / "state"), TMPDIR=str(temporary)) as worker:
        yield worker
