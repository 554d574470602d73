"""What is asked over HTTP, and the answers."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    """As it came, without the query."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in small letters."""
    body: bytes | None
    """None if it is larger than the service takes."""

    @property
    def route(self) -> str:
        """Every route is there twice, once below `/api`."""
        return self.path.removeprefix("/api") if self.path.startswith("/api/") else self.path

    def json(self) -> Any:
        try:
            return json.loads(self.body or b"")
        except (ValueError, RecursionError) as error:
            raise Refused(server_error()) from error

    def object(self) -> dict[str, Any]:
        body = self.json()
        if not isinstance(body, dict):
            raise Refused(server_error())
        return cast("dict[str, Any]", body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int = 200
    kind: str = "application/json; charset=utf-8"
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    pieces: Iterator[bytes] | None = None
    """Instead of the body, for what is too large to hold; `length` bytes in all."""
    length: int = 0


@dataclass(frozen=True, slots=True)
class NoReply:
    """The connection ends without a word."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """From here on it is a WebSocket."""

    client_id: str


Answer = Reply | NoReply | Upgrade


class Refused(Exception):
    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


def ok(body: object) -> Reply:
    return Reply(body=json.dumps(body).encode())


def empty(status: int = 200) -> Reply:
    return Reply(status=status, kind="application/octet-stream")


def refusal(status: int, body: object) -> Reply:
    return Reply(status=status, body=json.dumps(body).encode())


def words(status: int, text: str, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status=status, kind="text/plain; charset=utf-8", body=text.encode(), headers=headers or {})


def server_error() -> Reply:
    return words(500, "500 Internal Server Error\n\nServer got itself in trouble")


def html(status: int) -> Reply:
    page = f"<html><head><title>{status}</title></head><body><h1>Something stands between</h1></body></html>"
    return Reply(status=status, kind="text/html; charset=utf-8", body=page.encode())
