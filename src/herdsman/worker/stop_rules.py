"""When a job must be stopped, and when the worker itself: pure rules on the clock and on what heartbeats brought back."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

from herdsman.jobs.model import ClaimKey
from herdsman.jobs.protocol import Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What the replies to heartbeats have said so far."""

    kept_at: float
    """From when the claims may be ours for another `self_fence`: on the monotonic clock, when the last beat was sent that
    was accepted, or answered with `ClaimsHeld` in time."""
    answered_at: float = -math.inf
    """When the last beat was sent that the control plane answered at all, be it that its database is away."""
    cancel: frozenset[ClaimKey] = frozenset()
    lost: Mapping[ClaimKey, str] = field(default_factory=dict[ClaimKey, str])
    """Claims that are no longer ours, and why."""
    drain: bool = False
    load: Load | None = None
    """What this worker has to serve, as the last beat had it."""
    dismissed: str | None = None
    """Why this worker is no longer wanted at all."""


class ExitReason(Enum):
    """Why a worker ended; the value is the exit status of its process."""

    DRAINED = 0
    UNOWNED = 3
    """The dead-man switch fell."""
    DISMISSED = 4
    BROKEN = 6
    """Its handlers cannot be used."""


@dataclass(frozen=True, slots=True)
class WorkerExit:
    how: ExitReason
    reason: str


class Stop(Enum):
    """Why a job is stopped."""

    CANCELLED = "it was cancelled"
    TIMEOUT = "the job did not end within its timeout"
    STALLED = "the job showed no progress for too long"
    DRAINED = "the worker drains"
    MEMORY = "the job used more memory than it may"
    UNOWNED = "the worker ends itself"
    FENCED = "no heartbeat was accepted for too long"
    LOST = "its claim is no longer ours"

    @property
    def at_once(self) -> bool:
        """The job is killed without a grace period."""
        return self in (Stop.MEMORY, Stop.UNOWNED, Stop.FENCED, Stop.LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    self_fence: timedelta
    drain_grace: timedelta
    stop_grace: timedelta
    """How long a job has to stop by itself once it is asked to."""
    poll: timedelta = timedelta(milliseconds=100)
    """How often all of this is checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """How this worker came to leave, if it does."""

    since: float | None = None
    at_once: bool = False
    """Somebody asked a second time."""
    unowned: str | None = None
    """Why the dead-man switch fell, if it did."""
    exit: WorkerExit | None = None
    """How this worker has to end, as soon as no job is at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadMan:
    """A machine that nobody owns any more must not be paid for ever (P6)."""

    unowned_after: timedelta | None = None
    max_lifetime: timedelta | None = None

    def falls(self, *, now: float, began: float, answered_at: float) -> str | None:
        """Why the worker must end itself, and its machine; None while it may go on."""
        if self.unowned_after is not None and now - answered_at >= self.unowned_after.total_seconds():
            return f"no heartbeat was answered for {now - answered_at:.0f} seconds"
        if self.max_lifetime is not None and now - began >= self.max_lifetime.total_seconds():
            return f"the worker has lived for {now - began:.0f} seconds, its longest life"
        return None


def must_stop(
    key: ClaimKey,
    *,
    now: float,
    heard: Heard,
    leaving: Leaving,
    limits: Limits,
    deadline: float | None,
    stalls_at: float | None = None,
) -> Stop | None:
    if key in heard.lost or heard.dismissed is not None:
        return Stop.LOST
    if now - heard.kept_at >= limits.self_fence.total_seconds():
        return Stop.FENCED
    if leaving.unowned is not None:
        return Stop.UNOWNED
    if key in heard.cancel:
        return Stop.CANCELLED
    if deadline is not None and now >= deadline:
        return Stop.TIMEOUT
    if stalls_at is not None and now >= stalls_at:
        return Stop.STALLED
    if leaving.at_once:
        return Stop.DRAINED
    drained = leaving.since is not None and now - leaving.since >= limits.drain_grace.total_seconds()
    return Stop.DRAINED if drained else None
