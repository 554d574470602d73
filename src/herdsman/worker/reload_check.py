"""Imports handlers, says where they come from or why they cannot be had, and ends."""

import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from herdsman.worker.handler_process import die_with, leave_others_alone
from herdsman.worker.registry import Sources, load, read_sources

MOST_FILES = 2_000
LONGEST_ERROR = 8_000


def main() -> None:
    parent, said, seconds = sys.argv[1:]
    die_with(int(parent))
    leave_others_alone()
    signal.alarm(int(float(seconds)))
    error = _trouble(read_sources(json.load(sys.stdin)))
    Path(said).write_text(
        json.dumps({"files": sorted(_files())[:MOST_FILES], "error": error}), encoding="utf-8"
    )
    os._exit(0)  # threads that a module has started need not end first


def _trouble(sources: Sources) -> str | None:
    sys.path[:0] = sources.paths
    try:
        load(sources)
    except BaseException as error:  # noqa: BLE001  a module may raise anything while it is imported
        return "".join(_told(error))[-LONGEST_ERROR:].rstrip()
    return None


def _told(error: BaseException) -> Iterator[str]:
    """The cause with its line, as Python shows it, without our own frames."""
    cause = error.__cause__ or error
    if cause is error:
        yield str(error)
        return
    theirs = [each for each in traceback.extract_tb(cause.__traceback__) if _is_theirs(each.filename)]
    yield from traceback.format_list(theirs)
    yield from traceback.format_exception_only(cause)


def _files() -> Iterator[str]:
    for module in [*sys.modules.values()]:
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and _is_theirs(file):
            yield file


def _is_theirs(file: str) -> bool:
    """Not of Python, not ours, and not installed: what somebody writes on."""
    ours = str(Path(__file__).resolve().parents[1])
    away = (ours, sys.prefix, sys.base_prefix, "<")
    return not file.startswith(away) and "site-packages" not in file


if __name__ == "__main__":
    main()
