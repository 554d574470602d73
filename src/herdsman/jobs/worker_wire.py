"""What a worker sends and hears: the jobs that it claims, keeps and finishes, and its heartbeats.

Its token tells which worker it is.
"""

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, AliasPath, BaseModel, Field

from herdsman.fleet.model import GpuDevice, GpuReport
from herdsman.ids import DEFAULT_POOL, JobId
from herdsman.jobs import protocol
from herdsman.jobs.model import Claim, ClaimKey, Failure, FailureClass
from herdsman.states import JobStatus
from herdsman.wire import Reply, Request, Seconds, core_fields, model_name, name, span

LONGEST_POLL = 60.0
MOST_MODELS = 64
MOST_LINES = 2_000
_Token = Annotated[int, Field(ge=0, lt=2**63)]
_Saved = Annotated[
    float,
    Field(
        ge=0,
        le=protocol.MOST_SAVED.total_seconds(),
        description="The result had been made before and was found: the GPU seconds that this spared.",
    ),
]
_Ran = Annotated[
    float, Field(ge=0, le=protocol.MOST_SAVED.total_seconds(), description="How many seconds the job ran.")
]
_JobName = Annotated[str, Field(min_length=1), name("job_id")]


class RegisterIn(Request):
    """Sent once with the bootstrap token, or with one that may register workers by hand."""

    worker_id: Annotated[str, name("worker_id")] | None = None
    pool: Annotated[str, name("pool")] = DEFAULT_POOL
    instance_type: str | None = Field(default=None, max_length=128)
    incarnation: str = Field(min_length=8, max_length=64, description="Random, new with every start of the process.")


class RegisteredOut(Reply):
    worker_id: str
    token: str = Field(description="For every later request. It is shown once.")
    expires_at: datetime
    heartbeat_seconds: float
    claim_ttl_seconds: float


class ClaimRequestIn(Request):
    types: tuple[str, ...] = Field(default=(), max_length=1000, fail_fast=True)
    most: dict[str, Annotated[int, Field(ge=1, le=protocol.MOST_AT_ONCE)]] = Field(default_factory=dict[str, int])
    beside: int = Field(default=0, ge=0, lt=protocol.MOST_AT_ONCE)
    begin: bool = False
    resume: bool = False
    ahead: dict[str, Annotated[int, Field(ge=1, le=protocol.MOST_AT_ONCE)]] = Field(default_factory=dict[str, int])
    held: int = Field(default=0, ge=0, le=protocol.MOST_AT_ONCE)
    slot: int = Field(default=0, ge=0, lt=protocol.SLOTS)
    urgent_before: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    models: tuple[Annotated[str, model_name()], ...] = Field(default=(), max_length=MOST_MODELS, fail_fast=True)
    wait_seconds: float = Field(default=0, ge=0, le=LONGEST_POLL)

    @classmethod
    def of(cls, ask: protocol.ClaimRequest, wait: timedelta) -> Self:
        found = cls.model_validate(ask, from_attributes=True)
        seconds = min(max(0.0, wait.total_seconds()), LONGEST_POLL)
        return found.model_copy(update={"wait_seconds": seconds})

    def ask(self) -> protocol.ClaimRequest:
        return protocol.ClaimRequest(**core_fields(self, "wait_seconds"))


class _Keyed(BaseModel):
    """A claim, by its job and its token."""

    job_id: str
    token: int

    def key(self) -> ClaimKey:
        return ClaimKey(JobId(self.job_id), self.token)


class KeyOut(Reply, _Keyed):
    """A claim, by its job and its token."""

    job_id: str = Field(validation_alias=AliasChoices("job_id", AliasPath("key", "job_id")))
    token: int = Field(validation_alias=AliasChoices("token", AliasPath("key", "token")))


class ClaimOut(KeyOut):
    worker_id: str
    type: str
    payload: Any
    attempt: int
    timeout_seconds: Seconds | None
    expires_at: datetime
    service_job_id: str | None = None
    model: str | None = None
    agent: str = Field(default="", description="For whom it runs.")
    place: int = Field(default=0, description="In the queue: the lowest is the most urgent.")

    def claim(self) -> Claim:
        return Claim(key=self.key(), **core_fields(self, "job_id", "token"))


class ClaimsOut(Reply):
    claims: tuple[ClaimOut, ...]


class KeyIn(Request, _Keyed):
    job_id: _JobName
    token: _Token

    @classmethod
    def of(cls, key: ClaimKey) -> Self:
        return cls.model_validate(key, from_attributes=True)


