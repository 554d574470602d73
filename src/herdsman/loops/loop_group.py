"""Runs loops side by side, watches them, and stops them together."""

import logging
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from herdsman.loops.health import HealthServer, age_metric, stalls_metric
from herdsman.loops.heartbeat import Heartbeat, Runnable, Threshold, Ticks, seconds_of
from herdsman.loops.watchdog import Notifier, Watchdog, read_crashes
from herdsman.ports import SystemThreads, Threads

if TYPE_CHECKING:
    from herdsman.settings import Settings

logger = logging.getLogger(__name__)

SHORTEST_CHECK, LONGEST_CHECK = 0.05, 60.0
"""Seconds between two checks for loops that are late; in between, a tenth of what makes a loop late."""
STEP = 0.05
SIGNAL_STEP = 1.0
"""Seconds that a main thread waits at most: a signal that another thread receives does not interrupt its wait."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(slots=True, eq=False)
class Member:
    """A loop in its group."""

    name: str
    loop: Runnable
    heartbeat: Heartbeat | None
    over: threading.Event
    begun: bool = False
    error: BaseException | None = None

    @property
    def age(self) -> float | None:
        """Seconds since its last beat; None while it does not run."""
        runs = self.begun and not self.over.is_set()
        return self.heartbeat.elapsed() if runs and self.heartbeat is not None else None

    def give_back(self) -> None:
        """Where the loop knows how, its messages go to others at once instead of when their time is over."""
        if (method := getattr(self.loop, "give_back", None)) is not None:
            method()


class LoopHealth:
    """Where the groups of a process report while they run, and where its probes ask."""

    def __init__(self) -> None:
        self.groups: tuple[LoopGroup, ...] = ()

    def faults(self) -> Mapping[str, str]:
        """The loops that hang or have failed, each with what is wrong with it."""
        return {name: fault for group in self.groups for name, fault in group.faults().items()}


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
        coordinator: "ShutdownCoordinator | None" = None,
        notifier: Notifier | None = None,
        health: LoopHealth | None = None,
        on_late: Callable[[Member], object] | None = None,
        threads: Threads | None = None,
        clock: Ticks = time,
    ) -> None:
        """`health` lists the group while it runs; `on_late` is called for each loop that hangs, else it is logged. `threads` and `clock` are those of a simulation, or the real ones."""
        self.shutdown_timeout = shutdown_timeout
        self._threshold, self._interval = watchdog_threshold, watchdog_interval
        self._max_processing_time = max_processing_time or 0.0
        self._crash_dir = crash_dir
        self._coordinator = coordinator or ShutdownCoordinator()
        self._notifier = notifier or Notifier()
        self._health = health or LoopHealth()
        self._on_late = on_late
        self._threads, self._clock = threads or SystemThreads(), clock
        self._late_after = readiness_threshold
        named: dict[str, Runnable] = {}
        for index, loop in enumerate(loops):
            name = str(getattr(loop, "name", None) or f"loop-{index}")
            # Two loops of one name could not be told apart in a log: the second gets its index as well.
            named[f"{name}-{index}" if name in named else name] = loop
        self.members = tuple(
            Member(name, loop, getattr(loop, "heartbeat", None), self._threads.event()) for name, loop in named.items()
        )
        self.watchdog: Watchdog | None = None
        """To tell it of process groups to end, and of what to do before a kill."""
        if watchdog_threshold is not None and any(each.heartbeat is not None for each in self.members):
            self.watchdog = Watchdog(
                [],
                stall_threshold=watchdog_threshold,
                check_interval=min(watchdog_interval, self._notifier.period or watchdog_interval),
                crash_dir=crash_dir,
                notifier=self._notifier,
            )
            for member in self.members:
                self.watchdog.before_kill(member.give_back)
        self._server: HealthServer | None = None
        if health_port is not None:
            self._server = HealthServer(
                host=health_host,
                port=health_port,
                readiness_check=lambda: (
                    self._alive() and all(each.loop.running and not self._is_late(each) for each in self.members)
                ),
                liveness_check=self._alive,
                details=self._details,
                metrics=self._metrics,
            )
        self.error: BaseException | None = None
        """Of the loop that failed first."""
        self._changed = self._threads.event()
        """A loop has ended, or all are asked to."""
        self._over = self._threads.event()
        self._over.set()

    @property
    def health_address(self) -> tuple[str, int] | None:
        return None if self._server is None else self._server.address

    def run(
        self, max_iterations: int | None = None, visibility_timeout: float = 1800, wait_time_seconds: float = 30
    ) -> None:
        """Until every loop has ended. The first error of a loop is raised again here, once the others ended."""
        for misfit in misfits(
            wait_time_seconds=wait_time_seconds,
            watchdog_threshold=None if self._threshold is None else seconds_of(self._threshold),
            watchdog_interval=self._interval,
            visibility_timeout=visibility_timeout,
            max_processing_time=self._max_processing_time,
        ):
            logger.warning("LoopGroup: %s", misfit)
        for crash in read_crashes(self._crash_dir) if self._crash_dir is not None else ():
            said = "LoopGroup: process %d was killed by its watchdog at %s; stalled: %s\n%s"
            logger.warning(said, crash.pid, crash.at, crash.stalled, crash.stacks)
        self._over.clear()
        self._coordinator.register(self._changed.set)
        installed = self._coordinator.install()
        self._health.groups = (*self._health.groups, self)
        try:
            if self.watchdog is not None:
                self.watchdog.start()
            if self._server is not None:
                self._server.start()
            self._notifier.ready()
            for member in self.members:
                work = partial(member.loop.run, max_iterations, visibility_timeout, wait_time_seconds)
                self._threads.start(partial(self._run_one, member, work), member.name)
            self._wait(SIGNAL_STEP if installed else None)
            self._notifier.stopping()
            self._stop_all()
        finally:
            if self._server is not None:
                self._server.stop()
            if self.watchdog is not None:
                self.watchdog.stop()
            if installed:
                self._coordinator.uninstall()
            self._coordinator.unregister(self._changed.set)
            self._health.groups = tuple(each for each in self._health.groups if each is not self)
            self._over.set()
        if self.error is not None:
            raise self.error

    def start(self, on_end: Callable[[], object] = lambda: None) -> None:
        """Run in a thread of its own, and call `on_end` there when all loops have ended. Signals are left alone."""

        def work() -> None:
            try:
                self.run()
            except BaseException as error:
                if error is not self.error:  # else it comes out of `stop`
                    raise
            finally:
                on_end()

        self._over.clear()
        self._threads.start(work, "loops")

    def stop(self) -> None:
        """Ask all loops to end, and wait; what one of them failed with is raised again."""
        self.shutdown(timeout=self.shutdown_timeout + LONGEST_CHECK)
        if self.error is not None:
            raise self.error

    def shutdown(self, *, timeout: float | None = None) -> bool:
        """Ask all loops to end and wait; False when `run` has not ended in time. Not from inside a loop."""
        self._coordinator.trigger()
        return self._over.wait(self.shutdown_timeout if timeout is None else timeout)

    def _run_one(self, member: Member, work: Callable[[], None]) -> None:
        if member.heartbeat is not None:
            member.heartbeat.beat()  # its time runs from here, not from when it was made
        member.begun = True
        if self.watchdog is not None and member.heartbeat is not None:
            self.watchdog.watch(member.name, member.heartbeat)
        error: BaseException | None = None
        try:
            work()
        except BaseException as caught:  # noqa: BLE001  it is raised again in the thread that waits for us
            error = caught
        finally:
            if self.watchdog is not None and member.heartbeat is not None:
                self.watchdog.forget(member.heartbeat)
            self.error = self.error or error
            member.error = error
            member.over.set()
            self._changed.set()

    def _wait(self, longest: float | None) -> None:
        """Until all have ended, one has failed, or they are asked to stop."""
        late: set[Member] = set()
        while True:
            self._changed.clear()  # before the look: what changes after it ends the wait below
            if self._coordinator.triggered:
                return
            for member in self.members:
                if self._is_late(member) and member not in late:  # it gets no new work before it beats again
                    late.add(member)
                    if self._on_late is not None:
                        self._on_late(member)
                    else:
                        said = "LoopGroup: %s is late: no beat for %.1fs"
                        logger.warning(said, member.name, member.age or 0.0)
                    if (pause := getattr(member.loop, "pause", None)) is not None:
                        pause()
                elif member in late and member.age is not None and not self._is_late(member):
                    late.remove(member)
                    logger.info("LoopGroup: %s beats again", member.name)
            failed = [member for member in self.members if member.error is not None]
            if failed:
                said = "LoopGroup: %s failed; the others are asked to stop"
                logger.error(said, failed[0].name, exc_info=failed[0].error)
                return
            if all(member.over.is_set() for member in self.members):
                return
            limit = self._late_limit()
            check = None if limit is None else min(LONGEST_CHECK, max(SHORTEST_CHECK, limit / 10))
            self._changed.wait(min((each for each in (longest, check) if each is not None), default=None))

    def _stop_all(self) -> None:
        """Side by side, within one time for all; a loop that does not stop in time loses its messages, not its group."""
        deadline = self._clock.monotonic() + self.shutdown_timeout
        left = [member for member in self.members if not member.over.is_set()]
        for member in left:
            self._threads.start(partial(self._ask_to_stop, member, deadline), f"stop-{member.name}")
        while (remaining := deadline - self._clock.monotonic()) > 0:
            self._changed.clear()
            if self._coordinator.hard or all(member.over.is_set() for member in left):
                break
            self._changed.wait(remaining)
        for member in left:
            if not member.over.is_set():
                said = "LoopGroup: %s did not stop within %.1fs; its messages go back"
                logger.error(said, member.name, self.shutdown_timeout)
                member.give_back()

    def _ask_to_stop(self, member: Member, deadline: float) -> None:
        """More than once: a loop that had not begun yet when it was first asked would run on."""
        while not member.over.is_set() and (left := deadline - self._clock.monotonic()) > 0:
            try:
                member.loop.shutdown(timeout=left)
            except Exception:
                logger.exception("LoopGroup: %s cannot be asked to stop", member.name)
                return
            member.over.wait(min(STEP, left))

    def _alive(self) -> bool:
        """Without its watchdog a stuck process would stay for ever; whoever probes it ends it instead."""
        return self.watchdog is None or self.watchdog.alive

    def _late_limit(self) -> float | None:
        """Seconds without a beat after which a loop is late; None where none ever is.

        By default half of the watchdog's patience, so that there is time between the warning and the kill.
        """
        if self._late_after is None and self._threshold is not None:
            return seconds_of(self._threshold) / 2
        return self._late_after

    def _is_late(self, member: Member) -> bool:
        age, limit = member.age, self._late_limit()
        return limit is not None and age is not None and age > limit

    def faults(self) -> Mapping[str, str]:
        """The loops that hang or have failed, each with what is wrong with it."""
        found: dict[str, str] = {}
        for member in self.members:
            if self._is_late(member):
                found[member.name] = f"hangs: no heartbeat for {member.age or 0.0:.0f} s"
            elif member.error is not None:
                found[member.name] = f"failed: {type(member.error).__name__}"
        return found

    def _details(self) -> Mapping[str, object]:
        shown: dict[str, object] = {}
        for member in self.members:
            if member.over.is_set():
                state = "finished" if member.error is None else "failed"
            elif member.begun:
                state = "late" if self._is_late(member) else "running"
            else:
                state = "waiting"
            age = member.age
            shown[member.name] = {"state": state, "age_seconds": None if age is None else round(age, 1)}
        return {"loops": shown}

    def _metrics(self) -> str:
        counted = dict[str, int]() if self.watchdog is None else self.watchdog.stalls
        ages = {member.name: age for member in self.members if (age := member.age) is not None}
        stalls = {member.name: counted.get(member.name, 0) for member in self.members}
        return age_metric(ages) + stalls_metric(stalls)


class ShutdownCoordinator:
    """The first signal asks for an end, the second for an end at once.

    A handler runs in the middle of whatever the main thread does, perhaps with a lock in hand. So it does nothing
    but put the signal into a queue that is safe for that, and a thread of its own does the rest.
    """

    def __init__(self) -> None:
        self._triggered = threading.Event()
        self._hard = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: tuple[Callable[[], object], ...] = ()
        self._arrived: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._before: dict[int, Any] = {}
        self._thread: threading.Thread | None = None

    @property
    def triggered(self) -> bool:
        return self._triggered.is_set()

    @property
    def hard(self) -> bool:
        """It was asked for more than once: do not wait for anybody."""
        return self._hard.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._triggered.wait(timeout)

    def register(self, callback: Callable[[], object]) -> None:
        """Called at each trigger; at once when there has been one already."""
        with self._lock:
            self._callbacks = (*self._callbacks, callback)
        if self.triggered:
            self._call(callback)

    def unregister(self, callback: Callable[[], object]) -> None:
        with self._lock:
            self._callbacks = tuple(each for each in self._callbacks if each != callback)

    def trigger(self) -> None:
        with self._lock:
            (self._hard if self._triggered.is_set() else self._triggered).set()
            callbacks = self._callbacks
        for callback in callbacks:
            self._call(callback)

    def install(self, signals: Sequence[signal.Signals] = SIGNALS) -> bool:
        """Whether it did: Python hands signals to the main thread alone, and once is enough."""
        if self._thread is not None or threading.current_thread() is not threading.main_thread():
            return False
        self._thread = threading.Thread(target=self._listen, name="shutdown", daemon=True)
        self._thread.start()
        self._before = {each: signal.signal(each, lambda number, _frame: self._arrived.put(number)) for each in signals}
        return True

    def uninstall(self) -> None:
        if self._thread is None:
            return
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}
        self._arrived.put(None)
        self._thread.join()
        self._thread = None

    def __enter__(self) -> "ShutdownCoordinator":
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        self.uninstall()

    def _listen(self) -> None:
        while (number := self._arrived.get()) is not None:
            logger.info("%s: %s", signal.Signals(number).name, "ending now" if self.triggered else "ending")
            self.trigger()

    def _call(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception:  # one that fails must not keep the others from hearing of it
            logger.exception("a shutdown callback failed")


def run_loops(loops: Sequence[Runnable], settings: "Settings | None" = None, **options: Any) -> None:
    """Run a group with the timeouts of the settings, those in force here unless given, until it ends.

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


