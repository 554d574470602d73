"""Signals to a process and its children, which are ours, and to no other."""

import os
import signal
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

STOPPED = "T"
STEP = timedelta(milliseconds=10)


@dataclass(frozen=True)
class Seen:
    """A process as the kernel shows it. `started` tells it from a later one with the same id."""

    pid: int
    parent: int
    started: int
    state: str


def look(pid: int) -> Seen | None:
    """What the process is doing; None when it has ended, even if nobody has asked for its exit status."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may hold anything, so we count from behind it.
    state, parent, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else Seen(pid, int(parent), started=int(rest[17]), state=state)


def freeze(pid: int) -> None:
    """Stop the parent first: it can then neither fork nor bury, so its children's ids stay theirs."""
    _stop(pid)
    for child in _children(pid):
        _stop(child.pid)


def thaw(pid: int) -> None:
    for child in _children(pid):
        if child.state == STOPPED:
            os.kill(child.pid, signal.SIGCONT)
    os.kill(pid, signal.SIGCONT)


def kill(pid: int) -> None:
    """End all of it at once. PostgreSQL's children would otherwise outlive the parent by a moment."""
    freeze(pid)
    for child in _children(pid):
        os.kill(child.pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def gone(server: Seen, *, within: timedelta) -> bool:
    """Wait for the end of that very process."""
    deadline = time.monotonic() + within.total_seconds()
    while (seen := look(server.pid)) is not None and seen.started == server.started:
        if time.monotonic() > deadline:
            return False
        time.sleep(STEP.total_seconds())
    return True


def _stop(pid: int) -> None:
    """Returns when it has stopped: the signal alone only says that it will."""
    os.kill(pid, signal.SIGSTOP)
    while (seen := look(pid)) is not None and seen.state != STOPPED:
        time.sleep(STEP.total_seconds())


def _children(pid: int) -> list[Seen]:
    ids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [seen for seen in map(look, ids) if seen is not None and seen.parent == pid]
