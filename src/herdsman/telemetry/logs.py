"""Structured logs on standard error: one event per line, as text for people or JSON for machines."""

import logging
import sys
from typing import Literal

import structlog

LogFormat = Literal["auto", "json", "text"]


def configure_logs(level: str, form: LogFormat) -> None:
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
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
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
