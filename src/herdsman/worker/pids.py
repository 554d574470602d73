"""Processes as /proc shows them: whose they are, and what memory they have.

A handler's memory limit is RLIMIT_DATA, not RLIMIT_AS: CUDA reserves far more addresses than it ever uses, and
RLIMIT_AS would count them. The limit holds for each process by itself; `group_memory_mb` adds up the whole group.
"""

import ctypes
import os
import resource
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MB = 1024 * 1024
_PROC = Path("/proc")
_DEAD = frozenset("ZXx")
_CGROUPS = Path("/sys/fs/cgroup")
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's own number for the one that is not inside another."""
_PR_SET_CHILD_SUBREAPER = 36


@contextmanager
def limited_to(megabytes: int) -> Generator[None]:
    """Within the block an allocation past the limit is a `MemoryError` in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = megabytes * _MB if hard == resource.RLIM_INFINITY else min(hard, megabytes * _MB)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def group_memory_mb(group: int, proc: Path = _PROC) -> int:
    """What a process group has in memory. Pages that its processes share are counted once."""
    total = 0
    for pid in members(group, proc):
        with suppress(OSError, ValueError):  # it has ended, or is not ours to look at
            lines = (proc / str(pid) / "smaps_rollup").read_text().splitlines()
            total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total // 1024


def members(group: int, proc: Path = _PROC) -> Iterator[int]:
    for entry in proc.iterdir():
        if entry.name.isdecimal() and (stat := read_stat(int(entry.name), proc)) and int(stat[2]) == group:
            yield int(entry.name)


def is_alone(leader: int, proc: Path = _PROC) -> bool:
    """Whether nobody of its group lives but the leader itself; the dead who wait to be reaped hold nothing."""
    others = [pid for pid in members(leader, proc) if pid != leader]
    return not any((stat := read_stat(pid, proc)) and stat[0] not in _DEAD for pid in others)


def read_stat(pid: int, proc: Path = _PROC) -> list[str] | None:
    """State, parent, group, session, ...; None when there is no such process. Its name may hold any sign."""
    try:
        return (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def kernel_kills(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """How often the kernel has killed in our control group for want of memory; 0 when nobody counts."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return 0
    kills = 0
    for line in lines:
        _, kinds, path = line.split(":", 2)
        # The second version has one tree, the first a tree for memory alone.
        if kinds == "":
            file = cgroups / path.lstrip("/") / "memory.events"
        elif "memory" in kinds.split(","):
            file = cgroups / "memory" / path.lstrip("/") / "memory.oom_control"
        else:
            continue
        with suppress(OSError, ValueError):
            words = dict(line.split(maxsplit=1) for line in file.read_text().splitlines() if " " in line)
            kills += int(words.get("oom_kill", 0))
    return kills


def own_processes(proc: Path = _PROC, pid: int | None = None) -> frozenset[int] | None:
    """This process and all that came of it, orphans of ours among them: they are given to us.

    None in a container, where the driver may count by other numbers.
    """
    try:
        if str((proc / "self/ns/pid").readlink()) != _FIRST_NAMESPACE:
            return None
    except OSError:
        return None
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdecimal() and (stat := read_stat(int(entry.name), proc)):
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    unseen = [os.getpid() if pid is None else pid]
    found = set(unseen)
    while unseen:
        new = [each for each in children.get(unseen.pop(), []) if each not in found]
        found.update(new)
        unseen += new
    return frozenset(found)


def adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
