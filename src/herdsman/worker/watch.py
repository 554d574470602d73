"""When a job at work must be stopped: a pure look at the clock and at what was heard."""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from herdsman.worker.keeper import Heard


class Stop(Enum):
    """Why a job is stopped; the later ones leave no time to be polite."""

    CANCELLED = "it was cancelled"
    TIMEOUT = "its time is up"
    DRAINED = "the worker drains"
    FENCED = "no heartbeat was accepted for too long"
    LOST = "its claim is no longer ours"

    @property
    def at_once(self) -> bool:
        return self in (Stop.FENCED, Stop.LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    self_fence: timedelta
    drain_grace: timedelta
    stop_grace: timedelta
    """How long a job has to stop by itself once it is asked to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """How this worker came to leave, if it does."""

    since: float | None = None
    at_once: bool = False
    """Somebody asked a second time."""


def must_stop(
    *, now: float, heard: Heard, leaving: Leaving, limits: Limits, deadline: float | None
) -> Stop | None:
    if heard.lost is not None or heard.dismissed is not None:
        return Stop.LOST
    if now - heard.accepted_at >= limits.self_fence.total_seconds():
        return Stop.FENCED
    if heard.cancel:
        return Stop.CANCELLED
    if deadline is not None and now >= deadline:
        return Stop.TIMEOUT
    if leaving.at_once:
        return Stop.DRAINED
    drained = leaving.since is not None and now - leaving.since >= limits.drain_grace.total_seconds()
    return Stop.DRAINED if drained else None
