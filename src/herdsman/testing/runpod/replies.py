"""What the fake sends back."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

JSON = "application/json"
PROBLEM = "application/problem+json"
HTML = "text/html; charset=utf-8"


def _no_headers() -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int
    body: bytes = b""
    kind: str = JSON
    headers: Mapping[str, str] = field(default_factory=_no_headers)
    cut_after: int | None = None
    """The connection ends after so many bytes of the body; 0 is before the first word."""
    events: Iterator[str] | None = None
    """A stream instead of a body."""
    delay_s: float = 0.0
    """Real seconds before the first word."""
    fault: str | None = None
    """Which fault made it what it is."""


class Refused(Exception):
    """A request that gets a problem for an answer."""

    def __init__(self, status: int, detail: str, *, errors: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors


def ok(value: object, status: int = 200) -> Reply:
    return Reply(status=status, body=json.dumps(value).encode())


def nothing() -> Reply:
    return Reply(status=204)


def problem(
    status: int,
    detail: str,
    *,
    errors: tuple[str, ...] = (),
    headers: Mapping[str, str] | None = None,
    fault: str | None = None,
) -> Reply:
    said: dict[str, object] = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    if errors:
        said["errors"] = list(errors)
    return Reply(
        status=status, body=json.dumps(said).encode(), kind=PROBLEM, headers=headers or {}, fault=fault
    )


def page(status: int, fault: str) -> Reply:
    """What a network in between says, in its own language."""
    title = f"{status} {HTTPStatus(status).phrase}"
    body = f"<!DOCTYPE html><html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>"
    return Reply(status=status, body=body.encode(), kind=HTML, fault=fault)
