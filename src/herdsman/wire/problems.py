"""Errors on the wire: one table from our own errors to HTTP and back (problem+json)."""

from typing import Any

from pydantic import Field

from herdsman.core.errors import (
    Conflict,
    Forbidden,
    Gone,
    HerdsmanError,
    InvalidRequest,
    NotFound,
    Overloaded,
    ProviderRejected,
    ProviderUnavailable,
    StaleWrite,
    StoreMisconfigured,
    StoreUnavailable,
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
    (StoreUnavailable, 503, "store-unavailable"),
    (StoreMisconfigured, 503, "store-misconfigured"),
    (ProviderUnavailable, 503, "provider-unavailable"),
    (ProviderRejected, 502, "provider-rejected"),
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
    return problem(status, code, str(error)).model_copy(update={"code": limit})


def problem(status: int, code: str, detail: str) -> Problem:
    return Problem(type=f"urn:herdsman:{code}", title=code.replace("-", " "), status=status, detail=detail)


def error_of(found: Problem) -> HerdsmanError:
    """The same error on the other side; one that we do not know is an `InvalidRequest`, or unavailable from 500 on."""
    code = found.type.rpartition(":")[2]
    kind = next((kind for kind, _, known in TABLE if known == code), None)
    if kind is None:
        kind = StoreUnavailable if found.status >= 500 else InvalidRequest
    return kind(found.detail)
