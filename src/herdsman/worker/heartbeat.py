"""Heartbeats: those that keep a worker and its claims alive, and those that show its own threads to a watchdog and to probes."""

import math
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock

from herdsman.errors import ClaimsHeld, HerdsmanError, NotFound, StaleWrite, StoreUnavailable, Unreachable
from herdsman.fleet.model import GpuReport
from herdsman.fleet.phases.health import LOADS_HANDLERS
from herdsman.jobs.model import ClaimKey
from herdsman.jobs.protocol import HeartbeatReply, LogLines, Progress, WorkerHeartbeat
from herdsman.loops.health import HealthServer, age_metric, stalls_metric
from herdsman.loops.heartbeat import Heartbeat
from herdsman.loops.loop_group import LoopGroup
from herdsman.loops.periodic import PeriodicLoop
from herdsman.loops.watchdog import Notifier, Watchdog, read_crashes
from herdsman.ports import Clock, SystemThreads, Threads, WorkQueue
from herdsman.worker.handler_pool import ModelState
from herdsman.worker.job_log import PIECE_BYTES, PIECE_LINES, LogBook
from herdsman.worker.stop_rules import Heard

BROKE = "the heartbeat broke"
_MOST_FLUSHES = 100
_OFTEN_S = 2.0
"""From one beat to the next until the worker is active: somebody waits for it."""


