"""Does the last things before a kill side by side, and never waits longer than it was allowed to."""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence

Step = Callable[[], object]

STATUS_AFTER_SIGKILL = 128 + signal.SIGKILL


def within(seconds: float, steps: Sequence[Step]) -> None:
    """Each step has a thread of its own: one that hangs or fails keeps none of the others from its turn."""
    deadline = time.monotonic() + seconds
    started = [thread for step in steps if (thread := _start(step)) is not None]
    for thread in started:
        thread.join(max(0.0, deadline - time.monotonic()))


def _start(step: Step) -> threading.Thread | None:
    thread = threading.Thread(target=_attempt, args=(step,), name="last-words", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread is to be had any more: the kill matters more than the words
        return None
    return thread


def _attempt(step: Step) -> None:
    try:
        step()
    except Exception as error:  # noqa: BLE001  nobody is left who could act on it
        os.write(2, f"Watchdog: a last step failed: {error!r}\n".encode())


def kill_group(group: int) -> None:
    """Ends a process group; never the one that we are in, which would end our own supervisor too."""
    if group <= 1 or group == os.getpgrp():
        return
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    # The first process of a PID namespace is immune to its own SIGKILL, and goes on here.
    os._exit(STATUS_AFTER_SIGKILL)
