"""Ends loops side by side within one time for all of them."""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from herdsman.worker.loops.board import Seat

logger = logging.getLogger(__name__)

STEP = 0.05


def stop_all(threads: Mapping[Seat, threading.Thread], seconds: float, at_once: Callable[[], bool]) -> None:
    """Asks every loop that still runs to stop; one that does not in time loses its messages, not its group."""
    deadline = time.monotonic() + seconds
    left = {seat: thread for seat, thread in threads.items() if thread.is_alive()}
    for seat, thread in left.items():
        asking = threading.Thread(
            target=_ask, args=(seat, thread, deadline), name=f"stop-{seat.name}", daemon=True
        )
        asking.start()
    while any(thread.is_alive() for thread in left.values()):
        if time.monotonic() >= deadline or at_once():
            break
        time.sleep(STEP)
    for seat, thread in left.items():
        if thread.is_alive():
            logger.error("LoopGroup: %s did not stop within %.1fs; its messages go back", seat.name, seconds)
            give_back(seat)


def give_back(seat: Seat) -> None:
    """Where the loop knows how, its messages go to others at once instead of when their time is over."""
    method = getattr(seat.loop, "give_back", None)
    if method is not None:
        method()


def hold_back(seat: Seat) -> None:
    method = getattr(seat.loop, "pause", None)
    if method is not None:
        method()


def _ask(seat: Seat, thread: threading.Thread, deadline: float) -> None:
    """More than once: a loop that had not begun yet when it was first asked would run on."""
    while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
        try:
            seat.loop.shutdown(timeout=left)
        except Exception:
            logger.exception("LoopGroup: %s cannot be asked to stop", seat.name)
            return
        thread.join(min(STEP, left))
