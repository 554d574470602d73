"""What a waiting job waits for: a stable code, a sentence, since when, and what would start it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Block(StrEnum):
    DELAYED = "DELAYED"
    PUT_OFF = "PUT_OFF"
    """A limit at the door put it off."""
    BACKOFF = "BACKOFF"
    NOT_STAGED = "NOT_STAGED"
    """Its time has come, and nobody has queued it: no control plane is there."""
    PAUSED = "PAUSED"
    DRAINED = "DRAINED"
    POOL_CLOSED = "POOL_CLOSED"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    SERVICE_UNFIT = "SERVICE_UNFIT"
    """The service that its workers would run it on is away, or cannot take jobs."""
    AGENT_FULL = "AGENT_FULL"
    KEY_FULL = "KEY_FULL"
    NO_GPU = "NO_GPU"
    """The job needs one, or its pool requires one, and the workers that are there have none."""
    GPU_MEMORY = "GPU_MEMORY"
    MODEL = "MODEL"
    SILENT_WORKERS = "SILENT_WORKERS"
    NO_LEADER = "NO_LEADER"
    NO_CYCLE = "NO_CYCLE"
    """Somebody leads, and does nothing."""
    NOBODY_KEEPS = "NOBODY_KEEPS"
    STARTING = "STARTING"
    BUSY = "BUSY"
    NO_WORKER = "NO_WORKER"
    """None is there, and the next cycle makes one."""
    NEXT = "NEXT"
    """Nothing is in its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    code: str
    """A `Block`, or the code of a finding where a finding keeps the fleet from growing."""
    text: str
    since: datetime | None = None
    """None where nobody has written it down."""
    ends: str = ""
    """What would start the job."""

    @property
    def sentence(self) -> str:
        since = f", since {told(self.since)}" if self.since else ""
        return f"{self.text}{since}{self._then}"

    @property
    def short(self) -> str:
        """Without the moment since when it is so."""
        return f"{self.text}{self._then}"

    @property
    def _then(self) -> str:
        return f"; {self.ends}" if self.ends else ""


def told(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"
