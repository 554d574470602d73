"""Runs loops side by side, watches them, and stops them together."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from herdsman.loops.crash_report import read_crashes
from herdsman.loops.health import HealthServer, age_metric, stalls_metric
from herdsman.loops.heartbeat import Half, Runnable, Threshold, seconds_of
from herdsman.loops.shutdown import ShutdownCoordinator
from herdsman.loops.status import GroupStatus, Member
from herdsman.loops.watchdog import Notifier, Watchdog

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
        self._status = GroupStatus(self.loops, _late_after(readiness_threshold, watchdog_threshold))
        self._watchers = Watchers(
            self._status,
            self._notifier,
            threshold=watchdog_threshold,
            interval=watchdog_interval,
            crash_dir=crash_dir,
            host=health_host,
            port=health_port,
        )
        self._endings: queue.SimpleQueue[Member | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._over.set()

    @property
    def watchdog(self) -> Watchdog | None:
        """To tell it of process groups to end, and of what to do before a kill."""
        return self._watchers.watchdog

    @property
    def health_address(self) -> tuple[str, int] | None:
        return None if self._watchers.server is None else self._watchers.server.address

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
            self._watchers.start()
            self._notifier.ready()
            self._run_loops(
                lambda member: member.loop.run(max_iterations, visibility_timeout, wait_time_seconds)
            )
        finally:
            self._watchers.stop()
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

    def _run_loops(self, work: Callable[[Member], None]) -> None:
        threads = {member: self._begin(member, work) for member in self._status.members}
        failed = self._wait_for(len(threads))
        self._notifier.stopping()
        stop_all(threads, self.shutdown_timeout, lambda: self._coordinator.hard)
        if failed is not None and failed.error is not None:
            raise failed.error

    def _begin(self, member: Member, work: Callable[[Member], None]) -> threading.Thread:
        thread = threading.Thread(target=self._run_one, args=(member, work), name=member.name, daemon=True)
        thread.start()
        return thread

    def _run_one(self, member: Member, work: Callable[[Member], None]) -> None:
        self._status.begin(member)
        self._watchers.watch(member)
        error: BaseException | None = None
        try:
            work(member)
        except BaseException as caught:  # noqa: BLE001  it is raised again in the thread that waits for us
            error = caught
        finally:
            self._watchers.forget(member)
            self._status.end(member, error)
            self._endings.put(member)

    def _wait_for(self, count: int) -> Member | None:
        """The loop that failed; None when all have ended well, or were asked to."""
        while count > 0 and not self._coordinator.triggered:
            self._attend()
            member = self._next_ending()
            if member is not None:
                count -= 1
                if member.error is not None:
                    logger.error("LoopGroup: %s failed; the others are asked to stop", member.name)
                    return member
        return None

    def _next_ending(self) -> Member | None:
        try:
            return self._endings.get(timeout=LOOK)
        except queue.Empty:
            return None

    def _attend(self) -> None:
        """A loop that is late gets no new work before it beats again."""
        late, back = self._status.turned()
        for member in late:
            logger.warning("LoopGroup: %s is late: no beat for %.1fs", member.name, member.age or 0.0)
            hold_back(member)
        for member in back:
            logger.info("LoopGroup: %s beats again", member.name)

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


class Watchers:
    def __init__(
        self,
        status: GroupStatus,
        notifier: Notifier,
        *,
        threshold: float | Threshold | None,
        interval: float,
        crash_dir: Path | None,
        host: str,
        port: int | None,
    ) -> None:
        self._status = status
        beating = any(member.heartbeat is not None for member in status.members)
        self.watchdog: Watchdog | None = None
        if threshold is not None and beating:
            self.watchdog = Watchdog(
                [],
                stall_threshold=threshold,
                check_interval=min(interval, notifier.period or interval),
                crash_dir=crash_dir,
                notifier=notifier,
            )
            for member in status.members:
                self.watchdog.before_kill(partial(give_back, member))
        self.server: HealthServer | None = None
        if port is not None:
            self.server = HealthServer(
                host=host,
                port=port,
                readiness_check=self._ready,
                liveness_check=self._alive,
                details=status.details,
                metrics=self._metrics,
            )

    def start(self) -> None:
        if self.watchdog is not None:
            self.watchdog.start()
        if self.server is not None:
            self.server.start()

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()
        if self.watchdog is not None:
            self.watchdog.stop()

    def watch(self, member: Member) -> None:
        if self.watchdog is not None and member.heartbeat is not None:
            self.watchdog.watch(member.name, member.heartbeat)

    def forget(self, member: Member) -> None:
        if self.watchdog is not None and member.heartbeat is not None:
            self.watchdog.forget(member.heartbeat)

    def _alive(self) -> bool:
        """Without its watchdog a stuck process would stay for ever; whoever probes it ends it instead."""
        return self.watchdog is None or self.watchdog.alive

    def _ready(self) -> bool:
        return self._alive() and self._status.ready()

    def _metrics(self) -> str:
        counted = dict[str, int]() if self.watchdog is None else self.watchdog.stalls
        stalls = {member.name: counted.get(member.name, 0) for member in self._status.members}
        return age_metric(self._status.ages()) + stalls_metric(stalls)


STEP = 0.05


def stop_all(threads: Mapping[Member, threading.Thread], seconds: float, at_once: Callable[[], bool]) -> None:
    """Asks every loop that still runs to stop; one that does not in time loses its messages, not its group."""
    deadline = time.monotonic() + seconds
    left = {member: thread for member, thread in threads.items() if thread.is_alive()}
    for member, thread in left.items():
        asking = threading.Thread(
            target=_ask, args=(member, thread, deadline), name=f"stop-{member.name}", daemon=True
        )
        asking.start()
    while any(thread.is_alive() for thread in left.values()):
        if time.monotonic() >= deadline or at_once():
            break
        time.sleep(STEP)
    for member, thread in left.items():
        if thread.is_alive():
            logger.error(
                "LoopGroup: %s did not stop within %.1fs; its messages go back", member.name, seconds
            )
            give_back(member)


def give_back(member: Member) -> None:
    """Where the loop knows how, its messages go to others at once instead of when their time is over."""
    method = getattr(member.loop, "give_back", None)
    if method is not None:
        method()


def hold_back(member: Member) -> None:
    method = getattr(member.loop, "pause", None)
    if method is not None:
        method()


def _ask(member: Member, thread: threading.Thread, deadline: float) -> None:
    """More than once: a loop that had not begun yet when it was first asked would run on."""
    while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
        try:
            member.loop.shutdown(timeout=left)
        except Exception:
            logger.exception("LoopGroup: %s cannot be asked to stop", member.name)
            return
        thread.join(min(STEP, left))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    wait_time_seconds: float = 30.0
    watchdog_threshold: float | None = 720.0
    watchdog_interval: float = 60.0
    visibility_timeout: float = 1800.0
    max_processing_time: float = 0.0
    """The longest that one message takes between two beats; 0 when nobody said."""


def misfits(given: Timeouts) -> list[str]:
    return [] if given.watchdog_threshold is None else list(_misfits(given, given.watchdog_threshold))


def _misfits(given: Timeouts, threshold: float) -> Iterator[str]:
    longest = given.max_processing_time
    if not given.visibility_timeout > threshold + longest:
        yield (
            "visibility_timeout > watchdog_threshold + max_processing_time does not hold: "
            f"{given.visibility_timeout:g} > {threshold:g} + {longest:g}; "
            "raise visibility_timeout, or a message comes back while it is still worked on"
        )
    if not threshold > given.wait_time_seconds + longest:
        yield (
            "watchdog_threshold > wait_time_seconds + max_processing_time does not hold: "
            f"{threshold:g} > {given.wait_time_seconds:g} + {longest:g}; "
            "raise watchdog_threshold, or healthy work is killed"
        )
    if not given.watchdog_interval < threshold / 3:
        yield (
            "watchdog_interval < watchdog_threshold / 3 does not hold: "
            f"{given.watchdog_interval:g} < {threshold:g} / 3; "
            "lower watchdog_interval, or a stall is found late"
        )
