"""What a measurement cost in CPU, and whether the machine was ours while it ran."""

import os
import platform
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
MOST_FOREIGN = 0.1
"""Of all cores: when other programs used more, the figures say more about them than about us."""


def cpu_s(pid: int) -> float:
    """Seconds of CPU that this process has used, for itself and in the system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def family(pid: int) -> dict[int, list[int]]:
    """A process with its children and theirs: user and system time of each, and of the children it waited for."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    times: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):  # it has ended in this moment
                continue
            children[int(fields[1])].append(int(entry.name))
            times[int(entry.name)] = [int(field) for field in fields[11:15]]
    found, waiting = dict[int, list[int]](), [pid]
    while waiting:
        each = waiting.pop()
        found[each] = times.get(each, [0])
        waiting += children[each]
    return found


def cpu_of_all_s() -> float:
    """What this process, its children and theirs have used, those that have ended included.

    A process that has ended is counted by the one that waited for it, so nothing is counted twice.
    """
    return sum(map(sum, family(os.getpid()).values())) * _TICK_S


def memory_mb(pids: Iterable[int]) -> float:
    """What these processes hold; pages that they share are counted once."""
    kilobytes = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        kilobytes += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes / 1024


def _busy_s() -> float:
    """What all programs of the machine have used."""
    names = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _waiting, interrupts, soft, *_ = (int(field) for field in names)
    return (user + nice + system + interrupts + soft) * _TICK_S


class Watch:
    """Begins with the benchmark, and tells afterwards how much of the machine other programs had."""

    def __init__(self) -> None:
        self._began, self._busy, self._ours = time.monotonic(), _busy_s(), cpu_of_all_s()

    def foreign(self) -> float:
        """The share of all cores that was used by others since then."""
        cores, passed = os.cpu_count() or 1, time.monotonic() - self._began
        others = (_busy_s() - self._busy) - (cpu_of_all_s() - self._ours)
        return max(0.0, others / (cores * passed))


def machine() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores, {platform.system()}"
