"""Structured logs on standard error: one event per line, as text for people or JSON for machines."""

import logging
import sys
from typing import Literal

import structlog
from structlog.typing import EventDict

from herdsman.core.printable import printable, printable_lines

LogFormat = Literal["auto", "json", "text"]


def configure_logs(level: str, form: LogFormat) -> None:
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    shown = [_printable] if text else []
    last = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if text
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *shown,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _printable(_logger: object, _method: str, event: EventDict) -> EventDict:
    """What others wrote may be in any field. JSON escapes it by itself."""
    return {
        printable(name): _shown(name, value) if isinstance(value, str) else value
        for name, value in event.items()
    }


def _shown(name: str, value: str) -> str:
    return printable_lines(value) if name == "exception" else printable(value)
