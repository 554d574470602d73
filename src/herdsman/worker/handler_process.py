"""The process that runs one job: an order comes in as JSON on standard input, answers leave as lines of JSON.

It is started in a process group of its own and dies with its supervisor. What the handler prints goes to the
supervisor's log: standard output is put away first, for answers alone.
"""

import ctypes
import json
import math
import os
import signal
import sys
import traceback
from typing import Any, TextIO

from herdsman.worker import handlers
from herdsman.worker.handlers import RunningJob, UserError

LONGEST_ERROR = 8000
_PR_SET_PDEATHSIG = 1


def main() -> None:
    die_with(int(sys.argv[1]))
    order = json.load(sys.stdin)
    answers = _take_stdout()
    _send(answers, _run(order, answers))


def die_with(parent: int) -> None:
    """A supervisor that is killed must not leave a job running that another worker gets."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:  # it died before we could ask
        os._exit(1)


def _take_stdout() -> TextIO:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _run(order: dict[str, Any], answers: TextIO) -> dict[str, object]:
    job = RunningJob(
        job_id=order["job_id"],
        type=order["type"],
        payload=order["payload"],
        attempt=order["attempt"],
        progress=lambda done, note=None: _send(answers, _progress(done, note)),
    )
    try:
        result = handlers.load(job.type)(job)
        json.dumps(result, allow_nan=False)
    except Exception as error:  # noqa: BLE001  a handler may raise anything; it is told, not swallowed
        return {"failure": _kind(error), "error": _text(error)}
    return {"result": result}


def _progress(done: float, note: str | None) -> dict[str, object]:
    if not math.isfinite(done):
        raise ValueError(f"progress is {done}: it must be from 0 to 1")
    return {"progress": min(1.0, max(0.0, float(done))), "note": note}


def _kind(error: Exception) -> str:
    """PyTorch and its like have errors of their own for a full GPU; the name is all we can go by."""
    if isinstance(error, UserError):
        return "user_error"
    full = isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__
    return "out_of_memory" if full or "CUDA out of memory" in str(error) else "job_error"


def _text(error: Exception) -> str:
    if isinstance(error, UserError):
        return str(error)[:LONGEST_ERROR]
    return "".join(traceback.format_exception(error))[-LONGEST_ERROR:]


def _send(answers: TextIO, answer: dict[str, object]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
