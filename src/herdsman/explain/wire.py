"""Why a job, a worker or a pool is as it is, and how long things take."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from herdsman.wire import Reply, optional


class RepeatedDecisionOut(Reply):
    """A decision, and how often it was repeated."""

    last: datetime
    since: datetime
    times: int
    action: str
    code: str
    reason: str
    numbers: dict[str, Any]
    done: bool
    said: str


class MoveOut(Reply):
    """One change of status."""

    ts: datetime
    from_status: str | None
    to_status: str
    reason: str
    actor: str


class NextWorkerOut(Reply):
    queued: int
    at_queued: int | None = Field(description="The shortest queue that would add a worker; null: none would.")
    blocked_by: str | None = Field(description="What prevents it even then.")


class WaitReason(Reply):
    """Why a job waits: a stable code, a sentence, since when, and what would start it."""

    code: str = Field(description="Stable, for programs: PAUSED, UNKNOWN_TYPE, CEILING ...")
    text: str
    since: datetime | None = optional("Null where it was not recorded.")
    ends: str = Field(default="", description="What would start the job; empty where that is not known.")

    @property
    def sentence(self) -> str:
        since = f", since {self.since:%Y-%m-%d %H:%M:%S} UTC" if self.since else ""
        return f"Waiting: {self.text}{since}{self._remedy}"

    @property
    def short(self) -> str:
        """Without the time since when."""
        return f"{self.text}{self._remedy}"

    @property
    def _remedy(self) -> str:
        return f"; {self.ends}" if self.ends else ""


class WhyOut(Reply):
    kind: Literal["job", "worker", "pool"]
    id: str
    status: str
    since: datetime | None
    because: tuple[str, ...] = Field(description="Sentences, the most important first.")
    decided: tuple[RepeatedDecisionOut, ...] = Field(default=(), description="Newest first.")
    history: tuple[MoveOut, ...] = Field(default=(), description="Oldest first.")
    next_worker: NextWorkerOut | None = None
    numbers: dict[str, Any] = Field(default_factory=dict[str, Any])
    blocker: WaitReason | None = optional("Of a job that has not started: what the first sentence says.")


class SpanOut(Reply):
    """Seconds from now: half of the times it takes no longer than p50, four times out of five no longer than p80."""

    p50: float
    p80: float


class EtaOut(Reply):
    job_id: str
    status: str
    position: int | None = Field(description="1 is the next one of its pool; null when it is not queued.")
    start: SpanOut | None = Field(description="Null when it has started, has ended, or nothing is known.")
    finish: SpanOut | None = Field(description="Null when it has ended, or nothing is known.")
    basis: str = Field(description="What the numbers rest on, in words.")
    sample: int = Field(default=0, description="How many completed jobs it rests on.")
    blocker: WaitReason | None = optional("Why there is no estimate, where the job waits for more than its turn.")


class SegmentOut(Reply):
    what: Literal["queue", "boot", "run", "result", "backoff"]
    begin: datetime = Field(alias="from")
    end: datetime | None = Field(alias="to", description="Null: it still goes on.")
    seconds: float
    worker: str | None = None
    attempt: int | None = None
    outcome: str | None = None
    cost: float | None = optional("USD; null where no price is known.")


class TimelineOut(Reply):
    job_id: str
    status: str
    segments: tuple[SegmentOut, ...] = Field(
        description="Oldest first. `boot` lies within `queue`: a worker that started while the job waited."
    )
    seconds: float
    cost: float | None
