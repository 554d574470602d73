"""The log of a pod as a stream of events, which stays open for what is yet to be said."""

import json
import threading
from collections.abc import Collection, Iterator, Mapping

from herdsman.testing.runpod.clocks import Timeline
from herdsman.testing.runpod.pods import MOST_LOG_LINES, FakePod
from herdsman.testing.runpod.replies import Refused

SOURCES = frozenset({"container", "system"})
LOOK_AGAIN_S = 0.05
# A reader that has left is noticed only by writing to it.
SIGN_OF_LIFE_AFTER = 20
MOST_LOOKS = 12_000


def log_events(
    pod: FakePod, query: Mapping[str, str], timeline: Timeline, stopping: threading.Event
) -> Iterator[str]:
    sources = {query["source"]} if "source" in query else SOURCES
    tail = query.get("tail", "100")
    if not sources <= SOURCES or not tail.isdecimal() or int(tail) > MOST_LOG_LINES:
        raise Refused(422, "Request validation failed.", errors=("source or tail: not understood",))
    return _stream(pod, sources, int(tail), timeline, stopping)


def _stream(
    pod: FakePod, sources: Collection[str], tail: int, timeline: Timeline, stopping: threading.Event
) -> Iterator[str]:
    said = pod.said(sources)
    yield from (_event(entry, timeline) for entry in (said[-tail:] if tail else ()))
    last = said[-1] if said else None
    for look in range(MOST_LOOKS):
        if stopping.wait(LOOK_AGAIN_S):
            return
        new = _after(last, pod.said(sources))
        yield from (_event(entry, timeline) for entry in new)
        last = new[-1] if new else last
        if look % SIGN_OF_LIFE_AFTER == 0:
            yield ": still here\n\n"


def _after(
    last: tuple[float, str, str] | None, said: list[tuple[float, str, str]]
) -> list[tuple[float, str, str]]:
    """By identity: the same words may be said twice in the same moment."""
    for index in range(len(said) - 1, -1, -1):
        if said[index] is last:
            return said[index + 1 :]
    return said


def _event(entry: tuple[float, str, str], timeline: Timeline) -> str:
    at, source, line = entry
    when = timeline.text(at)
    return f"id: {when}\ndata: {json.dumps({'ts': when, 'source': source, 'line': line})}\n\n"
