"""What jobs may run: an allow-list by name. A payload is data, and never says which code is loaded.

A plugin names a function in its own package metadata:

    [project.entry-points."herdsman.handlers"]
    render = "mypackage.jobs:render"

It gets a `RunningJob` and returns the result, which must be JSON. `UserError` says that the job itself is
wrong, so that it is not tried again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

GROUP = "herdsman.handlers"
_STEPS = 20


class UserError(Exception):
    """The job can never succeed as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    job_id: str
    type: str
    payload: Any
    attempt: int
    progress: Callable[[float, str | None], None]
    """Say how far it has come, from 0 to 1, and a word about it."""


Handler = Callable[[RunningJob], object]


def demo(job: RunningJob) -> object:
    """Sleeps for `seconds` of its payload: a job to try things out with."""
    given = job.payload.get("seconds", 1) if isinstance(job.payload, dict) else 1  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 86_400:
        raise UserError(f"seconds is {given!r}: it must be a number from 0 to 86400")
    for step in range(_STEPS):
        job.progress(step / _STEPS, f"step {step + 1} of {_STEPS}")
        time.sleep(given / _STEPS)
    return {"slept": given}


OURS: dict[str, Handler] = {"demo": demo}


def installed() -> tuple[str, ...]:
    """The types of jobs that can be run here. Nothing is loaded."""
    return tuple(sorted({*OURS, *(plugin.name for plugin in entry_points(group=GROUP))}))


def load(name: str) -> Handler:
    """Only for the handler's own process: this imports user code."""
    if name in OURS:
        return OURS[name]
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        raise UserError(f"there is no handler for jobs of type {name!r}")
    if len(found) > 1:
        raise RuntimeError(f"{len(found)} installed packages bring a handler for jobs of type {name!r}")
    return found[0].load()
