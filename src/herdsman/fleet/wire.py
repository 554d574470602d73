"""Workers, the control loop with its decisions, and the overview of the fleet."""

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import AliasChoices, Field

from herdsman import __version__
from herdsman.fleet.model import Worker
from herdsman.states import WORKER
from herdsman.text import VERSION, misfit
from herdsman.wire import Reply, optional

_NEXT = "Send it as `after` for the page that follows; null on the last."


class WorkerOut(Reply):
    worker_id: str = Field(validation_alias=AliasChoices("worker_id", "id"))
    pool: str
    status: str
    reason: str
    instance_type: str | None = None
    created_at: datetime
    entered_status_at: datetime = Field(validation_alias=AliasChoices("entered_status_at", "entered_state_at"))
    last_heartbeat: datetime | None = None
    error: str | None = None
    version: str | None = optional("Of the program that it runs, where that is known.")
    warning: str | None = optional("What does not fit, although it works.")
    cost_per_hour: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, value: Worker) -> Self:
        version, live = value.metadata.get(VERSION), value.status in WORKER.live
        more = {
            "version": None if version is None else str(version),
            "warning": misfit(value.metadata, __version__) if live else None,
        }
        return super().of(value).model_copy(update=more)


class WorkersOut(Reply):
    workers: tuple[WorkerOut, ...]
    next: str | None = optional(_NEXT)


class SideOut(Reply):
    """What one policy makes of a pool in one cycle."""

    policy: str
    workers: int = Field(description="Starting or active, if all of its plan succeeded.")
    spawns: int
    drains: int
    reason: str


class ShadowOut(Reply):
    pool: str
    policy: str = Field(description="The name of the shadow.")
    differs: bool = Field(description="It would have done something else.")
    live: SideOut | None = optional("What was decided; null where both agree.")
    shadow: SideOut | None = optional("What it would have done; null where both agree, or it raised.")
    error: str = Field(default="", description="What the shadow raised; the cycle went on without it.")


class ShadowThenOut(ShadowOut):
    cycle: int
    at: datetime


class ShadowPoolOut(Reply):
    """One pool under one shadow."""

    pool: str
    policy: str
    cycles: int
    differed: int
    failed: int
    worker_hours_more: float = Field(
        description="Time of workers that only the shadow would have had, each cycle until the next."
    )
    worker_hours_less: float = Field(description="Time of workers that it would have gone without.")


class ShadowReportOut(Reply):
    hours: int
    since: datetime | None = Field(description="The first cycle that asked a shadow; null: none did.")
    cycles: int = Field(description="Cycles that asked a shadow.")
    differed: int = Field(description="Those of them in which it would have done something else.")
    failed: int = Field(description="Those of them in which it raised.")
    pools: tuple[ShadowPoolOut, ...]
    last: tuple[ShadowThenOut, ...] = Field(description="Where it differed or raised, newest first, at most 20.")
    truncated: bool = Field(description="There were more cycles; only the newest were looked at.")


class CycleOut(Reply):
    """What one cycle saw and did."""

    timestamp: datetime | None
    actions: dict[str, int]
    status: dict[str, int]
    skipped: str
    complete: bool
    steps: tuple[dict[str, Any], ...]
    shadow: tuple[ShadowOut, ...] = Field(
        default=(), description="What a second policy would have done; none of it was done."
    )
    forwarded: bool = Field(default=False, description="Another replica leads, and did it.")


class LeaderOut(Reply):
    leads: bool
    """Whether somebody leads now; otherwise the rest tells of who led last."""
    mine: bool
    holder: str | None = None
    epoch: int | None = None
    since: datetime | None = None
    expires_at: datetime | None = None


class LiveOut(Reply):
    status: str


class ReadyOut(LiveOut):
    checks: dict[str, str]


class HealthOut(ReadyOut):
    version: str
    database: str
    leads: bool
    streams: str = "off"
    """`off`, `ok`, or what is wrong with Redis; without it jobs start a little later, so it makes nothing unhealthy."""
    jobs: dict[str, int]


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
    about: str | None = optional("The worker, the pool or the instance that it is about.")
    pool: str | None = None
    code: str
    reason: str
    numbers: dict[str, Any] = Field(default_factory=dict[str, Any])
    done: bool
    said: str = Field(default="", description="What came of it, or why it was not done.")
    words: str = Field(description="All of it as one sentence.")
    times: int = Field(default=1, description="How many cycles in a row decided the same; of a list of cycles, 1.")


class SeriesOut(Reply):
    """Columns of equal length: one value for each instant of `at`, oldest first."""

    by: Literal["type", "pool"] = Field(description="What the columns of `queued` are.")
    at: tuple[datetime, ...] = ()
    queued: dict[str, tuple[int, ...]] = Field(default_factory=dict[str, tuple[int, ...]])
    total: tuple[int, ...] = Field(default=(), description="Queued jobs of all kinds.")
    running: tuple[int | None, ...] = Field(default=(), description="Jobs that workers held; null: not recorded.")
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
    last_decisions: tuple[StepOut, ...] = Field(description="Newest first, at most 10, equal ones in a row as one.")
    series: SeriesOut = Field(description="Of the last hour, at most 120 points.")


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
    would: tuple[str, ...] = Field(description="What a longer queue would have changed, and what stood in the way.")


class DecisionOut(CycleRowOut):
    pools: tuple[PoolThenOut, ...] = ()
    inputs: dict[str, Any] = Field(default_factory=dict[str, Any], description="All that was recorded of it.")
    note: str = Field(default="", description="What could not be told, and why; empty when all could.")


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
    by_hour: tuple[MoneyOut, ...] = Field(description="Of the last 24 hours; keys are instants, each hour once.")
    by_pool: tuple[MoneyOut, ...]
    by_type: tuple[MoneyOut, ...]
    done_jobs: int = Field(description="Jobs that were done in this time.")
    per_done_job_usd: float | None


class MeOut(Reply):
    name: str
    role: str
    agent: str | None = optional("Of a submitter: whose jobs it sees.")
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
    busy_pct: float | None = Field(default=None, validation_alias=AliasChoices("busy_pct", "utilisation"))


class FleetWorkerOut(Reply):
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


class FleetOut(Reply):
    """Every worker that lives, with what it holds: one call for a page or a terminal."""

    workers: tuple[FleetWorkerOut, ...] = Field(description="By pool and age, at most 200.")
    more: int = Field(description="Workers that live and were left off.")


class DrainedOut(Reply):
    worker_id: str
    status: str
    already: bool = Field(description="It was leaving already.")
