"""Errors on the wire: one table from our own errors to HTTP and back (problem+json)."""

from typing import Any

from pydantic import Field

from herdsman.core.errors import (
    ClaimsHeld,
    Conflict,
    Forbidden,
    Gone,
    HerdsmanError,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    ProviderRejected,
    ProviderUnavailable,
    StaleWrite,
    StoreMisconfigured,
    StoreUnavailable,
    StoreUnwritable,
    TooLarge,
    TooMany,
    Unauthenticated,
)
from herdsman.wire.model import Reply

MEDIA_TYPE = "application/problem+json"

# The first line that fits decides, so that a special case stands before the general one.
TABLE: tuple[tuple[type[HerdsmanError], int, str], ...] = (
    (TooLarge, 413, "too-large"),
    (InvalidRequest, 422, "invalid-request"),
    (Unauthenticated, 401, "unauthenticated"),
    (Forbidden, 403, "forbidden"),
    (NotFound, 404, "not-found"),
    (Gone, 410, "gone"),
    (Overloaded, 503, "overloaded"),
    (TooMany, 429, "too-many"),
    (Conflict, 409, "conflict"),
    (StaleWrite, 409, "stale"),
    (ClaimsHeld, 503, "claims-held"),
    (StoreUnavailable, 503, "store-unavailable"),
    (StoreMisconfigured, 503, "store-misconfigured"),
    (ProviderUnavailable, 503, "provider-unavailable"),
    (ProviderRejected, 502, "provider-rejected"),
)

# What drivers say names the database, its user and its host: that is for the log of the server.
_OF_THE_STORE: tuple[tuple[type[HerdsmanError], str], ...] = (
    (OutcomeUnknown, "the database went away in the middle: this may or may not be stored, send it again"),
    (
        StoreUnwritable,
        "the database takes no writes now: send it again later; the log of the server says why",
    ),
    (
        StoreUnavailable,
        "the database cannot be used right now: send it again; the log of the server says why",
    ),
    (StoreMisconfigured, "the database cannot be used: a person has to act, the log of the server says how"),
)


class Problem(Reply):
    type: str
    title: str
    status: int
    detail: str
    errors: tuple[dict[str, Any], ...] = ()
    code: str | None = Field(default=None, description="Which limit was reached, where that is the reason.")


def problem_of(error: HerdsmanError) -> Problem:
    status, code = next(
        ((status, code) for kind, status, code in TABLE if isinstance(error, kind)), (500, "internal")
    )
    limit = error.code if isinstance(error, TooMany) else None
    return problem(status, code, told_of(error)).model_copy(update={"code": limit})


def told_of(error: HerdsmanError) -> str:
    """Its words, as far as they are for people who only have a token."""
    return next((said for kind, said in _OF_THE_STORE if isinstance(error, kind)), str(error))


def problem(status: int, code: str, detail: str) -> Problem:
    return Problem(type=f"urn:herdsman:{code}", title=code.replace("-", " "), status=status, detail=detail)


def error_of(found: Problem) -> HerdsmanError:
    """The same error on the other side; one that we do not know is told by its status."""
    code = found.type.rpartition(":")[2]
    kind = next((kind for kind, _, known in TABLE if known == code), None)
    if kind is None:
        kind = StoreUnavailable if found.status >= 500 else InvalidRequest
        kind = Conflict if found.status == 409 else kind
    return kind(found.detail)
