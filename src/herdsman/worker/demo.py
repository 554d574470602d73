"""A job to try things out with."""

import time
from typing import cast

from herdsman.worker.context import JobContext, UserError

_STEPS = 20
_LONGEST_S = 86_400
_GLANCE_S = 0.2
"""However long a step is, a word that it should stop is heard within this time."""


def demo(job: JobContext) -> object:
    """Sleeps for `seconds` of its payload; stops at once when it is cancelled."""
    given = _seconds(job.payload)
    for step in range(_STEPS):
        job.progress(step / _STEPS, f"step {step + 1} of {_STEPS}")
        _sleep(job, given / _STEPS)
    return {"slept": given}


def _sleep(job: JobContext, seconds: float) -> None:
    until = time.monotonic() + seconds
    job.raise_if_cancelled()
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _GLANCE_S))
        job.raise_if_cancelled()


def _seconds(payload: object) -> float:
    given = cast("dict[str, object]", payload).get("seconds", 1) if isinstance(payload, dict) else 1
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= _LONGEST_S:
        raise UserError(f"seconds is {given!r}: it must be a number from 0 to {_LONGEST_S}")
    return given
