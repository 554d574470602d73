"""Memory: a limit inside the handler's process, a look from outside, and the kernel's own kills.

Inside it is RLIMIT_DATA, not RLIMIT_AS: CUDA reserves far more addresses than it ever uses, and RLIMIT_AS would
count them. The limit holds for each process by itself; the look from outside adds up the whole group.
"""

import resource
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

_MB = 1024 * 1024
_PROC = Path("/proc")
_DEAD = frozenset("ZXx")
_CGROUPS = Path("/sys/fs/cgroup")


@contextmanager
def limited_to(megabytes: int | None) -> Generator[None]:
    """Within the block an allocation past the limit is a `MemoryError` in this process."""
    if megabytes is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = megabytes * _MB if hard == resource.RLIM_INFINITY else min(hard, megabytes * _MB)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def group_memory_mb(group: int, proc: Path = _PROC) -> int:
    """What a process group has in memory. Pages that its processes share are counted once."""
    return sum(_share_kb(proc / str(pid)) for pid in members(group, proc)) // 1024


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


def _share_kb(process: Path) -> int:
    try:
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except (OSError, ValueError):
        return 0  # it has ended, or is not ours to look at
    return 0


def kernel_kills(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """How often the kernel has killed in our control group for want of memory; 0 when nobody counts."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return 0
    return sum(_kills(file) for line in lines for file in _counters(line, cgroups))


def _counters(line: str, cgroups: Path) -> Iterator[Path]:
    """The second version has one tree, the first a tree for memory alone."""
    _, kinds, path = line.split(":", 2)
    inside = path.lstrip("/")
    if kinds == "":
        yield cgroups / inside / "memory.events"
    elif "memory" in kinds.split(","):
        yield cgroups / "memory" / inside / "memory.oom_control"


def _kills(file: Path) -> int:
    try:
        words = dict(line.split(maxsplit=1) for line in file.read_text().splitlines() if " " in line)
        return int(words.get("oom_kill", 0))
    except (OSError, ValueError):
        return 0
