"""The supervisor's side of a handler's process: started, listened to, and ended with all that it started."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

from herdsman.core.model import Claim

LONGEST_ANSWER = 16 * 1024 * 1024
_CHUNK = 1024 * 1024

Answer = Mapping[str, Any]


class Child(Protocol):
    """A job at work."""

    def listen(self, wait_s: float) -> Sequence[Answer]:
        """Answers that have come, after at most `wait_s` seconds."""
        ...

    def ended(self) -> bool: ...

    def ask_to_stop(self) -> None: ...

    def kill(self) -> None: ...

    def close(self) -> str:
        """To be called once it has ended: nothing of it is left afterwards. How it ended, in words."""
        ...


class HandlerChild:
    """One job in a process group of its own."""

    def __init__(self, claim: Claim, environment: Mapping[str, str]) -> None:
        with tempfile.TemporaryFile() as order:  # a file, because a pipe that nobody reads would hold us up
            order.write(_order(claim))
            order.seek(0)
            self._popen = subprocess.Popen(  # noqa: S603  our own module, with no word from the job
                [sys.executable, "-P", "-m", "herdsman.worker.handler_process", str(os.getpid())],
                stdin=order,
                stdout=subprocess.PIPE,
                env=dict(environment),
                process_group=0,
            )
        assert self._popen.stdout is not None
        self._pipe = self._popen.stdout.fileno()
        os.set_blocking(self._pipe, False)
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)
        self._unread = b""
        self._open = True

    @property
    def pid(self) -> int:
        return self._popen.pid

    def listen(self, wait_s: float) -> Sequence[Answer]:
        if not self._open:
            select.select([], [], [], wait_s)
            return ()
        self._poll.poll(wait_s * 1000)
        return self._answers()

    def ended(self) -> bool:
        """Not reaped yet: until `close` its process id, and so the id of its group, belongs to nobody else."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def ask_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def close(self) -> str:
        self.kill()  # what the handler started ends with it
        status = self._popen.wait()
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _answers(self) -> list[Answer]:
        try:
            got = os.read(self._pipe, _CHUNK)
        except BlockingIOError:
            return []
        if not got:
            self._open = False
        *lines, self._unread = (self._unread + got).split(b"\n")
        if len(self._unread) > LONGEST_ANSWER:
            self._unread, self._open = b"", False
            return [{"failure": "user_error", "error": f"one answer had more than {LONGEST_ANSWER:,} bytes"}]
        return [answer for line in lines if (answer := _parse(line)) is not None]


def _order(claim: Claim) -> bytes:
    return json.dumps(
        {
            "job_id": claim.key.job_id,
            "type": claim.type,
            "payload": claim.payload,
            "attempt": claim.attempt,
        }
    ).encode()


def _parse(line: bytes) -> Answer | None:
    """A handler's process is not trusted: a line that is no answer is none."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("Answer", answer) if isinstance(answer, dict) else None
