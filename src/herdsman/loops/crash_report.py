"""What a process leaves behind when its watchdog kills it, and how it is killed."""

import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashRecord:
    at: str
    """When it was written, in UTC."""
    pid: int
    threshold: float
    stalled: dict[str, float]
    """The loops that stood still, each with its seconds without a beat."""
    stacks: str


def describe(stalled: Sequence[tuple[str, float]], threshold: float, stacks: str) -> CrashRecord:
    return CrashRecord(
        at=datetime.now(UTC).isoformat(),
        pid=os.getpid(),
        threshold=threshold,
        stalled=dict(stalled),
        stacks=stacks,
    )


def write_crash(directory: Path, record: CrashRecord) -> Path:
    """All of it or nothing: a reader never sees half a record."""
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = directory / f".crash-{record.pid}"
    with unfinished.open("w", encoding="utf-8") as file:
        json.dump(asdict(record), file)
        file.flush()
        os.fsync(file.fileno())
    return unfinished.replace(directory / f"crash-{record.pid}.json")


def read_crashes(directory: Path) -> list[CrashRecord]:
    """The records that earlier processes left here, oldest first; they are gone afterwards."""
    found: list[CrashRecord] = []
    for path in sorted(directory.glob("crash-*.json")):
        try:
            text = path.read_text(encoding="utf-8")
            path.unlink()
            fields: dict[str, Any] = json.loads(text)
            found.append(CrashRecord(**fields))
        except OSError as error:
            logger.warning("the crash record %s cannot be taken: %s; look at its rights", path, error)
        except (TypeError, ValueError) as error:
            logger.warning("the crash record %s is not one and was removed: %s", path, error)
    return sorted(found, key=lambda record: record.at)


LONGEST = 200_000


def all_stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts: list[str] = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the only way
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"Thread {names.get(ident, 'unknown')} ({ident}), most recent call last:\n{lines}")
    return "\n".join(parts)[:LONGEST]


Step = Callable[[], object]

STATUS_AFTER_SIGKILL = 128 + signal.SIGKILL


def within(seconds: float, steps: Sequence[Step]) -> None:
    """Each step has a thread of its own: one that hangs or fails keeps none of the others from its turn."""
    deadline = time.monotonic() + seconds
    started: list[threading.Thread] = []

    def attempt(step: Step) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001  nobody is left who could act on it
            os.write(2, f"Watchdog: a last step failed: {error!r}\n".encode())

    for step in steps:
        thread = threading.Thread(target=attempt, args=(step,), name="crash-report", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread is to be had any more: the kill matters more than the report
            continue
        started.append(thread)
    for thread in started:
        thread.join(max(0.0, deadline - time.monotonic()))


def kill_group(group: int) -> None:
    """Ends a process group; never the one that we are in, which would end our own supervisor too."""
    if group <= 1 or group == os.getpgrp():
        return
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    # The first process of a PID namespace is immune to its own SIGKILL, and goes on here.
    os._exit(STATUS_AFTER_SIGKILL)
