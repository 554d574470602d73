"""Keeps a worker and its claim alive: one beat after the other, from a thread that does nothing else."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Event, Lock, Thread

from herdsman.core.errors import HerdsmanError, InvalidRequest, NotFound, StaleWrite
from herdsman.core.gpu import GpuReport
from herdsman.core.model import ClaimKey
from herdsman.ports import Clock, WorkQueue


@dataclass(frozen=True, slots=True)
class Heard:
    """What the beats have brought back so far."""

    accepted_at: float
    """When the last beat that was accepted was sent, on the monotonic clock."""
    cancel: bool = False
    lost: str | None = None
    """Why the claim is no longer ours."""
    drain: bool = False
    dismissed: str | None = None
    """Why this worker is no longer wanted at all."""


class Keeper:
    def __init__(
        self,
        queue: WorkQueue,
        clock: Clock,
        interval: timedelta,
        report: Callable[[], GpuReport | None],
        say: Callable[[str], None],
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._interval = interval
        self._report = report
        self._say = say
        self._lock = Lock()
        self._stopping = Event()
        self._key: ClaimKey | None = None
        self._progress: tuple[float, str | None] | None = None
        self._heard = Heard(clock.monotonic())
        self._silent = False

    @property
    def heard(self) -> Heard:
        with self._lock:
            return self._heard

    def hold(self, key: ClaimKey, claimed_at: float) -> None:
        """From here on the beats keep this claim too; `claimed_at` is from before it was asked for."""
        with self._lock:
            self._key, self._progress = key, None
            self._heard = replace(self._heard, accepted_at=claimed_at, cancel=False, lost=None)

    def let_go(self) -> None:
        with self._lock:
            self._key, self._progress = None, None
            self._heard = replace(self._heard, cancel=False, lost=None)

    def note_progress(self, done: float, note: str | None) -> None:
        """Goes out with the next beat: a job that reports often must not write as often."""
        with self._lock:
            self._progress = (done, note)

    @contextmanager
    def beating(self) -> Generator[None]:
        thread = Thread(target=self._run, name="keeper", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join(self._interval.total_seconds())

    def beat(self) -> None:
        """One beat, and what it brings back. One that is not accepted changes nothing: time tells."""
        with self._lock:
            key = None if self._heard.lost is not None else self._key
            progress, self._progress = self._progress, None
        sent = self._clock.monotonic()
        try:
            answer = self._queue.beat(key, self._report())
            if key is not None and progress is not None:
                self._send_progress(key, progress)
        except (StaleWrite, NotFound) as error:
            self._refused(key, str(error))
        except HerdsmanError as error:
            self._unheard(error)
        else:
            self._accepted(key, sent, cancel=answer.cancel, drain=answer.drain)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.beat()
                self._stopping.wait(self._interval.total_seconds())
        except BaseException as error:
            with self._lock:  # without beats this worker is no use: let the supervisor stop everything
                self._heard = replace(
                    self._heard, lost="the heartbeat broke", dismissed=f"the heartbeat broke: {error!r}"
                )
            raise

    def _send_progress(self, key: ClaimKey, progress: tuple[float, str | None]) -> None:
        try:
            self._queue.progress(key, *progress)
        except InvalidRequest as error:
            self._say(f"progress was not taken: {error}")

    def _accepted(self, key: ClaimKey | None, sent: float, *, cancel: bool, drain: bool) -> None:
        with self._lock:
            recovered, self._silent = self._silent, False
            # The answer to a beat for an earlier claim says nothing about this one.
            still = key == self._key
            self._heard = replace(
                self._heard,
                accepted_at=max(sent, self._heard.accepted_at) if still else self._heard.accepted_at,
                cancel=cancel if still else self._heard.cancel,
                drain=self._heard.drain or drain,
            )
        if recovered:
            self._say("heartbeats are accepted again")

    def _refused(self, key: ClaimKey | None, why: str) -> None:
        with self._lock:
            if key is None:
                self._heard = replace(self._heard, dismissed=why)
            elif key == self._key:
                self._heard = replace(self._heard, lost=why)

    def _unheard(self, error: HerdsmanError) -> None:
        first, self._silent = not self._silent, True
        if first:
            self._say(f"a heartbeat was not accepted: {error}")
