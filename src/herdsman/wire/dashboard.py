"""What the dashboard, `herdsman top` and the commands that explain read: the whole herd at a glance.

GET /overview OverviewOut, /herd HerdOut, /why/{kind}/{id} WhyOut, /decisions DecisionsOut, /decisions/{cycle}
DecisionOut, /failures FailuresOut, /cost CostOut, /me MeOut, /settings SettingsOut, /jobs/{job_id}/eta EtaOut,
/jobs/{job_id}/timeline TimelineOut. POST /jobs/cancel and /jobs/retry take JobIdsIn, /failures/requeue RequeueIn,
each answered with BulkOut; /workers/{worker_id}/drain is answered with DrainedOut.
"""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from herdsman.core.blockers import Blocker
from herdsman.wire.model import Reply, Request, name
from herdsman.wire.shadow import ShadowOut

MOST_AT_ONCE = 500
MOST_HOURS = 24 * 31
_NEXT = "Send it as `after` for the page that follows; null on the last."


class LeadOut(Reply):
    who: str
    epoch: int
    since: datetime


class QueueOut(Reply):
    """Jobs of one type that wait in one pool."""

    type: str
    pool: str
    queued: int
    oldest_s: float = Field(description="How long the one has waited that waits longest.")


class StepOut(Reply):
    """One thing that the control loop decided."""

    cycle: int
    at: datetime
    action: str = Field(examples=["SpawnWorker", "FailWorker", "Note"])
    about: str | None = Field(
        default=None, description="The worker, the pool or the instance that it is about."
    )
    pool: str | None = None
    code: str
    why: str
    numbers: dict[str, Any] = Field(default_factory=dict[str, Any])
    done: bool
    said: str = Field(default="", description="What came of it, or why it was not done.")
    words: str = Field(description="All of it as one sentence.")
    times: int = Field(
        default=1, description="How many cycles in a row decided the same; of a list of cycles, 1."
    )


class SeriesOut(Reply):
    """Columns of equal length: one value for each instant of `at`, oldest first."""

    by: Literal["type", "pool"] = Field(description="What the columns of `queued` are.")
    at: tuple[datetime, ...] = ()
    queued: dict[str, tuple[int, ...]] = Field(default_factory=dict[str, tuple[int, ...]])
    total: tuple[int, ...] = Field(default=(), description="Queued jobs of all kinds.")
    running: tuple[int | None, ...] = Field(
        default=(), description="Jobs that workers held; null: not recorded."
    )
    active: tuple[int, ...] = Field(default=(), description="Active workers.")


class RecoveredOut(Reply):
    """Results that were found at their service instead of being made again."""

    jobs: int
    saved_gpu_seconds: float


class OverviewOut(Reply):
    now: datetime
    version: str
    leader: LeadOut | None = Field(description="Null while nobody leads.")
    jobs: dict[str, int] = Field(description="All jobs, by status; every status is there.")
    oldest_wait_s: float | None
    oldest_job: str | None
    queue: tuple[QueueOut, ...] = Field(description="Longest queue first, at most 50.")
    running: int = Field(description="Jobs that workers hold.")
    workers: dict[str, int] = Field(description="Workers by state; those that are gone are not counted.")
    cost_per_hour: float = Field(description="USD, of the instances of this moment.")
    cost_today: float = Field(description="USD, since midnight UTC.")
    recovered: RecoveredOut
    holds: tuple[str, ...] = Field(description="What people have stopped, one sentence for each.")
    last_decisions: tuple[StepOut, ...] = Field(
        description="Newest first, at most 10, equal ones in a row as one."
    )
    series: SeriesOut = Field(description="Of the last hour, at most 120 points.")


class ToldOut(Reply):
    """A decision, and how often it was the same."""

    last: datetime
    since: datetime
    times: int
    action: str
    code: str
    why: str
    numbers: dict[str, Any]
    done: bool
    said: str


