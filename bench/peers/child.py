"""The process of a peer: it fills the queue, works it off, or submits jobs to a worker: one at a time, or all it can.

It runs with the peer's own Python, which may hold nothing but the peer: only the standard library is used here.
"""

import importlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, cast

from bench.peers import marks

_STEP_S = 0.001
_LIMIT_S = 60.0


class Side(Protocol):
    """What the module of a peer offers."""

    def fill(self, url: str, count: int) -> None:
        """Make the tables, where there are any, and queue `count` jobs that do nothing."""
        ...

    def submitter(self, url: str) -> AbstractContextManager[Callable[[], object]]:
        """A connected client; what it yields submits one job.

        A side that has a faster way for many offers it as `flooder`, which yields what submits so many.
        """
        ...

    def work(self, url: str, mark: Callable[[], None], **options: Any) -> None:
        """Be one worker process that runs one job at a time, and never return."""
        ...


def main(asked: Mapping[str, Any]) -> None:
    side = cast("Side", importlib.import_module(f"bench.peers.{asked['side']}"))
    path = Path(asked["marks"])
    match asked["role"]:
        case "fill":
            side.fill(asked["url"], asked["count"])
        case "sample":
            with side.submitter(asked["url"]) as submit:
                json.dump(sample(submit, path, asked["count"], asked["pause_s"]), sys.stdout)
        case "flood":
            with _flooder(side, asked["url"], asked["options"]) as flood:
                json.dump(flooded(flood, asked["count"]), sys.stdout)
        case role:
            assert role == "work", f"a child cannot {role}"
            os.environ[marks.MARKS] = str(path)
            threading.Thread(target=_leave_with_parent, daemon=True).start()
            side.work(asked["url"], marks.marker(path), **asked["options"])


def sample(submit: Callable[[], object], path: Path, samples: int, pause_s: float) -> list[float]:
    """When each was submitted, in seconds of the monotonic clock. One more comes first and is not counted."""
    dice = random.Random(0)
    submitted: list[float] = []
    for _ in range(samples + 1):
        time.sleep(pause_s * dice.uniform(0.5, 1.5))
        before = marks.count(path)
        submitted.append(time.monotonic_ns() / 1e9)
        submit()
        _await_mark(path, before)
    return submitted[1:]


def flooded(flood: Callable[[int], object], count: int) -> tuple[float, float]:
    """When the first was submitted and when the last was. One more comes first and is not counted."""
    flood(1)
    began = time.monotonic()
    flood(count)
    return began, time.monotonic()


@contextmanager
def _flooder(side: Side, url: str, options: Mapping[str, Any]) -> Generator[Callable[[int], object]]:
    if not hasattr(side, "flooder"):
        with side.submitter(url) as submit:
            yield lambda count: [submit() for _ in range(count)]
        return
    with cast("Any", side).flooder(url, **options) as flood:
        yield flood


def _await_mark(path: Path, before: int) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while marks.count(path) == before:
        if time.monotonic() > deadline:
            raise TimeoutError(f"a job that was submitted {_LIMIT_S:.0f} s ago has not begun")
        time.sleep(_STEP_S)


def _leave_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
