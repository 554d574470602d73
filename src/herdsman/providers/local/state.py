"""What was started, in files: a control plane that starts anew finds its workers again.

A file is there before its process is, and is replaced as a whole. It need not survive the machine's own crash,
which no process survives either.
"""

import fcntl
import json
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path

from herdsman.core.errors import ProviderUnavailable
from herdsman.ports import Clock
from herdsman.providers.local.processes import Identity

LONGEST_NAME = 128
MOST_LOGS = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_PATIENCE = timedelta(seconds=10)
_LOOK_AGAIN = timedelta(milliseconds=20)
_TAIL = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    name: str
    gpu: int
    created_at: datetime
    process: Identity | None = None
    """None from just before its start until just after."""
    end_asked: float | None = None
    """On the monotonic clock, which all processes of one boot share."""


class State:
    """The files of one deployment. Every use of the records is under the lock."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._records = directory / "instances"
        self._logs = directory / "logs"
        self._lock = directory / "lock"
        self._clock = clock

    @contextmanager
    def locked(self) -> Generator[None]:
        """Alone on this machine, and with every error of the disk made ours."""
        try:
            for directory in (self._records, self._logs):
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._lock.open("a") as file:
                self._take(file.fileno())
                yield
        except OSError as error:
            raise ProviderUnavailable(f"the state of local workers cannot be used: {error}") from error

    def records(self) -> list[Record]:
        """All of them, or an error."""
        found = [self._read(path) for path in sorted(self._records.glob("*.json"))]
        return [record for record in found if record is not None]

    def find(self, name: str) -> Record | None:
        return self._read(self._path(name)) if is_name(name) else None

    def write(self, record: Record) -> None:
        path = self._path(record.name)
        pending = path.with_suffix(".pending")
        pending.write_text(json.dumps({**asdict(record), "created_at": record.created_at.isoformat()}))
        pending.rename(path)

    def remove(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def log_of(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def tail(self, name: str, lines: int) -> list[str]:
        """The log outlives its process: that is when it is wanted most."""
        if lines < 1 or not is_name(name):
            return []
        try:
            with self.log_of(name).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
                return file.read().decode(errors="replace").splitlines()[-lines:]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ProviderUnavailable(f"the log of {name} cannot be read: {error}") from error

    def prune_logs(self) -> None:
        kept = {self.log_of(record.name) for record in self.records()}
        old = sorted(set(self._logs.glob("*.log")) - kept, key=lambda path: path.stat().st_mtime)
        for path in old[: max(0, len(old) - MOST_LOGS)]:
            path.unlink(missing_ok=True)

    def _take(self, lock: int) -> None:
        deadline = self._clock.monotonic() + _PATIENCE.total_seconds()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._clock.monotonic() > deadline:
                    raise ProviderUnavailable("another process holds the state of local workers") from None
                self._clock.sleep(_LOOK_AGAIN)
            else:
                return

    def _path(self, name: str) -> Path:
        return self._records / f"{name}.json"

    def _read(self, path: Path) -> Record | None:
        try:
            values = json.loads(path.read_text())
            process = values.pop("process")
            created_at = datetime.fromisoformat(values.pop("created_at"))
            return Record(
                **values, created_at=created_at, process=None if process is None else Identity(**process)
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ProviderUnavailable(f"{path} is not what we wrote: {error}") from error


def is_name(text: str) -> bool:
    return len(text) <= LONGEST_NAME and _NAME.fullmatch(text) is not None
