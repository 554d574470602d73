"""Kills the process when one of its loops hangs: a stuck thread cannot be ended alone."""

import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from herdsman.loops.heartbeat import Heartbeat, Threshold, seconds_of

logger = logging.getLogger(__name__)

SLACK = 10.0
"""Seconds that a check may be late on a busy machine before the watchdog itself counts as stuck."""
LONGEST_STACKS = 200_000


class Notifier:
    """Speaks on the socket that systemd names in the environment; without one it is silent."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the zero byte of an abstract socket.
        address = f"\0{name[1:]}" if name.startswith("@") else name
        self._address = os.fsencode(address) if name.startswith(("/", "@")) else None
        self.period: float | None = None
        """Seconds between signs of life, half of what systemd waits for; None when it waits for none."""
        wanted, owner = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        if wanted.isdecimal() and int(wanted) > 0 and owner in ("", str(os.getpid())):
            self.period = int(wanted) / 1_000_000 / 2

    def ready(self) -> None:
        self._send(b"READY=1")

    def alive(self) -> None:
        if self.period is not None:
            self._send(b"WATCHDOG=1")

    def stopping(self) -> None:
        self._send(b"STOPPING=1")

    def _send(self, state: bytes) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(0)  # a full socket must not hold up whoever is alive
                channel.sendto(state, self._address)
        except OSError as error:
            logger.warning("systemd could not be notified of %s: %s", state.decode(), error)


class Watchdog:
    """Looks at the heartbeats from a thread of its own; one that is too old ends the process by SIGKILL."""

    def __init__(
        self,
        heartbeats: Sequence[Heartbeat],
        *,
        stall_threshold: float | Threshold = 720.0,
        check_interval: float = 60.0,
        loop_names: Sequence[str] | None = None,
        crash_dir: Path | None = None,
        kill_grace: float = 2.0,
        notifier: Notifier | None = None,
    ) -> None:
        names = loop_names if loop_names is not None else [f"loop-{i}" for i in range(len(heartbeats))]
        if len(names) != len(heartbeats):
            raise ValueError(f"loop_names has {len(names)} names for {len(heartbeats)} heartbeats: give one each")
        if check_interval <= 0:
            raise ValueError(f"check_interval is {check_interval}: it must be over 0 seconds")
        self._watched: tuple[tuple[str, Heartbeat], ...] = tuple(zip(names, heartbeats, strict=True))
        self._threshold = stall_threshold
        self._check_interval = check_interval
        self._crash_dir = crash_dir
        self._kill_grace = kill_grace
        self._notifier = notifier
        self._lock = threading.Lock()
        self._stop_event = threading.Event()
        self._thread: threading.Thread | None = None
        self._checked_at = time.monotonic()
        self._hooks: tuple[Callable[[], object], ...] = ()
        self._groups: frozenset[int] = frozenset()
        self._stalls: dict[str, int] = {}

    @property
    def alive(self) -> bool:
        """Whether the checks go on. False once its thread has ended, or hangs."""
        thread = self._thread
        late = time.monotonic() - self._checked_at > 3 * self._check_interval + SLACK
        return thread is not None and thread.is_alive() and not late

    @property
    def stalls(self) -> Mapping[str, int]:
        """How often each loop was found to stand still."""
        with self._lock:
            return dict(self._stalls)

    def start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            self._stop_event.clear()
            self._checked_at = time.monotonic()
            self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stop_event.set()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(timeout=self._check_interval * 2)

    def watch(self, name: str, heartbeat: Heartbeat) -> None:
        with self._lock:
            self._watched = (*self._watched, (name, heartbeat))

    def forget(self, heartbeat: Heartbeat) -> None:
        """A loop that has ended no longer beats, and is no reason to end the others."""
        with self._lock:
            self._watched = tuple(each for each in self._watched if each[1] is not heartbeat)

    def before_kill(self, hook: Callable[[], object]) -> None:
        """Called before a kill, beside the others and for `kill_grace` seconds at most."""
        with self._lock:
            self._hooks = (*self._hooks, hook)

    def own_group(self, group: int) -> None:
        """A process group that must not outlive this process."""
        with self._lock:
            self._groups |= {group}

    def disown_group(self, group: int) -> None:
        """Say so when the group has ended: its number may soon be another's."""
        with self._lock:
            self._groups -= {group}

    def _run(self) -> None:
        while not self._stop_event.wait(timeout=self._check_interval):
            self._checked_at = time.monotonic()
            try:
                stalled = self._check_heartbeats()
                if stalled:
                    self._terminate(stalled)
                elif self._notifier is not None:
                    self._notifier.alive()
            except Exception:  # without the next check nobody would notice a stall any more
                logger.exception("Watchdog: a check failed; the next one follows in %.1fs", self._check_interval)

    def _check_heartbeats(self) -> list[tuple[str, float]]:
        """The loops that stand still, each with its seconds without a beat."""
        threshold = seconds_of(self._threshold)
        ages = [(name, heartbeat.elapsed()) for name, heartbeat in self._watched]
        return [(name, age) for name, age in ages if age > threshold]

    def _terminate(self, stalled: list[tuple[str, float]]) -> None:
        """Records what happened and gives back what it can, then kills, whatever became of that."""
        try:
            with self._lock:
                for name, _ in stalled:
                    self._stalls[name] = self._stalls.get(name, 0) + 1
            threshold, stacks = seconds_of(self._threshold), all_stacks()

            def record() -> None:
                if self._crash_dir is not None:
                    at = datetime.now(UTC).isoformat()
                    crash = CrashRecord(
                        at=at, pid=os.getpid(), threshold=threshold, stalled=dict(stalled), stacks=stacks
                    )
                    write_crash(self._crash_dir, crash)

            def log() -> None:
                for name, elapsed in stalled:
                    said = "Watchdog: %s stalled for %.1fs (threshold: %.1fs)"
                    logger.critical(said, name, elapsed, threshold)
                logger.critical("Watchdog: terminating process due to stalled workers")
                _flush()

            self._last_steps([log, lambda: os.write(2, stacks.encode()), record, *self._hooks])
        finally:
            self._kill()

    def _last_steps(self, steps: Sequence[Callable[[], object]]) -> None:
        """Each step has a thread of its own: one that hangs or fails keeps none of the others from its turn."""
        deadline = time.monotonic() + self._kill_grace
        started: list[threading.Thread] = []

        def attempt(step: Callable[[], object]) -> None:
            try:
                step()
            except Exception as error:  # noqa: BLE001  nobody is left who could act on it
                os.write(2, f"Watchdog: a last step failed: {error!r}\n".encode())

        for step in steps:
            thread = threading.Thread(target=attempt, args=(step,), name="crash-report", daemon=True)
            with suppress(RuntimeError):  # no thread is left: the kill matters more than the report
                thread.start()
                started.append(thread)
        for thread in started:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _kill(self) -> None:
        for group in self._groups:
            # Never the group that we are in: that would end our own supervisor too.
            if group > 1 and group != os.getpgrp():
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
        kill_self()


