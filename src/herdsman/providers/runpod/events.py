"""The log of a pod, out of a stream of server-sent events that would never end by itself."""

import json
from collections.abc import Iterable, Iterator

from herdsman.providers.runpod.answers import as_object

LONGEST_LINE = 4096


def log_lines(chunks: Iterable[str]) -> Iterator[str]:
    """The `line` of each event; what is no event of that kind is skipped."""
    for line in _lines(chunks):
        field, _, value = line.partition(":")
        if field == "data":
            said = _said(value)
            if said is not None:
                yield said[:LONGEST_LINE]


def _lines(chunks: Iterable[str]) -> Iterator[str]:
    begun = ""
    for chunk in chunks:
        *whole, begun = (begun + chunk).split("\n")
        yield from (line.removesuffix("\r") for line in whole)


def _said(data: str) -> str | None:
    try:
        event = as_object(json.loads(data))
    except (ValueError, RecursionError):
        return None
    line = event.get("line") if event is not None else None
    return line if isinstance(line, str) else None