def misfits(
    *,
    wait_time_seconds: float = 30.0,
    watchdog_threshold: float | None = 720.0,
    watchdog_interval: float = 60.0,
    visibility_timeout: float = 1800.0,
    max_processing_time: float = 0.0,
) -> Iterator[str]:
    """Timeouts that do not fit together. `max_processing_time` is the longest that a message takes between two beats."""
    threshold, longest = watchdog_threshold, max_processing_time
    if threshold is None:
        return
    if not visibility_timeout > threshold + longest:
        yield (
            "visibility_timeout > watchdog_threshold + max_processing_time does not hold: "
            f"{visibility_timeout:g} > {threshold:g} + {longest:g}; "
            "raise visibility_timeout, or a message comes back while it is still worked on"
        )
    if not threshold > wait_time_seconds + longest:
        yield (
            "watchdog_threshold > wait_time_seconds + max_processing_time does not hold: "
            f"{threshold:g} > {wait_time_seconds:g} + {longest:g}; "
            "raise watchdog_threshold, or healthy work is killed"
        )
    if not watchdog_interval < threshold / 3:
        yield (
            "watchdog_interval < watchdog_threshold / 3 does not hold: "
            f"{watchdog_interval:g} < {threshold:g} / 3; "
            "lower watchdog_interval, or a stall is found late"
        )
