"""Processes as Linux shows them: who is still the one we started, and all that came of it."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PROC = Path("/proc")
_DEAD = frozenset("ZXx")


@dataclass(frozen=True, slots=True)
class Stat:
    pid: int
    state: str
    session: int
    started_ticks: int

    @property
    def alive(self) -> bool:
        return self.state not in _DEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One process for ever: an id is used again, but not by a process that began at the same tick of this boot."""

    boot: str
    pid: int
    started_ticks: int


@cache
def this_boot() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def read_stat(pid: int) -> Stat | None:
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything, so what counts begins after the last one.
    fields = text.rpartition(")")[2].split()
    return Stat(pid, fields[0], int(fields[3]), int(fields[19]))


def identify(pid: int) -> Identity | None:
    stat = read_stat(pid)
    return None if stat is None else Identity(boot=this_boot(), pid=pid, started_ticks=stat.started_ticks)


def is_alive(who: Identity) -> bool:
    stat = read_stat(who.pid)
    return who.boot == this_boot() and stat is not None and stat.alive and _same(stat, who)


def family(who: Identity) -> list[int]:
    """Living processes of its session, itself included.

    While one is left, Linux gives the session's id to nobody else; once somebody else has it, none is left.
    """
    leader = read_stat(who.pid)
    if who.boot != this_boot() or (leader is not None and not _same(leader, who)):
        return []
    return [stat.pid for stat in _all() if stat.session == who.pid and stat.alive]


def kill_family(who: Identity) -> None:
    for pid in family(who):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def ask_to_end(who: Identity) -> None:
    """Its process group: what it runs in groups of their own is its own business to end."""
    if is_alive(who):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(who.pid, signal.SIGTERM)


def reap(who: Identity) -> None:
    """Where it is a child of ours; else somebody else does it."""
    stat = read_stat(who.pid)
    if stat is not None and _same(stat, who):
        with suppress(ChildProcessError):
            os.waitpid(who.pid, os.WNOHANG)


def find_marked(marker: str, name: str | None = None) -> Identity | None:
    """The session leader that was started with this in its environment, `NAME=value`.

    One that keeps its secrets shows no environment any more, and this `name` instead.
    """
    wanted = marker.encode()
    for stat in _all():
        if stat.session != stat.pid or not stat.alive:
            continue
        shown = _read(stat.pid, "comm").decode(errors="replace").rstrip("\n")
        if wanted in _read(stat.pid, "environ").split(b"\0") or (shown and shown == name):
            return Identity(boot=this_boot(), pid=stat.pid, started_ticks=stat.started_ticks)
    return None


def _same(stat: Stat, who: Identity) -> bool:
    return stat.started_ticks == who.started_ticks


def _all() -> Iterator[Stat]:
    for entry in PROC.iterdir():
        if entry.name.isdecimal() and (stat := read_stat(int(entry.name))) is not None:
            yield stat


def _read(pid: int, file: str) -> bytes:
    """Nothing of a process that has ended, or that does not let us."""
    try:
        return (PROC / str(pid) / file).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
