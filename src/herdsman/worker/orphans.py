"""Processes that a handler left behind: a daemon leaves its group and its parent, and then becomes ours.

This process makes itself the reaper of its descendants, so a process that loses its parent is given to us and not
to PID 1. It is known by a mark in its environment. A process that wipes its environment is found only where
`sole` says that this process has no children but handlers; one that is still somebody's child lives until then.
"""

import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from herdsman.worker.memory import read_stat

MARK = "HANDLER_MARK"
_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 200
_PAUSE_S = 0.01


def adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    mark: str
    sole: bool = False

    def end(self, keep: Collection[int] = ()) -> int:
        """Kills them, and what becomes an orphan by that; how many there were. `keep` are our own children."""
        ended: set[int] = set()
        for _ in range(_ROUNDS):
            found = [pid for pid in _children() if pid not in keep and self._is_one(pid)]
            if not found:
                break
            for pid in found:
                ended.add(pid)
                _kill(pid)
            time.sleep(_PAUSE_S)
        return len(ended)

    def _is_one(self, pid: int) -> bool:
        if self.sole:
            return True
        with suppress(OSError):
            return f"{MARK}={self.mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False


def _kill(pid: int) -> None:
    """Ours to reap, so the number cannot be another's yet."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _children() -> list[int]:
    """Orphans are given to the first thread of a process; without that list of the kernel we look at everybody."""
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{me}/children").read_text().split()]
    except OSError:
        return list(_by_parent(me))


def _by_parent(parent: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (stat := read_stat(int(entry.name))) and int(stat[1]) == parent:
            yield int(entry.name)