class HeldClaimOut(KeyOut):
    pass


class HeldClaimsOut(Reply):
    """A claim that the worker does not work on is one whose answer never reached it: it gives that job back."""

    claims: tuple[HeldClaimOut, ...]


class StartIn(Request):
    """On `/jobs/{id}/start` the path names the job."""

    token: _Token


class StartManyIn(Request):
    claims: tuple[KeyIn, ...] = Field(min_length=1, max_length=protocol.MOST_AT_ONCE, fail_fast=True)


class RefusedOut(KeyOut):
    reason: str

    @classmethod
    def of(cls, value: ClaimKey, why: str) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]  (a key has no reason)
        return cls(job_id=value.job_id, token=value.token, reason=why)


class StartedOut(Reply):
    refused: tuple[RefusedOut, ...] = ()

    def by_key(self) -> dict[ClaimKey, str]:
        return {each.key(): each.reason for each in self.refused}


class ProgressIn(Request):
    token: _Token
    done: float = Field(ge=0, le=1)
    note: str | None = Field(default=None, max_length=1000)


class CompleteIn(Request):
    token: _Token
    result: Any = None
    saved_seconds: _Saved | None = None

    def saved(self) -> timedelta | None:
        return span(self.saved_seconds)


class FailIn(Request):
    token: _Token
    kind: FailureClass = FailureClass.JOB_ERROR
    error: str = Field(default="", max_length=65_536)


class ReleaseIn(Request):
    token: _Token
    reason: str = Field(default="", max_length=8_192)


class ServiceIn(Request):
    """Where a job is on an external service."""

    token: _Token
    external_id: str = Field(min_length=1, max_length=255, json_schema_extra={"pattern": "^[ -~]+$"})
    status: protocol.MarkStatus

    @classmethod
    def of(cls, token: int, mark: protocol.ServiceMark) -> Self:
        return cls(token=token, external_id=mark.external_id, status=mark.status)

    def mark(self) -> protocol.ServiceMark:
        return protocol.ServiceMark(external_id=self.external_id, status=self.status)


class EndedOut(Reply):
    job_id: str
    status: str


class EndingIn(KeyIn):
    outcome: Literal["done", "failed", "given_back"]
    result: Any = None
    kind: FailureClass = FailureClass.JOB_ERROR
    error: str = Field(default="", max_length=65_536)
    saved_seconds: _Saved | None = None
    ran_seconds: _Ran | None = None
    begun: bool = Field(default=True, description="False for a claim that is given back and was never begun.")

    @classmethod
    def of(cls, ending: protocol.Ending) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        named: dict[str, Any] = {"job_id": ending.key.job_id, "token": ending.key.token}
        if not isinstance(ending, protocol.GivenBack) and ending.ran is not None:
            named["ran_seconds"] = ending.ran.total_seconds()
        match ending:
            case protocol.Done():
                saved = None if ending.saved is None else ending.saved.total_seconds()
                return cls(**named, outcome="done", result=ending.result, saved_seconds=saved)
            case protocol.Failed():
                return cls(**named, outcome="failed", kind=ending.failure.kind, error=ending.failure.error)
            case protocol.GivenBack():
                return cls(**named, outcome="given_back", error=ending.reason, begun=ending.begun)

    def ending(self) -> protocol.Ending:
        match self.outcome:
            case "done":
                return protocol.Done(self.key(), self.result, span(self.saved_seconds), span(self.ran_seconds))
            case "failed":
                return protocol.Failed(self.key(), Failure(kind=self.kind, error=self.error), span(self.ran_seconds))
            case "given_back":
                return protocol.GivenBack(self.key(), self.error, self.begun)


class FinishIn(Request):
    endings: tuple[EndingIn, ...] = Field(min_length=1, max_length=protocol.MOST_AT_ONCE, fail_fast=True)
    then: ClaimRequestIn | None = None


class FinishResultOut(KeyOut):
    status: str | None = None
    refused: str | None = None
    stale: bool = False


class FinishedOut(Reply):
    told: tuple[FinishResultOut, ...]
    claims: tuple[ClaimOut, ...] = ()

    def exchange(self) -> protocol.FinishAndClaim:
        return protocol.FinishAndClaim(
            told=[
                protocol.FinishResult(
                    key=each.key(),
                    status=None if each.status is None else JobStatus(each.status),
                    refused=each.refused,
                    stale=each.stale,
                )
                for each in self.told
            ],
            claims=[claim.claim() for claim in self.claims],
        )


