"""Handlers that behave, and handlers that do not; they are loaded in a handler's process."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from herdsman import JobContext, TryAgain, UserError, handler
from herdsman.jobs.model import Failure, FailureClass

STARTED: list[str] = []


@handler("echo")
def echo(job: JobContext) -> object:
    return {"payload": job.payload, "attempt": job.attempt, "pid": os.getpid()}


@handler("talk")
def talk(job: JobContext) -> object:
    print("printed")
    os.write(2, b"raw\n")
    job.log("logged\ntwice")
    job.progress(0.5, "half")
    return None


@handler("workspace")
def workspace(job: JobContext) -> object:
    (job.workspace / "file").write_text("x")
    return {"path": str(job.workspace), "mode": oct(job.workspace.stat().st_mode & 0o777)}


@handler("resume")
def resume(job: JobContext) -> object:
    saved = job.checkpoint()
    if saved is None:
        job.save_checkpoint({"step": 7})
        os.kill(os.getpid(), signal.SIGKILL)
    return saved


@handler("environment")
def environment(_job: JobContext) -> object:
    return dict(os.environ)


@handler("remaining")
def remaining(job: JobContext) -> object:
    return job.remaining()


@handler("holds_the_gil")
def holds_the_gil(_job: JobContext) -> object:
    ctypes.PyDLL(None).sleep(60)
    return "too late"


@handler("segfaults")
def segfaults(_job: JobContext) -> object:
    print("before the fall")
    os.kill(os.getpid(), signal.SIGSEGV)
    return None


@handler("exits")
def exits(_job: JobContext) -> object:
    sys.exit(3)


@handler("leaves_a_daemon")
def leaves_a_daemon(job: JobContext) -> object:
    """Twice forked, in a session of its own: nobody's child, in nobody's group."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path(job.payload["file"]).write_text(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    os.wait()
    file = Path(job.payload["file"])
    while not file.exists() or not file.read_text():  # it is there a moment before the number is in it
        time.sleep(0.01)
    if job.payload.get("crash"):
        os.kill(os.getpid(), signal.SIGKILL)
    return None


@handler("keeps_a_child")
def keeps_a_child(_job: JobContext) -> object:
    return subprocess.Popen(["sleep", "600"]).pid


@handler("fork_comes_back")
def fork_comes_back(_job: JobContext) -> object:
    if os.fork() == 0:
        return "child"
    time.sleep(0.5)  # so that the other one speaks first, if it can
    return "parent"


@handler("fills_stdout")
def fills_stdout(_job: JobContext) -> object:
    line = b"x" * 999 + b"\n"
    for _ in range(20_000):
        os.write(1, line)
    return "written"


@handler("ignores_cancel")
def ignores_cancel(job: JobContext) -> object:
    job.progress(0.1, "deaf")
    time.sleep(600)
    return None


@handler("obeys_cancel")
def obeys_cancel(job: JobContext) -> object:
    job.progress(0.1, "listens")
    while True:
        job.raise_if_cancelled()
        time.sleep(0.02)


@handler("stalls", stall_seconds=0.5)
def stalls(job: JobContext) -> object:
    job.progress(0.1, "and then nothing")
    time.sleep(600)
    return None


@handler("allocates", memory_limit_mb=300)
def allocates(_job: JobContext) -> object:
    return len(bytearray(900 * 1024 * 1024))


@handler("grows_by_children", memory_limit_mb=200)
def grows_by_children(_job: JobContext) -> object:
    """Each is under the limit of one process; together they are over it."""
    code = "import time; kept = b'x' * (90 << 20); time.sleep(600)"
    for _ in range(4):
        subprocess.Popen([sys.executable, "-c", code])
    time.sleep(600)
    return None


@handler("raises")
def raises(job: JobContext) -> object:
    match job.payload:
        case "user":
            raise UserError("no such model")
        case "again":
            raise TryAgain("the service is away")
        case "cuda":
            raise RuntimeError("CUDA out of memory. Tried to allocate 20 GiB")
        case _:
            raise KeyError("x")


@handler("bad_result")
def bad_result(job: JobContext) -> object:
    wrong: dict[str, Any] = {"set": {1}, "nan": float("nan"), "huge": "x" * (17 * 1024 * 1024)}
    return wrong[job.payload]


@handler("lies")
def lies(_job: JobContext) -> object:
    """Writes nonsense to every open socket, as somebody who wants to confuse the supervisor would."""
    for number in range(3, 64):
        try:
            os.write(number, b'{"job": "other", "result": 1}\n[[[\n\xff\xfe\n{"run": "x", "job": {}}\n')
        except OSError:
            continue
    return "lied"


@handler("closes_everything")
def closes_everything(_job: JobContext) -> object:
    os.closerange(3, 256)
    time.sleep(600)
    return None


@handler("many", batch=8, linger_ms=50)
def many(jobs: list[JobContext]) -> object:
    print(f"a batch of {len(jobs)}")
    return [_one(job, len(jobs)) for job in jobs]


def _one(job: JobContext, size: int) -> object:
    match job.payload:
        case "bad":
            return UserError("this one is wrong")
        case "full":
            return Failure(kind=FailureClass.OUT_OF_MEMORY, error="this one is too big")
        case "deaf":
            job.progress(0.5, "deaf")
            time.sleep(600)
            return None
        case _:
            job.log(f"mine: {job.job_id}")
            return size
