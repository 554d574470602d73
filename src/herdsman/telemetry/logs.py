"""Structured logs: one event per line on standard error, in a file as well, and as rows for the database."""

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import structlog
from structlog.typing import EventDict

from herdsman.errors import HerdsmanError, InvalidSettings
from herdsman.text import printable, printable_lines

LogFormat = Literal["auto", "json", "text"]
Event = MutableMapping[str, Any]

MOST_WAITING = 10_000
"""Rows that wait for the database; what comes beyond them pushes out the oldest."""
DROPPED = "log.dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    ts: datetime
    level: str
    event: str
    fields: Mapping[str, Any]


def configure_logs(
    level: str, form: LogFormat, *, file: str | None = None, instance: str | None = None, rows: "LogRows | None" = None
) -> None:
    """`instance` names this process in each line, `file` gets them as JSON, `rows` takes them for a database.

    Raises `InvalidSettings` when the file cannot be opened.
    """
    terminal, least = sys.stderr.isatty(), _number(level)
    text = form == "text" or (form == "auto" and terminal)

    def name(_logger: Any, _method: str, event: Event) -> Event:
        return event if instance is None else {**event, "instance": instance}

    def drop(_logger: Any, _method: str, event: Event) -> Event:
        """What only the database wants."""
        if _number(str(event["level"])) < least:
            raise structlog.DropEvent
        return event

    def unname(_logger: Any, _method: str, event: Event) -> Event:
        """Who sits at the terminal knows whose it is."""
        return {key: value for key, value in event.items() if key != "instance"}

    stored = [] if rows is None else [rows, drop]
    filed = [] if file is None else [_to_file(file)]
    shown = (
        [*([unname] if terminal else []), _printable, structlog.dev.ConsoleRenderer(colors=terminal)]
        if text
        else [structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            name,
            *stored,
            *filed,
            *shown,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least if rows is None else min(least, rows.level)),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


def _to_file(path: str) -> Callable[[Any, str, Event], Event]:
    """Opened for each line: several processes may share it, and whoever rotates it need tell nobody."""
    try:
        with open(path, "a", encoding="utf-8"):  # noqa: PTH123
            pass
    except OSError as error:
        raise InvalidSettings(
            f"LOG_FILE {path} cannot be written: {error.strerror}; name a file in a directory that is there and yours"
        ) from error
    as_json = structlog.processors.JSONRenderer()

    def write(logger: Any, method: str, event: Event) -> Event:
        """A line that the file does not take, as on a full disk, says so on standard error."""
        try:
            with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123
                file.write(f"{as_json(logger, method, dict(event))}\n")
        except OSError as error:
            return {**event, "log_file": f"not written: {error.strerror}"}
        return event

    return write


class LogRows:
    """Log lines on their way to the database. While it is away they wait, bounded: lines are lost before work is."""

    def __init__(
        self,
        write: Callable[[Sequence[LogRow]], None],
        *,
        level: str,
        batch: int,
        flush_every: float,
        most: int = MOST_WAITING,
    ) -> None:
        """`write` raises a `HerdsmanError` when it could not; the rows are kept and tried again."""
        self._write, self.level = write, _number(level)
        self._batch, self._flush_every, self._most = batch, flush_every, most
        self._waiting = deque[LogRow]()
        self._lock = threading.Lock()
        self._full, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-rows", daemon=True)
        self.dropped = 0
        """Rows that were pushed out and have not been reported yet."""

    def __call__(self, _logger: Any, _method: str, event: Event) -> Event:
        """As a processor of structlog. What is said while rows are written is no row: it would never end."""
        if _number(str(event.get("level", "info"))) >= self.level and threading.current_thread() is not self._thread:
            known = ("timestamp", "level", "event")
            row = LogRow(
                ts=datetime.fromisoformat(str(event["timestamp"])),
                level=str(event["level"]),
                event=str(event["event"]),
                fields={name: value for name, value in event.items() if name not in known},
            )
            with self._lock:
                self._waiting.append(row)
                if len(self._waiting) > self._most:
                    self._waiting.popleft()
                    self.dropped += 1
                if len(self._waiting) >= self._batch:
                    self._full.set()
        return event

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """What waits is written once more; then the thread ends."""
        self._over.set()
        self._full.set()
        self._thread.join(timeout=30)

    def flush(self) -> None:
        """Write all that waits. Raises what the database raises; what was not written waits on."""
        while ready := self._next():
            try:
                self._write(ready)
            except HerdsmanError:
                with self._lock:
                    reported = ready[0].fields["rows"] if ready[0].event == DROPPED else 0
                    kept = [*(ready[1:] if reported else ready), *self._waiting]
                    over = max(0, len(kept) - self._most)
                    self._waiting = deque(kept[over:])
                    self.dropped += reported + over
                raise

    def _next(self) -> list[LogRow]:
        with self._lock:
            ready = [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]
            if ready and self.dropped:
                ready.insert(0, LogRow(ts=ready[0].ts, level="warning", event=DROPPED, fields={"rows": self.dropped}))
                self.dropped = 0
            return ready

    def _run(self) -> None:
        away = False
        while True:
            self._full.wait(self._flush_every)
            self._full.clear()
            try:
                self.flush()
            except HerdsmanError as error:
                if not away:
                    structlog.get_logger().warning("log.not_stored", reason=str(error), waiting=len(self._waiting))
                away = True
                self._over.wait(self._flush_every)
            else:
                away = False
            if self._over.is_set():
                return


def _printable(_logger: object, _method: str, event: EventDict) -> EventDict:
    """What others wrote may be in any field. JSON escapes it by itself."""
    return {
        printable(name): (printable_lines(value) if name == "exception" else printable(value))
        if isinstance(value, str)
        else value
        for name, value in event.items()
    }
