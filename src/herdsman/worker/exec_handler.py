"""Jobs that are a command: never a shell, its arguments filled from the payload."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from herdsman.worker.context import Cancelled, JobContext, TryAgain
from herdsman.worker.template import fill, split

TRY_AGAIN = 75
"""EX_TEMPFAIL: the command says that the machine or a service failed, and not the job."""
LONGEST_TAIL = 65_536
_LOOK_S = 0.1
_STOP_S = 5.0


def command_handler(template: str) -> Callable[[JobContext], object]:
    words = split(template)
    return lambda job: _run(words, job)


def _run(words: list[str], job: JobContext) -> object:
    payload_file = job.workspace / "payload.json"
    payload_file.write_text(json.dumps(job.payload), encoding="utf-8")
    values = {
        "job_id": job.job_id,
        "attempt": job.attempt,
        "workspace": str(job.workspace),
        "payload_file": str(payload_file),
        "payload": job.payload,
    }
    argv = fill(words, values)
    with payload_file.open("rb") as payload, _started(argv, payload, job) as process:
        tail = _listen(process, job)
    return _result(process.returncode, tail)


def _started(argv: list[str], payload: Any, job: JobContext) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(  # noqa: S603  no shell; the operator wrote the command
            argv, stdin=payload, stdout=subprocess.PIPE, env=os.environ | _named(job)
        )
    except OSError as error:
        raise TryAgain(f"the command {argv[0]!r} could not be started: {error}") from error


def _named(job: JobContext) -> dict[str, str]:
    told = {"JOB_MODEL": job.model, "JOB_ADAPTER": job.adapter, "JOB_VARIANT": job.variant}
    return {
        "JOB_ID": job.job_id,
        "JOB_ATTEMPT": str(job.attempt),
        "JOB_WORKSPACE": str(job.workspace),
        **{name: value for name, value in told.items() if value is not None},
    }


def _listen(process: "subprocess.Popen[bytes]", job: JobContext) -> bytes:
    """What it prints goes on to the log; the end of it is kept. It is stopped when the job is to stop."""
    assert process.stdout is not None
    pipe, tail = process.stdout.fileno(), b""
    while True:
        if job.cancelled:
            _stop(process)
            raise Cancelled("the command was stopped")
        if not select.select([pipe], [], [], _LOOK_S)[0]:
            if process.poll() is not None:  # something that it started still holds the pipe
                return tail
            continue
        got = os.read(pipe, LONGEST_TAIL)
        if not got:
            return tail
        sys.stdout.buffer.write(got)
        sys.stdout.flush()
        tail = (tail + got)[-LONGEST_TAIL:]


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _result(status: int, tail: bytes) -> object:
    if status == TRY_AGAIN:
        raise TryAgain(f"the command exited with status {TRY_AGAIN}: try again later")
    if status < 0:
        raise RuntimeError(f"the command was ended by signal {-status} ({signal.Signals(-status).name})")
    if status > 0:
        raise RuntimeError(f"the command exited with status {status}")
    text = tail.decode(errors="replace")
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    try:
        return json.loads(last, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {"stdout": text.replace("\0", "\ufffd")}


def _refuse(word: str) -> object:
    raise ValueError(f"{word} is no JSON")
