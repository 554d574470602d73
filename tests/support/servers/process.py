"""One running server program: how it is started, signalled and ended, also when the tests die without doing so.

This module is also a small program, the guard beside each server: a test run that is killed, or cut short by its time
limit, runs no clean-up of its own. The guard reads from a pipe that the tests hold open, and ends the server when they
are gone. Signals go to the server's process and its children, which are ours, and to no other.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from signal import Signals

GRACE = timedelta(seconds=30)
# Nothing of ours, so that a PGPORT or a MYSQL_HOME in somebody's shell changes nothing here.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
GUARD_GRACE = timedelta(seconds=10)
STOPPED = "T"
STEP = timedelta(milliseconds=10)


class ServerStartError(Exception):
    """A server could not be started; the message ends with what it said itself."""


@dataclass(frozen=True)
class Account:
    """A system user other than root."""

    uid: int
    gid: int


class ServerProcess:
    """A started program. It is ended by `stop` or `kill`, or by its guard when we die first."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        account: Account | None,
        stop_signal: Signals,
        scratch: Path | None,
    ) -> None:
        self._popen = _start(command, log=log, account=account)
        self._stop_signal = stop_signal
        self._guard = _post_guard(self.pid, stop_signal, scratch)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ended(self) -> bool:
        return self._popen.poll() is not None

    def pause(self) -> None:
        _freeze(self.pid)

    def resume(self) -> None:
        _thaw(self.pid)

    def stop(self) -> None:
        """Ask for the end and wait for it; a server that does not obey is killed."""
        if not self.ended():
            self.resume()
            self._popen.send_signal(self._stop_signal)
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(GRACE.total_seconds())
        self.kill()

    def kill(self) -> None:
        """What the out-of-memory killer or a pulled plug does: nothing is said, nothing is saved."""
        if not self.ended():
            _kill(self.pid)
            self._popen.wait()
        self._guard.communicate(b"done")


def run_to_end(command: Sequence[str], *, log: Path, account: Account | None) -> None:
    """Run a helper program such as initdb, and raise with its words when it fails."""
    with _start(command, log=log, account=account) as helper:
        if helper.wait() != 0:
            raise ServerStartError(f"{command[0]} failed:\n{tail(log)}")


def tail(log: Path, lines: int = 30) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _start(command: Sequence[str], *, log: Path, account: Account | None) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=ENVIRONMENT,
            start_new_session=True,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
        )


def _post_guard(pid: int, stop_signal: Signals, scratch: Path | None) -> subprocess.Popen[bytes]:
    arguments = [str(pid), str(int(stop_signal)), *([str(scratch)] if scratch is not None else [])]
    return subprocess.Popen(
        [sys.executable, __file__, *arguments],
        stdin=subprocess.PIPE,
        # It may outlive the tests: whoever reads their output must not wait for it.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # The Ctrl-C that ends the tests must not end the guard before its work is done.
        start_new_session=True,
    )


@dataclass(frozen=True)
class ProcessInfo:
    """A process as the kernel shows it. `started` tells it from a later one with the same id."""

    pid: int
    parent: int
    started: int
    state: str


def find_process(pid: int) -> ProcessInfo | None:
    """What the process is doing; None when it has ended, even if nobody has asked for its exit status."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may hold anything, so we count from behind it.
    state, parent, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else ProcessInfo(pid, int(parent), started=int(rest[17]), state=state)


def _freeze(pid: int) -> None:
    """Stop the parent first: it can then neither fork nor reap, so its children's ids stay theirs."""
    _stop(pid)
    for child in _children(pid):
        _stop(child.pid)


def _thaw(pid: int) -> None:
    for child in _children(pid):
        if child.state == STOPPED:
            os.kill(child.pid, signal.SIGCONT)
    os.kill(pid, signal.SIGCONT)


def _kill(pid: int) -> None:
    """End all of it at once. PostgreSQL's children would otherwise outlive the parent by a moment."""
    _freeze(pid)
    for child in _children(pid):
        os.kill(child.pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def has_ended(server: ProcessInfo, *, within: timedelta) -> bool:
    """Wait for the end of that very process."""
    deadline = time.monotonic() + within.total_seconds()
    while (seen := find_process(server.pid)) is not None and seen.started == server.started:
        if time.monotonic() > deadline:
            return False
        time.sleep(STEP.total_seconds())
    return True


def _stop(pid: int) -> None:
    """Returns when it has stopped: the signal alone only says that it will."""
    os.kill(pid, signal.SIGSTOP)
    while (seen := find_process(pid)) is not None and seen.state != STOPPED:
        time.sleep(STEP.total_seconds())


def _children(pid: int) -> list[ProcessInfo]:
    ids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [seen for seen in map(find_process, ids) if seen is not None and seen.parent == pid]


def guard(pid: str, stop_signal: str, *scratch: str) -> None:
    """The program of the guard: a word on its input means that the server was ended properly, silence that the tests died."""
    server = find_process(int(pid))
    if sys.stdin.buffer.read():
        return
    if server is not None and not has_ended(server, within=timedelta(0)):
        _thaw(server.pid)
        os.kill(server.pid, int(stop_signal))
        if not has_ended(server, within=GUARD_GRACE):
            _kill(server.pid)
    for directory in scratch:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    guard(*sys.argv[1:])
