"""A loop that calls a function again and again: Herdsman's own programs consist of these."""

import time
from collections.abc import Callable

from herdsman.loops.heartbeat import Heartbeat, Ticks
from herdsman.ports import SystemThreads, Threads


class PeriodicLoop:
    """Each call of `turn` returns how many seconds to pause before the next one; None is not at all.

    An error of `retry_on` is given to `on_error`, and the next turn follows after a pause that doubles from the first
    to the second number of `backoff`. Any other error ends the loop, and the group that it belongs to.
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], float | None],
        *,
        retry_on: tuple[type[Exception], ...] = (),
        on_error: Callable[[Exception], object] | None = None,
        backoff: tuple[float, float] = (0.2, 2.0),
        at_end: Callable[[], object] | None = None,
        clock: Ticks = time,
        threads: Threads | None = None,
    ) -> None:
        """`at_end` is called in the thread of the loop once it was asked to stop, and before it has ended."""
        threads = threads or SystemThreads()
        self.name = name
        self.heartbeat = Heartbeat(clock)
        self._turn = turn
        self._retry_on, self._on_error, self._backoff = retry_on, on_error, backoff
        self._at_end = at_end
        self._asked_to_stop = False
        self._running = False
        self._woken = threads.event()
        self._ended = threads.event()

    @property
    def running(self) -> bool:
        return self._running

    def run(
        self,
        max_iterations: int | None = None,
        visibility_timeout: float = 1800,  # noqa: ARG002  (there are no messages)
        wait_time_seconds: float = 30,  # noqa: ARG002
    ) -> None:
        """Until it is asked to stop, or so many turns. It runs once."""
        first, longest = self._backoff
        delay, done = first, 0
        self._running = True
        try:
            while not self._asked_to_stop and (max_iterations is None or done < max_iterations):
                try:
                    pause = self._turn()
                    delay = first
                except self._retry_on as error:
                    if self._on_error is not None:
                        self._on_error(error)
                    pause, delay = delay, min(delay * 2, longest)
                done += 1
                self.heartbeat.beat()
                if pause and not self._asked_to_stop:
                    self._woken.wait(pause)
                # Before the next look at what there is to do: a wake that comes later counts for the turn after it.
                self._woken.clear()
            if self._at_end is not None:
                self._at_end()
        finally:
            self._running = False
            self._ended.set()

    def wake(self) -> None:
        """Do not wait for the end of the pause."""
        self._woken.set()

    def stop(self) -> None:
        """Ask it to end after the turn at hand; returns at once."""
        self._asked_to_stop = True
        self._woken.set()

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Ask it to end and wait; False when it has not ended in time."""
        self.stop()
        return self._ended.wait(timeout)
