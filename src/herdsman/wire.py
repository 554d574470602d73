"""The two kinds of bodies: what we are sent is checked strictly, what we send may grow.

A body has the field names of the value in the core that it stands for, so that neither is copied field by field. Only two
things are spelled otherwise in JSON: a duration is a number of seconds, `timeout_seconds` for `timeout`, and a `state`
is a `status`.
"""

import secrets
import time
from dataclasses import fields
from datetime import timedelta
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Self
from uuid import UUID, uuid4, uuid5

from pydantic import AliasChoices, AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from herdsman import errors
from herdsman.ids import LONGEST, MODEL, NAME, JobId, WorkerId

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from herdsman.jobs.model import ClaimKey

VERSION_HEADER = "herdsman-version"
"""Comes with every answer."""
_SECONDS = "_seconds"


class Request(BaseModel):
    """A word with a spelling mistake in it must not be taken for one that was left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)


def _or_as_in_core(field: str) -> str | AliasChoices:
    return AliasChoices(field, field.removesuffix(_SECONDS)) if field.endswith(_SECONDS) else field


class Reply(BaseModel):
    """An older client goes on when a newer server says more."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        from_attributes=True,
        alias_generator=AliasGenerator(validation_alias=_or_as_in_core),
    )

    @classmethod
    def of(cls, value: Any) -> Self:
        """The reply that shows a value of the core."""
        return cls.model_validate(value)


def core_fields(body: BaseModel, *without: str) -> dict[str, Any]:
    """The fields of a body as the core names and measures them: `timeout_seconds` is the `timedelta` `timeout`."""
    found = body.__dict__.copy()
    for name in without:
        del found[name]
    for name in _spans_of(type(body)):
        if name in found:
            found[name.removesuffix(_SECONDS)] = span(found.pop(name))
    return found


@cache
def _spans_of(body: type[BaseModel]) -> tuple[str, ...]:
    return tuple(name for name in body.model_fields if name.endswith(_SECONDS))


def values_of(*parts: "DataclassInstance") -> dict[str, Any]:
    """The fields of some values of the core as one; the later part wins."""
    return {each.name: getattr(part, each.name) for part in parts for each in fields(part)}


def span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def optional(description: str) -> Any:
    """A field that may be null, and is where it is left out."""
    return Field(default=None, description=description)


def name(field: str) -> FieldInfo:
    """A text that can be the name of something. Only described here: `core.request` refuses it, with better words."""
    extra: JsonDict = {"pattern": f"^{NAME.pattern}$"}
    found: FieldInfo = Field(max_length=LONGEST[field], json_schema_extra=extra)
    return found


def model_name() -> FieldInfo:
    """The name of a model or an adapter: as other names, with slashes."""
    found: FieldInfo = Field(max_length=LONGEST["model"], json_schema_extra={"pattern": f"^{MODEL.pattern}$"})
    return found


Name = Annotated[str, Field(min_length=1, max_length=255)]
Duration = Annotated[float, Field(gt=0, le=31_536_000, description="Seconds.")]
Seconds = Annotated[
    float, BeforeValidator(lambda value: value.total_seconds() if isinstance(value, timedelta) else value)
]
"""Of a reply: a duration of the core."""
_SERVICES = UUID("6a1f2f4e-5a3b-5c5d-9e0b-6d1f0c7a2b41")


def new_job_id() -> JobId:
    """Rises with time, so that new jobs lie together in every index."""
    return JobId(f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}")


def new_lease_token() -> str:
    """Nobody can guess it: to know it is to hold the lease."""
    return secrets.token_hex(20)


def lease_id(token: str) -> str:
    """What a lease is called where its token is nobody's business."""
    return f"lease-{sha256(token.encode()).hexdigest()[:16]}"


def service_id(key: "ClaimKey") -> str:
    """Under which one claim hands its job to an external service: known before anything is sent."""
    return str(uuid5(_SERVICES, f"{key.job_id}:{key.token}"))


def new_installation_id() -> str:
    """In the name of every instance that a database starts."""
    return secrets.token_hex(6)


def new_worker_id() -> WorkerId:
    return WorkerId(f"gpu-{time.time_ns() // 1_000_000_000}-{uuid4()}")


MEDIA_TYPE = "application/problem+json"
# The first line that fits decides, so that a special case stands before the general one.
TABLE: tuple[tuple[type[errors.HerdsmanError], int, str], ...] = (
    (errors.TooLarge, 413, "too-large"),
    (errors.InvalidRequest, 422, "invalid-request"),
    (errors.Unauthenticated, 401, "unauthenticated"),
    (errors.Forbidden, 403, "forbidden"),
    (errors.NotFound, 404, "not-found"),
    (errors.Gone, 410, "gone"),
    (errors.Overloaded, 503, "overloaded"),
    (errors.TooMany, 429, "too-many"),
    (errors.Conflict, 409, "conflict"),
    (errors.StaleWrite, 409, "stale"),
    (errors.ClaimsHeld, 503, "claims-held"),
    (errors.StoreUnavailable, 503, "store-unavailable"),
    (errors.StoreMisconfigured, 503, "store-misconfigured"),
    (errors.ProviderUnavailable, 503, "provider-unavailable"),
    (errors.ProviderRejected, 502, "provider-rejected"),
)
# What drivers say names the database, its user and its host: that is for the log of the server.
_OF_THE_STORE: tuple[tuple[type[errors.HerdsmanError], str], ...] = (
    (errors.OutcomeUnknown, "the database went away in the middle: this may or may not be stored, send it again"),
    (errors.StoreUnwritable, "the database takes no writes now: send it again later; the log of the server says why"),
    (errors.StoreUnavailable, "the database cannot be used right now: send it again; the log of the server says why"),
    (errors.StoreMisconfigured, "the database cannot be used: a person has to act, the log of the server says how"),
)


class Problem(Reply):
    type: str
    title: str
    status: int
    detail: str
    errors: tuple[dict[str, Any], ...] = ()
    code: str | None = Field(default=None, description="Which limit was reached, where that is the reason.")


def problem_of(error: errors.HerdsmanError) -> Problem:
    status, code = next(((status, code) for kind, status, code in TABLE if isinstance(error, kind)), (500, "internal"))
    limit = error.code if isinstance(error, errors.TooMany) else None
    return problem(status, code, told_of(error)).model_copy(update={"code": limit})


def told_of(error: errors.HerdsmanError) -> str:
    """Its words, as far as they are for people who only have a token."""
    return next((said for kind, said in _OF_THE_STORE if isinstance(error, kind)), str(error))


def problem(status: int, code: str, detail: str) -> Problem:
    return Problem(type=f"urn:herdsman:{code}", title=code.replace("-", " "), status=status, detail=detail)


def error_of(found: Problem) -> errors.HerdsmanError:
    """The same error on the other side; one that we do not know is told by its status."""
    code = found.type.rpartition(":")[2]
    kind = next((kind for kind, _, known in TABLE if known == code), None)
    if kind is None:
        kind = errors.StoreUnavailable if found.status >= 500 else errors.InvalidRequest
        kind = errors.Conflict if found.status == 409 else kind
    return kind(found.detail)