class MoveOut(Reply):
    """One step in the life of what was asked about."""

    ts: datetime
    from_status: str | None
    to_status: str
    reason: str
    actor: str


class NextWorkerOut(Reply):
    queued: int
    at_queued: int | None = Field(description="The shortest queue that would add a worker; null: none would.")
    blocked_by: str | None = Field(description="What stands in the way even then.")


class BlockerOut(Reply):
    """What a waiting job waits for."""

    code: str = Field(description="Stable, to be told apart by a program: PAUSED, UNKNOWN_TYPE, CEILING ...")
    text: str
    since: datetime | None = Field(description="Null where nobody has written it down.")
    ends: str = Field(description="What would start the job; empty where nothing more can be said.")

    @classmethod
    def of(cls, blocker: Blocker) -> Self:
        return cls(code=blocker.code, text=blocker.text, since=blocker.since, ends=blocker.ends)


class WhyOut(Reply):
    kind: Literal["job", "worker", "pool"]
    id: str
    state: str
    since: datetime | None
    because: tuple[str, ...] = Field(description="Sentences, the most important first.")
    decided: tuple[ToldOut, ...] = Field(default=(), description="Newest first.")
    history: tuple[MoveOut, ...] = Field(default=(), description="Oldest first.")
    next_worker: NextWorkerOut | None = None
    numbers: dict[str, Any] = Field(default_factory=dict[str, Any])
    blocker: BlockerOut | None = Field(
        default=None, description="Of a job that has not begun: what the first sentence says."
    )


class SpanOut(Reply):
    """Seconds from now: half of the times it takes no longer than p50, four times out of five no longer than p80."""

    p50: float
    p80: float


class EtaOut(Reply):
    job_id: str
    status: str
    position: int | None = Field(description="1 is the next one of its pool; null when it does not wait.")
    start: SpanOut | None = Field(description="Null when it has started, has ended, or nothing is known.")
    finish: SpanOut | None = Field(description="Null when it has ended, or nothing is known.")
    basis: str = Field(description="What the numbers rest on, in words.")
    sample: int = Field(description="How many jobs that are done were looked at.")
    blocker: BlockerOut | None = Field(
        default=None,
        description="Why no time can be told, where something other than the line is in its way.",
    )


class CycleRowOut(Reply):
    cycle: int
    at: datetime
    epoch: int
    took_ms: int
    queued: int
    active: int
    actions: tuple[StepOut, ...]
    summary: str = Field(description="What it did, in a few words.")
    shadow: tuple[ShadowOut, ...] = Field(
        default=(), description="Where a second policy would have done something else; none of it was done."
    )


class DecisionsOut(Reply):
    cycles: tuple[CycleRowOut, ...] = Field(description="Newest first.")
    next: str | None = Field(description=_NEXT)


class PoolThenOut(Reply):
    """A pool, as the cycle saw it."""

    pool: str
    queued: int
    workers: dict[str, int]
    would: tuple[str, ...] = Field(
        description="What a longer queue would have changed, and what stood in the way."
    )


class DecisionOut(CycleRowOut):
    pools: tuple[PoolThenOut, ...] = ()
    inputs: dict[str, Any] = Field(default_factory=dict[str, Any], description="All that was recorded of it.")
    note: str = Field(default="", description="What could not be told, and why; empty when all could.")


class FailureGroupOut(Reply):
    key: str = Field(description="Names the group in `POST /failures/requeue`.")
    cause: str = Field(description="The error, with numbers and ids replaced by signs.")
    example: str = Field(
        default="", description="What the newest of them says went wrong, in a line that a person can read."
    )
    sample_error: str
    type: str
    failure_class: str | None
    count: int
    first_at: datetime
    last_at: datetime
    statuses: dict[str, int] = Field(description="Of these jobs now.")
    sample_job_ids: tuple[str, ...] = Field(description="At most 5, newest first.")


