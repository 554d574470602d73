"""Work, as a worker asks for it, keeps it and ends it. The token of the caller says which worker it is."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from herdsman.core.gpu import GpuDevice, GpuReport
from herdsman.core.model import DEFAULT_POOL, Claim, ClaimKey, Failure, JobId, WorkerId
from herdsman.core.retry import FailureClass
from herdsman.core.states import JobState
from herdsman.core.work import (
    MOST_AT_ONCE,
    Ask,
    Done,
    Ending,
    Exchange,
    Failed,
    GivenBack,
    Load,
    LogLines,
    Orders,
    Progress,
    Pulse,
    Told,
)
from herdsman.wire.model import Reply, Request, model_name, name

LONGEST_POLL = 60.0
MOST_MODELS = 64
MOST_LINES = 2_000
_Token = Annotated[int, Field(ge=0, lt=2**63)]
_JobName = Annotated[str, Field(min_length=1), name(128)]


class RegisterIn(Request):
    """Sent once with the bootstrap token, or with one that may register workers by hand."""

    worker_id: Annotated[str, name(128)] | None = None
    pool: Annotated[str, name(128)] = DEFAULT_POOL
    instance_type: str | None = Field(default=None, max_length=128)
    incarnation: str = Field(
        min_length=8, max_length=64, description="Random, new with every start of the process."
    )


class RegisteredOut(Reply):
    worker_id: str
    token: str = Field(description="For every later request. It is shown once.")
    expires_at: datetime
    heartbeat_seconds: float
    claim_ttl_seconds: float


class AskIn(Request):
    types: tuple[str, ...] = Field(default=(), max_length=1000)
    most: dict[str, Annotated[int, Field(ge=1, le=MOST_AT_ONCE)]] = Field(default_factory=dict[str, int])
    beside: int = Field(default=0, ge=0, lt=MOST_AT_ONCE)
    begin: bool = False
    resume: bool = False
    models: tuple[Annotated[str, model_name()], ...] = Field(default=(), max_length=MOST_MODELS)
    wait_seconds: float = Field(default=0, ge=0, le=LONGEST_POLL)

    @staticmethod
    def of(ask: Ask, wait: timedelta) -> "AskIn":
        return AskIn(
            types=ask.types,
            most=dict(ask.most),
            beside=ask.beside,
            begin=ask.begin,
            resume=ask.resume,
            models=ask.models,
            wait_seconds=min(wait.total_seconds(), LONGEST_POLL),
        )

    def ask(self) -> Ask:
        return Ask(
            types=self.types,
            most=self.most,
            beside=self.beside,
            begin=self.begin,
            resume=self.resume,
            models=self.models,
        )


class ClaimOut(Reply):
    job_id: str
    token: int
    worker_id: str
    type: str
    payload: Any
    attempt: int
    timeout_seconds: float | None
    expires_at: datetime
    service_job_id: str | None = None
    model: str | None = None

    @staticmethod
    def of(claim: Claim) -> "ClaimOut":
        return ClaimOut(
            job_id=claim.key.job_id,
            token=claim.key.token,
            worker_id=claim.worker_id,
            type=claim.type,
            payload=claim.payload,
            attempt=claim.attempt,
            timeout_seconds=None if claim.timeout is None else claim.timeout.total_seconds(),
            expires_at=claim.expires_at,
            service_job_id=claim.service_job_id,
            model=claim.model,
        )

    def claim(self) -> Claim:
        return Claim(
            key=ClaimKey(JobId(self.job_id), self.token),
            worker_id=WorkerId(self.worker_id),
            type=self.type,
            payload=self.payload,
            attempt=self.attempt,
            timeout=None if self.timeout_seconds is None else timedelta(seconds=self.timeout_seconds),
            expires_at=self.expires_at,
            service_job_id=self.service_job_id,
            model=self.model,
        )


class ClaimsOut(Reply):
    claims: tuple[ClaimOut, ...]


class KeyIn(Request):
    job_id: _JobName
    token: _Token

    @staticmethod
    def of(key: ClaimKey) -> "KeyIn":
        return KeyIn(job_id=key.job_id, token=key.token)

    def key(self) -> ClaimKey:
        return ClaimKey(JobId(self.job_id), self.token)


class StartIn(Request):
    """On `/jobs/{id}/start` the path names the job."""

    token: _Token


class StartManyIn(Request):
    claims: tuple[KeyIn, ...] = Field(min_length=1, max_length=MOST_AT_ONCE)


class RefusedOut(Reply):
    job_id: str
    token: int
    why: str


class StartedOut(Reply):
    refused: tuple[RefusedOut, ...] = ()

    def by_key(self) -> dict[ClaimKey, str]:
        return {ClaimKey(JobId(each.job_id), each.token): each.why for each in self.refused}


class ProgressIn(Request):
    token: _Token
    done: float = Field(ge=0, le=1)
    note: str | None = Field(default=None, max_length=1000)


class DeviceIn(Request):
    index: int
    uuid: str = Field(max_length=128)
    name: str = Field(max_length=128)
    total_mb: int
    used_mb: int
    utilisation: int | None = None
    processes: tuple[tuple[int, int | None], ...] = Field(default=(), max_length=1000)
    own_mb: int | None = None


class ReportIn(Request):
    ready: bool
    seen: bool | None
    fault: str | None = Field(default=None, max_length=1000)
    vram_total_mb: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    vram_used_mb: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    vram_age_seconds: float = Field(default=0, ge=0, le=31_536_000)
    devices: tuple[DeviceIn, ...] = Field(default=(), max_length=64)
    node: Annotated[str, name(128)] | None = Field(default=None, description="The machine they are in.")

    @staticmethod
    def of(report: GpuReport) -> "ReportIn":
        return ReportIn(
            ready=report.ready,
            seen=report.seen,
            fault=report.fault,
            vram_total_mb=report.vram_total_mb,
            vram_used_mb=report.vram_used_mb,
            vram_age_seconds=report.vram_age.total_seconds(),
            devices=tuple(
                DeviceIn(
                    index=each.index,
                    uuid=each.uuid,
                    name=each.name,
                    total_mb=each.total_mb,
                    used_mb=each.used_mb,
                    utilisation=each.utilisation,
                    processes=each.processes,
                    own_mb=each.own_mb,
                )
                for each in report.devices
            ),
            node=report.node,
        )

    def report(self) -> GpuReport:
        return GpuReport(
            ready=self.ready,
            seen=self.seen,
            fault=self.fault,
            vram_total_mb=self.vram_total_mb,
            vram_used_mb=self.vram_used_mb,
            vram_age=timedelta(seconds=self.vram_age_seconds),
            devices=tuple(GpuDevice(**dict(each)) for each in self.devices),
            node=self.node,
        )


class HeldIn(KeyIn):
    """One claim that the beat keeps alive, with what there is to say of its job."""

    done: float | None = Field(default=None, ge=0, le=1)
    note: str | None = Field(default=None, max_length=1000)
    log_first: int = Field(default=0, ge=0, lt=2**31)
    log_lines: tuple[Annotated[str, Field(max_length=16_384)], ...] = Field(default=(), max_length=MOST_LINES)


class PulseIn(Request):
    holding: tuple[HeldIn, ...] = Field(default=(), max_length=MOST_AT_ONCE)
    report: ReportIn | None = None
    models: Annotated[tuple[Annotated[str, model_name()], ...], Field(max_length=MOST_MODELS)] | None = None
    revision: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    trouble: str | None = Field(default=None, max_length=1000)

    @staticmethod
    def of(pulse: Pulse) -> "PulseIn":
        return PulseIn(
            holding=tuple(_held(key, pulse) for key in pulse.keys),
            report=None if pulse.report is None else ReportIn.of(pulse.report),
            models=pulse.models,
            revision=pulse.revision,
            trouble=pulse.trouble,
        )

    def pulse(self) -> Pulse:
        return Pulse(
            keys=tuple(each.key() for each in self.holding),
            report=None if self.report is None else self.report.report(),
            models=self.models,
            revision=self.revision,
            trouble=self.trouble,
            progress={
                each.key(): Progress(done=each.done, note=each.note)
                for each in self.holding
                if each.done is not None
            },
            logs={
                each.key(): LogLines(first=each.log_first, lines=each.log_lines)
                for each in self.holding
                if each.log_lines
            },
        )


class LoadOut(Reply):
    """What the worker has to serve from now on."""

    revision: int
    model: str | None = None
    adapter: str | None = None
    variant: str | None = None
    preload: tuple[str, ...] = ()

    @staticmethod
    def of(load: Load) -> "LoadOut":
        return LoadOut(
            revision=load.revision,
            model=load.model,
            adapter=load.adapter,
            variant=load.variant,
            preload=load.preload,
        )

    def load(self) -> Load:
        return Load(
            revision=self.revision,
            model=self.model,
            adapter=self.adapter,
            variant=self.variant,
            preload=self.preload,
        )


class OrdersOut(Reply):
    expires_at: datetime
    drain: bool
    load: LoadOut | None = None
    cancel: tuple[RefusedOut, ...] = ()
    lost: tuple[RefusedOut, ...] = ()
    token: str | None = Field(default=None, description="A new token for every later request.")
    token_expires_at: datetime | None = None

    @staticmethod
    def of(orders: Orders) -> "OrdersOut":
        return OrdersOut(
            expires_at=orders.expires_at,
            drain=orders.drain,
            cancel=tuple(_refused(key, "it was cancelled") for key in sorted(orders.cancel, key=str)),
            lost=tuple(_refused(key, why) for key, why in orders.lost.items()),
            load=None if orders.load is None else LoadOut.of(orders.load),
        )

    def orders(self) -> Orders:
        return Orders(
            expires_at=self.expires_at,
            drain=self.drain,
            cancel=frozenset(ClaimKey(JobId(each.job_id), each.token) for each in self.cancel),
            lost={ClaimKey(JobId(each.job_id), each.token): each.why for each in self.lost},
            load=None if self.load is None else self.load.load(),
        )


class CompleteIn(Request):
    token: _Token
    result: Any = None


class FailIn(Request):
    token: _Token
    kind: FailureClass = FailureClass.JOB_ERROR
    error: str = Field(default="", max_length=65_536)


class ReleaseIn(Request):
    token: _Token
    why: str = Field(default="", max_length=8_192)


class EndedOut(Reply):
    job_id: str
    status: str


class EndingIn(KeyIn):
    outcome: Literal["done", "failed", "given_back"]
    result: Any = None
    kind: FailureClass = FailureClass.JOB_ERROR
    error: str = Field(default="", max_length=65_536)

    @staticmethod
    def of(ending: Ending) -> "EndingIn":  # pyright: ignore[reportIncompatibleMethodOverride]
        named: dict[str, Any] = {"job_id": ending.key.job_id, "token": ending.key.token}
        match ending:
            case Done():
                return EndingIn(**named, outcome="done", result=ending.result)
            case Failed():
                return EndingIn(
                    **named, outcome="failed", kind=ending.failure.kind, error=ending.failure.error
                )
            case GivenBack():
                return EndingIn(**named, outcome="given_back", error=ending.why)

    def ending(self) -> Ending:
        match self.outcome:
            case "done":
                return Done(self.key(), self.result)
            case "failed":
                return Failed(self.key(), Failure(kind=self.kind, error=self.error))
            case "given_back":
                return GivenBack(self.key(), self.error)


class FinishIn(Request):
    endings: tuple[EndingIn, ...] = Field(min_length=1, max_length=MOST_AT_ONCE)
    then: AskIn | None = None


class ToldOut(Reply):
    job_id: str
    token: int
    status: str | None = None
    refused: str | None = None
    stale: bool = False


class FinishedOut(Reply):
    told: tuple[ToldOut, ...]
    claims: tuple[ClaimOut, ...] = ()

    @staticmethod
    def of(exchange: Exchange) -> "FinishedOut":
        return FinishedOut(
            told=tuple(
                ToldOut(
                    job_id=each.key.job_id,
                    token=each.key.token,
                    status=each.state,
                    refused=each.refused,
                    stale=each.stale,
                )
                for each in exchange.told
            ),
            claims=tuple(ClaimOut.of(claim) for claim in exchange.claims),
        )

    def exchange(self) -> Exchange:
        return Exchange(
            told=[
                Told(
                    key=ClaimKey(JobId(each.job_id), each.token),
                    state=None if each.status is None else JobState(each.status),
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


def _held(key: ClaimKey, pulse: Pulse) -> HeldIn:
    progress, logs = pulse.progress.get(key), pulse.logs.get(key)
    return HeldIn(
        job_id=key.job_id,
        token=key.token,
        done=None if progress is None else progress.done,
        note=None if progress is None else progress.note,
        log_first=0 if logs is None else logs.first,
        log_lines=() if logs is None else logs.lines,
    )


def _refused(key: ClaimKey, why: str) -> RefusedOut:
    return RefusedOut(job_id=key.job_id, token=key.token, why=why)
