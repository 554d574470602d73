"""Many workers in one process: each waits at the API for a job, ends it at once, and waits again."""

import json
import selectors
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from bench.load import answer_body
from bench.work import NOOP
from herdsman.wire import new_job_id

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
        self._to_submit: deque[bytes] = deque()
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
        """Sent when the one before it was answered; the watch runs from now on."""
        job_id = new_job_id()
        body = json.dumps({"type": NOOP, "job_id": job_id}).encode()
        self._submitted[job_id] = time.monotonic()
        self._to_submit.append(self._request("/jobs/submit", self._admin, body))
        if self._desk is None:
            self._desk = _Member(self._admin, b"", socket.create_connection(self._address))
            self._selector.register(self._desk.connection, selectors.EVENT_READ, self._desk)
        if len(self._to_submit) == 1:
            self._desk.connection.sendall(self._to_submit[0])

    @property
    def open_jobs(self) -> int:
        """Submitted, and with no worker yet."""
        return len(self._submitted)

    def attend(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                self._hear(key.data)

    def _join(self, member: "_Member") -> None:
        self._selector.register(member.connection, selectors.EVENT_READ, member)
        member.connection.sendall(self._first_word(member))

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
        if member is self._desk:
            self._to_submit.popleft()
            member.connection.sendall(self._first_word(member))
        else:
            member.connection.sendall(self._next(member, json.loads(body) if good else {}))

    def _first_word(self, member: "_Member") -> bytes:
        if member is self._desk:
            return self._to_submit[0] if self._to_submit else b""
        return member.claim

    def _come_again(self, member: "_Member") -> None:
        """The server hung up: as our programs do, say it again on a new connection."""
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
            since = self._submitted.pop(claim["job_id"], None)
            if since is not None:  # else its first worker was hung up on, and it comes a second time
                self.seen.times.append(time.monotonic() - since)
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
