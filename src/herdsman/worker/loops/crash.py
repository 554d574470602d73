"""What a killed process leaves for the next one to read."""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

_NAMES = "crash-*.json"


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
    found = [record for path in sorted(directory.glob(_NAMES)) if (record := _take(path)) is not None]
    return sorted(found, key=lambda record: record.at)


def _take(path: Path) -> CrashRecord | None:
    try:
        text = path.read_text(encoding="utf-8")
        path.unlink()
    except OSError as error:
        logger.warning("the crash record %s cannot be taken: %s; look at its rights", path, error)
        return None
    return _parse(text, path)


def _parse(text: str, path: Path) -> CrashRecord | None:
    try:
        fields: dict[str, Any] = json.loads(text)
        return CrashRecord(**fields)
    except (TypeError, ValueError) as error:
        logger.warning("the crash record %s is not one and was removed: %s", path, error)
        return None
