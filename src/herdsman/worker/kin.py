"""Which processes are this worker's own, as a driver outside of any container would number them."""

import os
from pathlib import Path

from herdsman.worker.memory import read_stat

_PROC = Path("/proc")
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's own number for the one that is not inside another."""


def own_processes(proc: Path = _PROC) -> frozenset[int] | None:
    """This process and all that came of it; None in a container, where the driver may count by other numbers."""
    try:
        if str((proc / "self/ns/pid").readlink()) != _FIRST_NAMESPACE:
            return None
    except OSError:
        return None
    return descendants(os.getpid(), proc)


def descendants(pid: int, proc: Path = _PROC) -> frozenset[int]:
    """With `pid` itself. Orphans of ours are among them: they are given to us."""
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdecimal() and (stat := read_stat(int(entry.name), proc)):
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found, unseen = {pid}, [pid]
    while unseen:
        new = [each for each in children.get(unseen.pop(), []) if each not in found]
        found.update(new)
        unseen += new
    return frozenset(found)
