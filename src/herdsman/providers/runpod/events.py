"""The log of a pod, out of a stream of server-sent events that would never end by itself."""

import json
from collections.abc import Iterable, Iterator

from herdsman.providers.runpod.answers import as_object

LONGEST_LINE = 4096
LARGEST_EVENT = 1024 * 1024


def log_lines(chunks: Iterable[str]) -> Iterator[str]:
    """The `line` of each event; what is no event of that kind is skipped."""
    for line in _lines(chunks):
        field, _, value = line.partition(":")
        if field == "data":
            said = _said(value)
            if said is not None:
                yield said[:LONGEST_LINE]


def _lines(chunks: Iterable[str]) -> Iterator[str]:
    begun: list[str] = []
    size = 0
    for chunk in chunks:
        first, *others = chunk.split("\n")
        for number, part in enumerate((first, *others)):
            if number:
                if size <= LARGEST_EVENT:
                    yield "".join(begun).removesuffix("\r")
                begun, size = [], 0
            size += len(part)
            if size <= LARGEST_EVENT:  # the rest of a longer one is left out
                begun.append(part)


def _said(data: str) -> str | None:
    try:
        event = as_object(json.loads(data))
    except (ValueError, RecursionError):
        return None
    line = event.get("line") if event is not None else None
    return line if isinstance(line, str) else None