@dataclass
class Keeper:
    """Keeps this worker and its claims alive by heartbeats, and holds what their replies say."""

    queue: WorkQueue
    clock: Clock
    interval: timedelta
    report: Callable[[], GpuReport | None]
    say: Callable[[str], None]
    model_state: Callable[[], ModelState] = ModelState
    threads: Threads = field(default_factory=SystemThreads)
    unfit: Callable[[], Mapping[str, str]] = field(default=dict[str, str], kw_only=True)
    """Types of jobs that are not taken at the moment, and why."""
    self_fence: timedelta = field(default=timedelta(0), kw_only=True)
    """After so long without a word on the claims they are lost, and no later word brings them back."""
    server: str = field(default="the server", kw_only=True)
    not_active: str | None = field(default=LOADS_HANDLERS, init=False)
    """What the last beat said; the worker's own start is not news to it."""
    _unfit_sent: Mapping[str, str] = field(default_factory=dict[str, str], init=False)
    _models_sent: ModelState | None = field(default=None, init=False)
    """The last one that arrived."""
    _lock: Lock = field(default_factory=Lock, init=False)
    _books: dict[ClaimKey, LogBook] = field(default_factory=dict[ClaimKey, LogBook], init=False)
    _progress: dict[ClaimKey, Progress] = field(default_factory=dict[ClaimKey, Progress], init=False)
    _begun: set[ClaimKey] = field(default_factory=set[ClaimKey], init=False)
    """Claims that were taken ahead and have begun, while no beat has said so."""
    _away_since: float | None = field(default=None, init=False)
    _connected_at: float = field(default=-math.inf, init=False)
    """When the last request was sent that was answered."""

    def __post_init__(self) -> None:
        now = self.clock.monotonic()
        self.heard = Heard(kept_at=now, answered_at=now)
        """Replaced as a whole, under the lock; read without it."""
        self._one_at_a_time = self.threads.lock()
        self._loop = PeriodicLoop("heartbeat", self._turn, clock=self.clock, threads=self.threads)
        self.heartbeat = self._loop.heartbeat
        """Shows a watchdog that the beats go on, accepted or not."""

    def hold(self, books: Mapping[ClaimKey, LogBook], claimed_at: float) -> None:
        """From here on the beats keep these claims too; `claimed_at` is from before they were asked for."""
        with self._lock:
            heard = self.heard
            if not books.keys() <= self._books.keys():
                # The oldest of them decides when all are given up.
                kept_at = min(claimed_at, heard.kept_at) if self._books else claimed_at
                answered_at = max(claimed_at, heard.answered_at)
                self.heard = replace(heard, kept_at=kept_at, answered_at=answered_at)
            self._books |= books

    def release(self, keys: Iterable[ClaimKey]) -> None:
        with self._lock:
            for key in keys:
                self._books.pop(key, None)
                self._progress.pop(key, None)
                self._begun.discard(key)
            if self.heard.cancel or self.heard.lost:
                self.heard = replace(
                    self.heard,
                    cancel=self.heard.cancel & self._books.keys(),
                    lost={key: why for key, why in self.heard.lost.items() if key in self._books},
                )

    def note_begun(self, key: ClaimKey) -> None:
        """A claim that was taken ahead: the next beat says so, should the job last until then."""
        with self._lock:
            self._begun.add(key)

    def note_progress(self, key: ClaimKey, progress: Progress) -> None:
        """Goes out with the next beat: a job that reports often must not write as often."""
        with self._lock:
            if key in self._books:
                self._progress[key] = progress

    def dismiss(self, why: str) -> None:
        with self._lock:
            self.heard = replace(self.heard, dismissed=self.heard.dismissed or why)

    @contextmanager
    def beating(self) -> Generator[None]:
        group = LoopGroup(
            [self._loop],
            watchdog_threshold=None,  # the supervisor is watched by the same watchdog, which is not this group's
            shutdown_timeout=self.interval.total_seconds(),
            notifier=Notifier({}),
            threads=self.threads,
            clock=self.clock,
        )
        group.start()
        try:
            yield
        finally:
            group.shutdown()

    def flush(self, keys: Iterable[ClaimKey]) -> None:
        """Beats until the log lines of these jobs have arrived; those that cannot be sent now are lost."""
        with self._lock:
            books = {key: self._books[key] for key in keys}
            self._begun.difference_update(books)  # they are over: their ends say how long they ran
        for _ in range(_MOST_FLUSHES):
            unsent = [key for key, book in books.items() if book.unsent]
            if all(key in self.heard.lost for key in unsent) or not self.beat():
                return

    def beat(self) -> bool:
        """One heartbeat, and what its reply brings. One that is not accepted changes nothing: time will tell."""
        with self._one_at_a_time:
            with self._lock:
                keys = tuple(key for key in self._books if key not in self.heard.lost)
                progress = {key: self._progress[key] for key in keys if key in self._progress}
                books = {key: self._books[key] for key in keys}
                begun = tuple(self._begun.intersection(keys))
            now, before, unfit = self.model_state(), self._models_sent, dict(self.unfit())
            heartbeat = WorkerHeartbeat(
                keys=keys,
                report=self.report(),
                progress=progress,
                logs=_pieces(books),
                models=now.models if before is None or before.changes != now.changes else None,
                revision=now.revision if before is None or before.revision != now.revision else None,
                trouble=now.trouble,
                unfit=None if unfit == self._unfit_sent else unfit,
                begun=begun,
            )
            sent = self.clock.monotonic()
            try:
                reply = self.queue.beat(heartbeat)
            except (StaleWrite, NotFound) as error:
                self.dismiss(str(error))
                return False
            except HerdsmanError as error:
                if isinstance(error, StoreUnavailable):
                    with self._lock:
                        heard = self.heard
                        # An answer that came too late is none: by then the claims may have been given to others.
                        silence = self.clock.monotonic() - heard.kept_at
                        held = isinstance(error, ClaimsHeld) and silence < self.self_fence.total_seconds()
                        kept_at = max(sent, heard.kept_at) if held else heard.kept_at
                        self.heard = replace(heard, answered_at=sent, kept_at=kept_at)
                self.note_outage(error, sent)
                return False
            self._models_sent, self._unfit_sent = now, unfit
            self._accepted(heartbeat, sent, reply)
            return True

    def _turn(self) -> float:
        try:
            self.beat()
        except BaseException as error:
            # Without beats this worker is no use: let the supervisor stop everything.
            self.dismiss(f"{BROKE}: {error!r}")
            raise
        interval = self.interval.total_seconds()
        return interval if self.not_active is None else min(interval, _OFTEN_S)

    def hurry(self) -> None:
        """Send the next heartbeat now: it carries something that the server waits for."""
        self._loop.wake()

    def _accepted(self, heartbeat: WorkerHeartbeat, sent: float, reply: HeartbeatReply) -> None:
        with self._lock:
            for key, piece in heartbeat.logs.items():
                if key in self._books:
                    self._books[key].taken(piece)
            for key, progress in heartbeat.progress.items():
                if self._progress.get(key) is progress:
                    del self._progress[key]
            self._begun.difference_update(heartbeat.begun)
            held = self._books.keys()
            # A beat that left out a claim has not kept it.
            all_kept = held - self.heard.lost.keys() <= set(heartbeat.keys)
            self.heard = replace(
                self.heard,
                kept_at=max(sent, self.heard.kept_at) if all_kept else self.heard.kept_at,
                answered_at=max(sent, self.heard.answered_at),
                cancel=(self.heard.cancel | reply.cancel) & held,
                lost={**self.heard.lost, **{key: why for key, why in reply.lost.items() if key in held}},
                drain=self.heard.drain or reply.drain,
                load=reply.load,
            )
        self.note_connected(sent)
        if not reply.drain:
            self.note_active(reply.not_active)

    def note_active(self, not_active: str | None) -> None:
        """Said once for each change: why no jobs come yet, or that they may come."""
        with self._lock:
            known, self.not_active = self.not_active, not_active
        if not_active is None and known is not None:
            self.say("active: waiting for jobs")
        elif not_active not in (known, LOADS_HANDLERS):
            self.say(f"not active yet: {not_active}")

    def note_outage(self, error: HerdsmanError, sent: float) -> None:
        """Said once for each outage, whoever meets it first. A request from before the last answer tells nothing new."""
        now = self.clock.monotonic()
        with self._lock:
            if self._away_since is not None or sent < self._connected_at:
                return
            self._away_since = now
            held, left = bool(self._books), self.heard.kept_at + self.self_fence.total_seconds() - now
        if isinstance(error, Unreachable):
            reason = str(error).partition("; ")[0].rpartition(" got no answer: ")[2]
            said = f"lost the connection to {self.server}: {reason}"
        else:
            said = f"{self.server} accepts no requests: {error}"
        said += "; retrying"
        if held and not isinstance(error, ClaimsHeld):
            until = (datetime.now(UTC) + timedelta(seconds=max(0.0, left))).astimezone()
            said += f", the running job goes on until {until:%H:%M:%S}"
        self.say(said)

    def note_connected(self, sent: float) -> None:
        with self._lock:
            self._connected_at = max(sent, self._connected_at)
            since, self._away_since = self._away_since, None
        if since is not None:
            self.say(f"connected again after {self.clock.monotonic() - since:.0f} s")


