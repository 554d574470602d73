"""Runs loops side by side, watches them, and ends them together."""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from herdsman.worker.loops.adaptive import Half, Threshold, seconds_of
from herdsman.worker.loops.board import Board, Seat
from herdsman.worker.loops.crash import read_crashes
from herdsman.worker.loops.ending import hold_back, stop_all
from herdsman.worker.loops.guards import Guards
from herdsman.worker.loops.runnable import Runnable
from herdsman.worker.loops.shutdown import ShutdownCoordinator
from herdsman.worker.loops.systemd import Notifier
from herdsman.worker.loops.timeouts import Timeouts, misfits
from herdsman.worker.loops.watchdog import Watchdog

if TYPE_CHECKING:
    from herdsman.settings import Settings

logger = logging.getLogger(__name__)

LOOK = 0.2
"""Seconds between two looks at who is late."""


class LoopGroup:
    """Each loop has a thread. When one fails, or a signal comes, all are asked to stop, together."""

    def __init__(
        self,
        loops: Sequence[Runnable],
        *,
        shutdown_timeout: float = 30.0,
        health_port: int | None = None,
        watchdog_threshold: float | Threshold | None = 720.0,
        watchdog_interval: float = 60.0,
        readiness_threshold: float | None = None,
        max_processing_time: float | None = None,
        health_host: str = "0.0.0.0",  # noqa: S104  a probe comes from outside of the container
        crash_dir: Path | None = None,
        coordinator: ShutdownCoordinator | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self.loops = tuple(loops)
        self.shutdown_timeout = shutdown_timeout
        self._threshold, self._interval = watchdog_threshold, watchdog_interval
        self._max_processing_time = max_processing_time or 0.0
        self._crash_dir = crash_dir
        self._coordinator = coordinator or ShutdownCoordinator()
        self._notifier = notifier or Notifier()
        self._board = Board(self.loops, _late_after(readiness_threshold, watchdog_threshold))
        self._guards = Guards(
            self._board,
            self._notifier,
            threshold=watchdog_threshold,
            interval=watchdog_interval,
            crash_dir=crash_dir,
            host=health_host,
            port=health_port,
        )
        self._endings: queue.SimpleQueue[Seat | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._over.set()

    @property
    def watchdog(self) -> Watchdog | None:
        """To tell it of process groups to end, and of what to do before a kill."""
        return self._guards.watchdog

    @property
    def health_address(self) -> tuple[str, int] | None:
        return None if self._guards.server is None else self._guards.server.address

    def run(
        self,
        max_iterations: int | None = None,
        visibility_timeout: float = 1800,
        wait_time_seconds: float = 30,
    ) -> None:
        """Until every loop has ended. The first error of a loop is raised again here, once the others ended."""
        self._warn(visibility_timeout, wait_time_seconds)
        self._over.clear()
        self._coordinator.register(self._look_up)
        installed = self._coordinator.install()
        try:
            self._guards.start()
            self._notifier.ready()
            self._run_loops(lambda seat: seat.loop.run(max_iterations, visibility_timeout, wait_time_seconds))
        finally:
            self._guards.stop()
            if installed:
                self._coordinator.uninstall()
            self._coordinator.unregister(self._look_up)
            self._over.set()

    def shutdown(self, *, timeout: float | None = None) -> bool:
        """Ask all loops to end and wait; False when `run` has not ended in time. Not from inside a loop."""
        self._coordinator.trigger()
        return self._over.wait(self.shutdown_timeout if timeout is None else timeout)

    def _warn(self, visibility_timeout: float, wait_time_seconds: float) -> None:
        given = Timeouts(
            wait_time_seconds=wait_time_seconds,
            watchdog_threshold=None if self._threshold is None else seconds_of(self._threshold),
            watchdog_interval=self._interval,
            visibility_timeout=visibility_timeout,
            max_processing_time=self._max_processing_time,
        )
        for misfit in misfits(given):
            logger.warning("LoopGroup: %s", misfit)
        for crash in read_crashes(self._crash_dir) if self._crash_dir is not None else ():
            said = "LoopGroup: process %d was ended by its watchdog at %s; stalled: %s\n%s"
            logger.warning(said, crash.pid, crash.at, crash.stalled, crash.stacks)

    def _run_loops(self, work: Callable[[Seat], None]) -> None:
        threads = {seat: self._begin(seat, work) for seat in self._board.seats}
        failed = self._wait_for(len(threads))
        self._notifier.stopping()
        stop_all(threads, self.shutdown_timeout, lambda: self._coordinator.hard)
        if failed is not None and failed.error is not None:
            raise failed.error

    def _begin(self, seat: Seat, work: Callable[[Seat], None]) -> threading.Thread:
        thread = threading.Thread(target=self._run_one, args=(seat, work), name=seat.name, daemon=True)
        thread.start()
        return thread

    def _run_one(self, seat: Seat, work: Callable[[Seat], None]) -> None:
        self._board.begin(seat)
        self._guards.watch(seat)
        error: BaseException | None = None
        try:
            work(seat)
        except BaseException as caught:  # noqa: BLE001  it is raised again in the thread that waits for us
            error = caught
        finally:
            self._guards.forget(seat)
            self._board.end(seat, error)
            self._endings.put(seat)

    def _wait_for(self, count: int) -> Seat | None:
        """The loop that failed; None when all have ended well, or were asked to."""
        while count > 0 and not self._coordinator.triggered:
            self._attend()
            seat = self._next_ending()
            if seat is not None:
                count -= 1
                if seat.error is not None:
                    logger.error("LoopGroup: %s failed; the others are asked to stop", seat.name)
                    return seat
        return None

    def _next_ending(self) -> Seat | None:
        try:
            return self._endings.get(timeout=LOOK)
        except queue.Empty:
            return None

    def _attend(self) -> None:
        """A loop that is late gets no new work before it beats again."""
        late, back = self._board.turned()
        for seat in late:
            logger.warning("LoopGroup: %s is late: no beat for %.1fs", seat.name, seat.age or 0.0)
            hold_back(seat)
        for seat in back:
            logger.info("LoopGroup: %s beats again", seat.name)

    def _look_up(self) -> None:
        self._endings.put(None)


def run_loops(loops: Sequence[Runnable], settings: "Settings | None" = None, **options: Any) -> None:
    """Run a group with the timeouts of the settings, those in force here unless told otherwise, until it ends.

    `options` are those of `LoopGroup`, and win. Raises `InvalidSettings` where the timeouts do not fit together.
    """
    from herdsman.settings import load_settings  # noqa: PLC0415  (needs more than the standard library)

    given = (load_settings() if settings is None else settings).watchdog
    usual: dict[str, Any] = {
        "watchdog_threshold": given.watchdog_threshold_sec,
        "watchdog_interval": given.watchdog_interval_sec,
        "readiness_threshold": given.readiness_threshold_sec,
        "max_processing_time": given.max_processing_sec,
    }
    group = LoopGroup(loops, **{**usual, **options})
    group.run(visibility_timeout=given.visibility_timeout_sec, wait_time_seconds=given.wait_time_sec)


def _late_after(given: float | None, threshold: float | Threshold | None) -> float | Threshold | None:
    """Half of the watchdog's patience, so that there is time between the warning and the kill."""
    return given if given is not None or threshold is None else Half(threshold)
