"""Workers with their heartbeats, the control loop with its decisions, and the overview of the fleet."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, Field

from herdsman import __version__
from herdsman.fleet.model import GpuDevice, GpuReport, Worker
from herdsman.jobs.model import ClaimKey
from herdsman.jobs.protocol import MOST_AT_ONCE, HeartbeatReply, Load, LogLines, Progress, WorkerHeartbeat
from herdsman.jobs.wire import MOST_MODELS, KeyIn, RefusedOut
from herdsman.states import WORKER
from herdsman.text import VERSION, misfit
from herdsman.wire import Reply, Request, core_fields, model_name, name, optional

MOST_LINES = 2_000
_NEXT = "Send it as `after` for the page that follows; null on the last."


class WorkerOut(Reply):
    worker_id: str = Field(validation_alias=AliasChoices("worker_id", "id"))
    pool: str
    status: str
    reason: str
    instance_type: str | None = None
    created_at: datetime
    entered_status_at: datetime = Field(
        validation_alias=AliasChoices("entered_status_at", "entered_state_at")
    )
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


class DeviceIn(Request):
    index: int
    uuid: str = Field(max_length=128)
    name: str = Field(max_length=128)
    total_mb: int
    used_mb: int
    utilisation: int | None = None
    processes: tuple[tuple[int, int | None], ...] = Field(default=(), max_length=1000, fail_fast=True)
    own_mb: int | None = None


class ReportIn(Request):
    ready: bool
    seen: bool | None
    fault: str | None = Field(default=None, max_length=1000)
    vram_total_mb: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    vram_used_mb: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    vram_age_seconds: float = Field(default=0, ge=0, le=31_536_000)
    disk_total_mb: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    disk_free_mb: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    devices: tuple[DeviceIn, ...] = Field(default=(), max_length=64, fail_fast=True)
    node: Annotated[str, name("node")] | None = optional("The machine they are in.")

    @classmethod
    def of(cls, report: GpuReport) -> Self:
        found = cls.model_validate(report, from_attributes=True)
        return found.model_copy(update={"vram_age_seconds": report.vram_age.total_seconds()})

    def report(self) -> GpuReport:
        devices = tuple(GpuDevice(**dict(each)) for each in self.devices)
        return GpuReport(devices=devices, **core_fields(self, "devices"))


class HeldIn(KeyIn):
    """One claim that the beat keeps alive, with what there is to say of its job."""

    done: float | None = Field(default=None, ge=0, le=1)
    note: str | None = Field(default=None, max_length=1000)
    log_first: int = Field(default=0, ge=0, lt=2**31)
    log_lines: tuple[Annotated[str, Field(max_length=16_384)], ...] = Field(
        default=(), max_length=MOST_LINES, fail_fast=True
    )


class HeartbeatIn(Request):
    holding: tuple[HeldIn, ...] = Field(default=(), max_length=MOST_AT_ONCE, fail_fast=True)
    report: ReportIn | None = None
    models: (
        Annotated[tuple[Annotated[str, model_name()], ...], Field(max_length=MOST_MODELS, fail_fast=True)]
        | None
    ) = None
    revision: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    trouble: str | None = Field(default=None, max_length=1000)
    unfit: (
        Annotated[
            dict[Annotated[str, name("type")], Annotated[str, Field(max_length=1000)]], Field(max_length=200)
        ]
        | None
    ) = optional("Types of jobs that it does not take at the moment, and why.")

    @classmethod
    def of(cls, heartbeat: WorkerHeartbeat) -> Self:
        return cls(
            holding=tuple(_held(key, heartbeat) for key in heartbeat.keys),
            report=None if heartbeat.report is None else ReportIn.of(heartbeat.report),
            models=heartbeat.models,
            revision=heartbeat.revision,
            trouble=heartbeat.trouble,
            unfit=None if heartbeat.unfit is None else dict(heartbeat.unfit),
        )

    def heartbeat(self) -> WorkerHeartbeat:
        held = [(each.key(), each) for each in self.holding]
        return WorkerHeartbeat(
            keys=tuple(key for key, _ in held),
            report=None if self.report is None else self.report.report(),
            unfit=self.unfit,
            progress={key: Progress(done=of.done, note=of.note) for key, of in held if of.done is not None},
            logs={key: LogLines(first=of.log_first, lines=of.log_lines) for key, of in held if of.log_lines},
            models=self.models,
            revision=self.revision,
            trouble=self.trouble,
        )


class LoadOut(Reply):
    """What the worker has to serve from now on."""

    revision: int
    model: str | None = None
    adapter: str | None = None
    variant: str | None = None
    preload: tuple[str, ...] = ()

    def load(self) -> Load:
        return Load(**dict(self))


class HeartbeatReplyOut(Reply):
    expires_at: datetime
    drain: bool
    load: LoadOut | None = None
    cancel: tuple[RefusedOut, ...] = ()
    lost: tuple[RefusedOut, ...] = ()
    not_active: str | None = optional("Why the worker is given no jobs yet; null once it is active.")
    token: str | None = optional("A new token for every later request.")
    token_expires_at: datetime | None = None

    @classmethod
    def of(cls, value: HeartbeatReply) -> Self:
        return cls(
            expires_at=value.expires_at,
            drain=value.drain,
            cancel=tuple(RefusedOut.of(key, "it was cancelled") for key in sorted(value.cancel, key=str)),
            lost=tuple(RefusedOut.of(key, why) for key, why in value.lost.items()),
            load=None if value.load is None else LoadOut.of(value.load),
            not_active=value.not_active,
        )

    def reply(self) -> HeartbeatReply:
        return HeartbeatReply(
            expires_at=self.expires_at,
            drain=self.drain,
            cancel=frozenset(each.key() for each in self.cancel),
            lost={each.key(): each.why for each in self.lost},
            load=None if self.load is None else self.load.load(),
            not_active=self.not_active,
        )


def _held(key: ClaimKey, heartbeat: WorkerHeartbeat) -> HeldIn:
    """Without what there is nothing to say of, which the defaults stand for."""
    progress, logs = heartbeat.progress.get(key), heartbeat.logs.get(key)
    said: dict[str, Any] = {} if progress is None else {"done": progress.done, "note": progress.note}
    if logs is not None:
        said |= {"log_first": logs.first, "log_lines": logs.lines}
    return HeldIn(job_id=key.job_id, token=key.token, **said)


class SideOut(Reply):
    """What one policy makes of a pool in one cycle."""

    policy: str
    workers: int = Field(description="Starting or active, if all of its plan succeeded.")
    spawns: int
    drains: int
    why: str


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
    last: tuple[ShadowThenOut, ...] = Field(
        description="Where it differed or raised, newest first, at most 20."
    )
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
