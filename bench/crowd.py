"""Many workers in one process: each waits at the API for a job, ends it at once, and waits again."""

import json
import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from bench.load import answer_body
from bench.work import NOOP
from herdsman.wire.ids import new_job_id

_CHUNK = 65536
_AT_ONCE = 20
_LOOK_S = 0.05


@dataclass(slots=True)
class Seen:
    """What happened since the last look."""

    times: list[float] = field(default_factory=list[float])
    """Seconds from before each submission until a worker had the job."""
    waits: int = 0
    """Calls that were answered with nothing."""
    errors: int = 0


class Crowd:
    def __init__(self, url: str, admin: str, tokens: Sequence[str], wait_s: float) -> None:
        place = urlsplit(url)
        assert place.hostname is not None
        self._address = (place.hostname, place.port or 80)
        ask = json.dumps({"types": [NOOP], "begin": True, "wait_seconds": wait_s}).encode()
        self._waiting = [(token, self._request("/jobs/claim", token, ask)) for token in tokens]
        self._admin = admin
        self._desk: _Member | None = None
        self._selector = selectors.DefaultSelector()
        self._submitted: dict[str, float] = {}
        self.seen = Seen()

    def __enter__(self) -> "Crowd":
        """One small group after the other, as a fleet comes up."""
        for start in range(0, len(self._waiting), _AT_ONCE):
            for token, claim in self._waiting[start : start + _AT_ONCE]:
                self._join(_Member(token, claim, socket.create_connection(self._address)))
            self.attend(_LOOK_S)
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            key.data.connection.close()
        self._selector.close()

    def submit(self) -> None:
        job_id = new_job_id()
        body = json.dumps({"type": NOOP, "job_id": job_id}).encode()
        request = self._request("/jobs/submit", self._admin, body)
        desk = self._desk = self._desk or self._open_desk()
        self._submitted[job_id] = time.monotonic()
        desk.connection.sendall(request)

    @property
    def open_jobs(self) -> int:
        """Submitted, and with no worker yet."""
        return len(self._submitted)

    def attend(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                self._hear(key.data)

    def _open_desk(self) -> "_Member":
        """Only when it is needed: the server hangs up on who connects and says nothing."""
        desk = _Member(self._admin, b"", socket.create_connection(self._address))
        self._selector.register(desk.connection, selectors.EVENT_READ, desk)
        return desk

    def _join(self, member: "_Member") -> None:
        self._selector.register(member.connection, selectors.EVENT_READ, member)
        member.connection.sendall(member.claim)

    def _hear(self, member: "_Member") -> None:
        try:
            data = member.connection.recv(_CHUNK)
        except ConnectionError:
            data = b""
        if not data:
            self._come_again(member)
            return
        member.unread += data
        body = answer_body(member.unread)
        if body is None:
            return
        good, member.unread = member.unread.startswith(b"HTTP/1.1 2"), b""
        self.seen.errors += not good
        if member is not self._desk:
            member.connection.sendall(self._next(member, json.loads(body) if good else {}))

    def _come_again(self, member: "_Member") -> None:
        """The server hung up: as a worker does, it asks on a new connection."""
        if member is self._desk:
            raise ConnectionResetError("the server hung up on who submits")
        self.seen.errors += 1
        self._selector.unregister(member.connection)
        member.connection.close()
        member.connection, member.unread = socket.create_connection(self._address), b""
        self._join(member)

    def _next(self, member: "_Member", answer: Any) -> bytes:
        claims = answer.get("claims")
        if not claims:
            self.seen.waits += claims is not None
            return member.claim
        for claim in claims:
            self.seen.times.append(time.monotonic() - self._submitted.pop(claim["job_id"]))
        endings = [{"job_id": each["job_id"], "token": each["token"], "outcome": "done"} for each in claims]
        return self._request("/jobs/finish", member.token, json.dumps({"endings": endings}).encode())

    def _request(self, path: str, token: str, body: bytes) -> bytes:
        host, port = self._address
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


@dataclass(eq=False, slots=True)
class _Member:
    token: str
    claim: bytes
    connection: socket.socket
    unread: bytes = b""