def _pieces(books: Mapping[ClaimKey, LogBook]) -> dict[ClaimKey, LogLines]:
    """Together no more than one request may carry."""
    lines, size = PIECE_LINES, PIECE_BYTES
    found: dict[ClaimKey, LogLines] = {}
    for key, book in books.items():
        piece = book.piece(lines, size)
        if piece is not None:
            found[key] = piece
            lines -= len(piece.lines)
            size -= sum(len(line.encode(errors="replace")) for line in piece.lines)
    return found


@dataclass(kw_only=True)
class WorkerProbes:
    threshold: float
    interval: float
    readiness: float
    crash_dir: Path
    address: tuple[str, int] | None
    keeper: Heartbeat
    say: Callable[[str], None]
    supervisor: Heartbeat = field(default_factory=Heartbeat)

    @contextmanager
    def shown(self, ready: Callable[[], bool]) -> Generator[None]:
        for crash in read_crashes(self.crash_dir):
            loops = ", ".join(f"{name} for {age:.0f} s" for name, age in crash.stalled.items())
            self.say(f"a worker on this machine was killed at {crash.at}: no heartbeat of {loops}")
        watchdog = Watchdog(
            [self.supervisor, self.keeper],
            stall_threshold=self.threshold,
            check_interval=self.interval,
            loop_names=["supervisor", "keeper"],
            crash_dir=self.crash_dir,
            notifier=Notifier(),
        )
        watchdog.start()
        server: HealthServer | None = None
        if self.address is not None:
            host, port = self.address
            server = HealthServer(
                host=host,
                port=port,
                readiness_check=lambda: ready() and all(age <= self.readiness for age in self._ages().values()),
                liveness_check=lambda: watchdog.alive,
                details=lambda: {"loops": self._ages()},
                metrics=lambda: age_metric(self._ages()) + stalls_metric(watchdog.stalls),
            )
            server.start()
            everywhere = host in ("0.0.0.0", "::", "")  # noqa: S104  (no address that can be called)
            where = f"port {port} of every address" if everywhere else f"{host}:{port}"
            self.say(f"health endpoints at {where}")
        try:
            yield
        finally:
            if server is not None:
                server.stop()
            watchdog.stop()

    def _ages(self) -> dict[str, float]:
        loops = {"supervisor": self.supervisor, "keeper": self.keeper}
        return {name: round(heartbeat.elapsed(), 1) for name, heartbeat in loops.items()}