class FailuresOut(Reply):
    since: datetime
    groups: tuple[FailureGroupOut, ...] = Field(description="Largest first, at most 100.")
    scanned: int
    truncated: bool = Field(description="There were more; only the newest were looked at.")


class BulkLineOut(Reply):
    job_id: str
    status: str | None = Field(description="From here on; null when it was refused.")
    refused: str | None = None


class BulkOut(Reply):
    jobs: tuple[BulkLineOut, ...] = Field(description="In the order in which they were asked for.")
    changed: int


class MoneyOut(Reply):
    key: str
    busy_usd: float
    idle_usd: float
    total_usd: float


class CostOut(Reply):
    since: datetime
    until: datetime
    days: int
    per_hour_usd: float = Field(description="What the instances of this moment cost.")
    today_usd: float
    total_usd: float
    by_day: tuple[MoneyOut, ...]
    by_hour: tuple[MoneyOut, ...] = Field(
        description="Of the last 24 hours; keys are instants, each hour once."
    )
    by_pool: tuple[MoneyOut, ...]
    by_type: tuple[MoneyOut, ...]
    done_jobs: int = Field(description="Jobs that were done in this time.")
    per_done_job_usd: float | None


class SegmentOut(Reply):
    what: Literal["queue", "boot", "run", "result", "backoff"]
    begin: datetime = Field(alias="from")
    end: datetime | None = Field(alias="to", description="Null: it still goes on.")
    seconds: float
    worker: str | None = None
    attempt: int | None = None
    outcome: str | None = None
    cost: float | None = Field(default=None, description="USD; null where no price is known.")


class TimelineOut(Reply):
    job_id: str
    status: str
    segments: tuple[SegmentOut, ...] = Field(
        description="Oldest first. `boot` lies within `queue`: a worker that started while the job waited."
    )
    seconds: float
    cost: float | None


class MeOut(Reply):
    name: str
    role: str
    agent: str | None = Field(default=None, description="Of a submitter: whose jobs it sees.")
    can: tuple[str, ...] = Field(examples=[["look", "submit", "cancel", "retry"]])


class SettingOut(Reply):
    name: str
    group: str
    value: Any
    default: Any
    origin: str
    description: str


class SettingsOut(Reply):
    settings: tuple[SettingOut, ...]


class HeldOut(Reply):
    """A job that a worker holds."""

    job_id: str
    type: str
    status: str
    progress: float | None
    progress_note: str | None
    since: datetime


class GpuBarOut(Reply):
    uuid: str
    index: int | None
    name: str | None = None
    used_mb: int
    total_mb: int
    busy_pct: float | None = None


class HerdWorkerOut(Reply):
    worker_id: str
    pool: str
    status: str
    reason: str
    since: datetime
    created_at: datetime
    last_heartbeat: datetime | None
    instance_type: str | None
    node_id: str | None
    cost_per_hour: float | None
    error: str | None
    jobs: tuple[HeldOut, ...]
    gpus: tuple[GpuBarOut, ...] = Field(description="Of its machine.")


class HerdOut(Reply):
    """Every worker that lives, with what it holds: one call for a page or a terminal."""

    workers: tuple[HerdWorkerOut, ...] = Field(description="By pool and age, at most 200.")
    more: int = Field(description="Workers that live and were left off.")


class JobIdsIn(Request):
    """Jobs to cancel or to run once more, each answered by itself."""

    ids: tuple[Annotated[str, name(128)], ...] = Field(min_length=1, max_length=MOST_AT_ONCE, fail_fast=True)


class RequeueIn(Request):
    """One group of failures, as `GET /failures` names it: its jobs that are dead letters run once more."""

    key: Annotated[str, Field(min_length=1, max_length=64)]
    since_hours: Annotated[int, Field(ge=1, le=MOST_HOURS)] = 24
    limit: Annotated[int, Field(ge=1, le=MOST_AT_ONCE)] = MOST_AT_ONCE


class DrainedOut(Reply):
    worker_id: str
    status: str
    already: bool = Field(description="It was leaving already.")