class CheckpointIn(Request):
    token: _Token
    value: Any = None


class CheckpointOut(Reply):
    value: Any = None


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
    node: Annotated[str, name("node")] | None = Field(default=None, description="The machine they are in.")

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
    begun: bool = Field(default=False, description="It was taken ahead, and has begun since.")


class HeartbeatIn(Request):
    holding: tuple[HeldIn, ...] = Field(default=(), max_length=protocol.MOST_AT_ONCE, fail_fast=True)
    report: ReportIn | None = None
    models: (
        Annotated[tuple[Annotated[str, model_name()], ...], Field(max_length=MOST_MODELS, fail_fast=True)] | None
    ) = None
    revision: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    trouble: str | None = Field(default=None, max_length=1000)
    unfit: (
        Annotated[dict[Annotated[str, name("type")], Annotated[str, Field(max_length=1000)]], Field(max_length=200)]
        | None
    ) = Field(default=None, description="Types of jobs that it does not take at the moment, and why.")

    @classmethod
    def of(cls, heartbeat: protocol.WorkerHeartbeat) -> Self:
        return cls(
            holding=tuple(_held(key, heartbeat) for key in heartbeat.keys),
            report=None if heartbeat.report is None else ReportIn.of(heartbeat.report),
            models=heartbeat.models,
            revision=heartbeat.revision,
            trouble=heartbeat.trouble,
            unfit=None if heartbeat.unfit is None else dict(heartbeat.unfit),
        )

    def heartbeat(self) -> protocol.WorkerHeartbeat:
        held = [(each.key(), each) for each in self.holding]
        return protocol.WorkerHeartbeat(
            keys=tuple(key for key, _ in held),
            report=None if self.report is None else self.report.report(),
            unfit=self.unfit,
            progress={key: protocol.Progress(done=of.done, note=of.note) for key, of in held if of.done is not None},
            logs={key: protocol.LogLines(first=of.log_first, lines=of.log_lines) for key, of in held if of.log_lines},
            models=self.models,
            revision=self.revision,
            trouble=self.trouble,
            begun=tuple(key for key, of in held if of.begun),
        )


class LoadOut(Reply):
    """What the worker has to serve from now on."""

    revision: int
    model: str | None = None
    adapter: str | None = None
    variant: str | None = None
    preload: tuple[str, ...] = ()

    def load(self) -> protocol.Load:
        return protocol.Load(**dict(self))


class HeartbeatReplyOut(Reply):
    expires_at: datetime
    drain: bool
    load: LoadOut | None = None
    cancel: tuple[RefusedOut, ...] = ()
    lost: tuple[RefusedOut, ...] = ()
    not_active: str | None = Field(
        default=None, description="Why the worker is given no jobs yet; null once it is active."
    )
    token: str | None = Field(default=None, description="A new token for every later request.")
    token_expires_at: datetime | None = None

    @classmethod
    def of(cls, value: protocol.HeartbeatReply) -> Self:
        return cls(
            expires_at=value.expires_at,
            drain=value.drain,
            cancel=tuple(RefusedOut.of(key, "it was cancelled") for key in sorted(value.cancel, key=str)),
            lost=tuple(RefusedOut.of(key, why) for key, why in value.lost.items()),
            load=None if value.load is None else LoadOut.of(value.load),
            not_active=value.not_active,
        )

    def reply(self) -> protocol.HeartbeatReply:
        return protocol.HeartbeatReply(
            expires_at=self.expires_at,
            drain=self.drain,
            cancel=frozenset(each.key() for each in self.cancel),
            lost={each.key(): each.reason for each in self.lost},
            load=None if self.load is None else self.load.load(),
            not_active=self.not_active,
        )


def _held(key: ClaimKey, heartbeat: protocol.WorkerHeartbeat) -> HeldIn:
    """Without what there is nothing to say of, which the defaults stand for."""
    progress, logs = heartbeat.progress.get(key), heartbeat.logs.get(key)
    said: dict[str, Any] = {} if progress is None else {"done": progress.done, "note": progress.note}
    if logs is not None:
        said |= {"log_first": logs.first, "log_lines": logs.lines}
    if key in heartbeat.begun:
        said["begun"] = True
    return HeldIn(job_id=key.job_id, token=key.token, **said)
