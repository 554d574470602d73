"""What `herdsman doctor` makes of what it saw: plain values in, a verdict with cause and way out."""

import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from herdsman.cli.room import LEAST, LITTLE, MB, Place, space_fault
from herdsman.core.gpu import GpuDevice

SMALL_SKEW, LARGE_SKEW = timedelta(seconds=2), timedelta(seconds=30)
OLDEST_PYTHON = (3, 11)
_KEY = re.compile(r"[A-Za-z0-9_-]{20,128}", re.ASCII)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class State(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    about: str
    state: State
    said: str
    fix: str = ""
    """What to do about it; empty where all is well."""


def ok(about: str, said: str) -> Finding:
    return Finding(about=about, state=State.OK, said=said)


def warn(about: str, said: str, fix: str) -> Finding:
    return Finding(about=about, state=State.WARN, said=said, fix=fix)


def fail(about: str, said: str, fix: str) -> Finding:
    return Finding(about=about, state=State.FAIL, said=said, fix=fix)


def versions(herdsman: str, python: tuple[int, int, int], sqlite: str) -> Finding:
    said = f"Herdsman {herdsman}, Python {'.'.join(map(str, python))}, SQLite {sqlite}"
    if python[:2] < OLDEST_PYTHON:
        return fail("versions", said, "install Python 3.11 or newer")
    return ok("versions", said)


def room(place: Place, fault: str | None, free: int) -> Finding:
    about, said = "room", f"{place.directory} ({place.setting}): {free // MB:,} MB free"
    if fault is not None:
        return fail(about, fault.partition("; ")[0], fault.partition("; ")[2])
    if free < LEAST:
        return fail(about, said, (space_fault(place, free) or "").rpartition(": ")[2])
    if free < LITTLE:
        return warn(about, said, f"make room there, or set {place.setting} to a place with more")
    return ok(about, f"{said}, writable")


def secret_file(path: Path, mode: int | None) -> Finding:
    """`mode` is None where there is no such file."""
    if mode is None:
        return ok("secrets", f"{path} is not there yet; herdsman up makes it")
    if mode & _OTHERS:
        return fail("secrets", f"{path} holds a secret, but others can read it", f"chmod 600 {path}")
    return ok("secrets", f"{path} is yours alone")


def schema(fault: str | None, latest: str) -> Finding:
    if fault is None:
        return ok("schema", f"{latest}, guards in place")
    said, _, fix = fault.rpartition(": ")
    return fail("schema", said, fix)


def adopted(doubt: str, hint: str) -> Finding:
    """`doubt` says why the database may be a copy, or out of date; `hint` what a worker said of it."""
    if doubt:
        return fail("database", *doubt.rsplit("; ", 1))
    if hint:
        return warn(
            "database", f"it may have gone back in time: {hint}", "herdsman db adopt raises its numbers"
        )
    return ok("database", "it is where it was used last")


def clock(skew: timedelta | None, whose: str) -> Finding:
    """`skew` is how far the clock of the database is ahead of ours; None where it has none of its own."""
    if skew is None:
        return ok("clock", f"{whose} goes by the clock of this machine")
    seconds, off = skew.total_seconds(), abs(skew)
    said = f"the clock of {whose} is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} ours"
    fix = "set both clocks by NTP (timedatectl set-ntp true)"
    if off >= LARGE_SKEW:
        return fail("clock", f"{said}: tokens and leases end at the wrong time", fix)
    return warn("clock", said, fix) if off >= SMALL_SKEW else ok("clock", said)


def runpod_key(key: str) -> Finding:
    """Only its shape; the key itself is never shown."""
    about = "provider"
    if key != key.strip() or any(mark in key for mark in "\"' "):
        return fail(about, "RUNPOD_API_KEY has quotes or blanks in it", "set it again, without them")
    if not _KEY.fullmatch(key):
        fix = "copy it again from the settings of your Runpod account"
        return warn(about, f"RUNPOD_API_KEY has {len(key)} characters and does not look like a key", fix)
    return ok(about, "RUNPOD_API_KEY looks like a key")


def gpus(*, local: bool, fake: int, devices: Sequence[GpuDevice], driver: str | None) -> Finding:
    if not local:
        return ok("gpu", "not needed here: workers run on rented machines")
    if fake:
        return ok("gpu", f"{fake} pretended (FAKE_GPUS)")
    if devices:
        names = ", ".join(f"{each.name} ({each.total_mb // 1024} GB)" for each in devices)
        return ok("gpu", f"{names}; driver {driver or 'of unknown version'}")
    said = "no GPU was found" if driver is None else f"the driver {driver} shows no GPU"
    fix = "install NVIDIA's driver, see nvidia-smi; or pretend on purpose: herdsman up --fake-gpus 2"
    return warn("gpu", f"{said}: herdsman up only pretends that there are some", fix)


def port(host: str, number: int, *, ours: int | None, taken: str | None) -> Finding:
    """`ours` is the process of ours that listens there; `taken` what the system says when somebody else does."""
    if number == 0:
        return ok("port", "any that is free (API_PORT=0)")
    if ours is not None:
        return ok("port", f"{host}:{number} is taken by herdsman itself, process {ours}")
    if taken is not None:
        fix = f"set another API_PORT, or herdsman up --port 0; ss -ltnp 'sport = :{number}' shows who has it"
        return fail("port", f"{host}:{number} cannot be taken: {taken}", fix)
    return ok("port", f"{host}:{number} is free")
