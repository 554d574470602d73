"""The process of a peer: it fills the queue, works it off, or submits one job at a time to an idle worker.

It runs with the peer's own Python, which may hold nothing but the peer: only the standard library is used here.
"""

import importlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
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
        """A connected client; what it yields submits one job."""
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
        case role:
            assert role == "work", f"a child cannot {role}"
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
