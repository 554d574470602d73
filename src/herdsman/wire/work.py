"""Work, as a worker asks for it, keeps it and ends it. The token of the caller says which worker it is."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from herdsman.core.model import DEFAULT_POOL, Claim, ClaimKey, Failure, JobId, WorkerId
from herdsman.core.retry import FailureClass
from herdsman.core.saved import MOST_SAVED
from herdsman.core.service import MarkStatus, ServiceMark
from herdsman.core.states import JobState
from herdsman.core.work import (
    MOST_AT_ONCE,
    Ask,
    Done,
    Ending,
    Exchange,
    Failed,
    GivenBack,
    Told,
)
from herdsman.wire.model import Reply, Request, model_name, name

LONGEST_POLL = 60.0
MOST_MODELS = 64
_Token = Annotated[int, Field(ge=0, lt=2**63)]
_Saved = Annotated[
    float,
    Field(
        ge=0,
        le=MOST_SAVED.total_seconds(),
        description="The result had been made before and was found: the GPU seconds that this spared.",
    ),
]
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
    types: tuple[str, ...] = Field(default=(), max_length=1000, fail_fast=True)
    most: dict[str, Annotated[int, Field(ge=1, le=MOST_AT_ONCE)]] = Field(default_factory=dict[str, int])
    beside: int = Field(default=0, ge=0, lt=MOST_AT_ONCE)
    begin: bool = False
    resume: bool = False
    models: tuple[Annotated[str, model_name()], ...] = Field(
        default=(), max_length=MOST_MODELS, fail_fast=True
    )
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
    agent: str = Field(default="", description="For whom it runs.")

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
            agent=claim.agent,
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
            agent=self.agent,
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


class HeldClaimOut(Reply):
    job_id: str
    token: int

    def key(self) -> ClaimKey:
        return ClaimKey(JobId(self.job_id), self.token)


class HeldClaimsOut(Reply):
    """A claim that the worker does not work on is one whose answer never reached it: it gives that job back."""

    claims: tuple[HeldClaimOut, ...]


class StartIn(Request):
    """On `/jobs/{id}/start` the path names the job."""

    token: _Token


class StartManyIn(Request):
    claims: tuple[KeyIn, ...] = Field(min_length=1, max_length=MOST_AT_ONCE, fail_fast=True)


class RefusedOut(Reply):
    job_id: str
    token: int
    why: str

    @staticmethod
    def of(key: ClaimKey, why: str) -> "RefusedOut":
        return RefusedOut(job_id=key.job_id, token=key.token, why=why)


class StartedOut(Reply):
    refused: tuple[RefusedOut, ...] = ()

    def by_key(self) -> dict[ClaimKey, str]:
        return {ClaimKey(JobId(each.job_id), each.token): each.why for each in self.refused}


class ProgressIn(Request):
    token: _Token
    done: float = Field(ge=0, le=1)
    note: str | None = Field(default=None, max_length=1000)


class CompleteIn(Request):
    token: _Token
    result: Any = None
    saved_seconds: _Saved | None = None

    def saved(self) -> timedelta | None:
        return _span(self.saved_seconds)


class FailIn(Request):
    token: _Token
    kind: FailureClass = FailureClass.JOB_ERROR
    error: str = Field(default="", max_length=65_536)


class ReleaseIn(Request):
    token: _Token
    why: str = Field(default="", max_length=8_192)


class ServiceIn(Request):
    """Where a job is on an external service."""

    token: _Token
    external_id: str = Field(min_length=1, max_length=255, json_schema_extra={"pattern": "^[ -~]+$"})
    status: MarkStatus

    @staticmethod
    def of(token: int, mark: ServiceMark) -> "ServiceIn":
        return ServiceIn(token=token, external_id=mark.external_id, status=mark.status)

    def mark(self) -> ServiceMark:
        return ServiceMark(external_id=self.external_id, status=self.status)


class EndedOut(Reply):
    job_id: str
    status: str


class EndingIn(KeyIn):
    outcome: Literal["done", "failed", "given_back"]
    result: Any = None
    kind: FailureClass = FailureClass.JOB_ERROR
    error: str = Field(default="", max_length=65_536)
    saved_seconds: _Saved | None = None

    @staticmethod
    def of(ending: Ending) -> "EndingIn":  # pyright: ignore[reportIncompatibleMethodOverride]
        named: dict[str, Any] = {"job_id": ending.key.job_id, "token": ending.key.token}
        match ending:
            case Done():
                saved = None if ending.saved is None else ending.saved.total_seconds()
                return EndingIn(**named, outcome="done", result=ending.result, saved_seconds=saved)
            case Failed():
                return EndingIn(
                    **named, outcome="failed", kind=ending.failure.kind, error=ending.failure.error
                )
            case GivenBack():
                return EndingIn(**named, outcome="given_back", error=ending.why)

    def ending(self) -> Ending:
        match self.outcome:
            case "done":
                return Done(self.key(), self.result, _span(self.saved_seconds))
            case "failed":
                return Failed(self.key(), Failure(kind=self.kind, error=self.error))
            case "given_back":
                return GivenBack(self.key(), self.error)


class FinishIn(Request):
    endings: tuple[EndingIn, ...] = Field(min_length=1, max_length=MOST_AT_ONCE, fail_fast=True)
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


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