def _flush() -> None:
    here: logging.Logger | None = logger
    while here is not None:
        for handler in here.handlers:
            handler.flush()
        here = here.parent if here.propagate else None
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashRecord:
    """What a process leaves behind when its watchdog kills it."""

    at: str
    """When it was written, in UTC."""
    pid: int
    threshold: float
    stalled: dict[str, float]
    """The loops that stood still, each with its seconds without a beat."""
    stacks: str


def write_crash(directory: Path, record: CrashRecord) -> Path:
    """All of it or nothing: a reader never sees half a record."""
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = directory / f".crash-{record.pid}"
    with unfinished.open("w", encoding="utf-8") as file:
        json.dump(asdict(record), file)
        file.flush()
        os.fsync(file.fileno())
    return unfinished.replace(directory / f"crash-{record.pid}.json")


def read_crashes(directory: Path) -> list[CrashRecord]:
    """The records that earlier processes left here, oldest first; they are gone afterwards."""
    found: list[CrashRecord] = []
    for path in sorted(directory.glob("crash-*.json")):
        try:
            text = path.read_text(encoding="utf-8")
            path.unlink()
            fields: dict[str, Any] = json.loads(text)
            found.append(CrashRecord(**fields))
        except OSError as error:
            logger.warning("the crash record %s cannot be taken: %s; look at its rights", path, error)
        except (TypeError, ValueError) as error:
            logger.warning("the crash record %s is not one and was removed: %s", path, error)
    return sorted(found, key=lambda record: record.at)


def all_stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts: list[str] = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the only way
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"Thread {names.get(ident, 'unknown')} ({ident}), most recent call last:\n{lines}")
    return "\n".join(parts)[:LONGEST_STACKS]


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    # The first process of a PID namespace is immune to its own SIGKILL, and goes on here.
    os._exit(128 + signal.SIGKILL)
