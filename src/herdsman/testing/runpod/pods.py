"""A pod of the fake: what was asked for, where it stands in its life, and what it has cost."""

import threading
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum

from herdsman.testing.runpod.process import Container

MOST_LOG_LINES = 5000
HOUR = Decimal(3600)


class Status(StrEnum):
    PROVISIONING = "PROVISIONING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    EXITED = "EXITED"
    ERROR = "ERROR"
    TERMINATED = "TERMINATED"


ALIVE = frozenset({Status.PROVISIONING, Status.STARTING, Status.RUNNING})
ACTIONS: Mapping[Status, tuple[str, ...]] = {
    Status.PROVISIONING: ("stop", "terminate"),
    Status.STARTING: ("stop", "terminate"),
    Status.RUNNING: ("stop", "restart", "terminate"),
    Status.EXITED: ("start", "terminate"),
    Status.ERROR: ("start", "terminate"),
    Status.TERMINATED: (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long things take, in the time of the fake."""

    provisioning: timedelta = timedelta(0)
    starting: timedelta = timedelta(0)
    restart: timedelta = timedelta(seconds=1)
    """From the exit of a container to its next start."""
    tombstone: timedelta = timedelta(0)
    """How long a deleted pod is still shown, as TERMINATED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What a fault has in store for one pod."""

    visible_after: timedelta = timedelta(0)
    never_running: bool = False
    no_ssh: bool = False
    silent: bool = False
    crash_loop: bool = False
    preempted_after: timedelta | None = None
    notice: timedelta | None = None


@dataclass(slots=True, kw_only=True)
class FakePod:
    id: str
    name: str
    body: Mapping[str, object]
    gpu_type: str | None
    gpu_count: int
    price: Decimal
    """US dollars an hour while it is alive."""
    data_center: str
    number: int
    created: float
    entered: float
    """When it came into its status."""
    lives: list[tuple[float, float | None]]
    """From when to when it was alive, and billed; the last one is open while it is."""
    fate: Fate
    foreign: bool = False

    status: Status = Status.PROVISIONING
    started: float | None = None
    """When its container last started."""
    exited: float | None = None
    """When it ended, while it waits for its next start."""
    dies_at: float | None = None
    """Set once it has been told that it will be preempted."""
    container: Container | None = None
    log: deque[tuple[float, str, str]] = field(
        default_factory=lambda: deque[tuple[float, str, str]](maxlen=MOST_LOG_LINES)
    )
    """When, from which source, what. Container and cloud write it from threads of their own."""
    log_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def alive(self) -> bool:
        return self.status in ALIVE

    @property
    def own_key(self) -> str:
        """The key that the pod finds in its environment; it is good for this pod alone."""
        return f"rpa_pod_{self.id}"

    def enter(self, status: Status, now: float) -> None:
        """Billing follows the status: it stops with the compute."""
        if status in ALIVE and not self.alive:
            self.lives.append((now, None))
        elif self.alive and status not in ALIVE:
            self.lives[-1] = (self.lives[-1][0], now)
        self.status, self.entered = status, now
        self.say("system", f"pod is {status}", now)

    def cost(self, now: float) -> Decimal:
        """By the second."""
        seconds = sum((now if end is None else end) - start for start, end in self.lives)
        return self.price * Decimal(int(seconds)) / HOUR

    def say(self, source: str, line: str, now: float) -> None:
        with self.log_lock:
            self.log.append((now, source, line))

    def said(self, sources: Collection[str]) -> list[tuple[float, str, str]]:
        with self.log_lock:
            return [entry for entry in self.log if entry[1] in sources]
