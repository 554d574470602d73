"""Asks the service, within limits of time and size; failures are raised as our own errors."""

import json
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, cast

import httpx

from herdsman.connectors.http.options import Callback, HttpOptions
from herdsman.errors import Forbidden, HerdsmanError, ServiceRejected, ServiceUnavailable, TooLarge
from herdsman.ports import Clock
from herdsman.web import NEVER_SENT, Endless, Gate, Oversized, guarded_client, sent, whole

MOST_RETRY_AFTER_S = 60.0
_MEGABYTE = 1024 * 1024
_WRONG_ADDRESS = (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError)
_CUT_S = 5.0
LARGEST_BODY = 16 * 1024 * 1024
MOST_NEWS = 1000
_SILENCE_S = 5.0
_SETTLE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    asked: str
    """Which request it answers, for a person."""
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    def document(self) -> object:
        """Its JSON; `ValueError` where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            kind = self.headers.get("content-type", "no type")
            raise ValueError(f"{self.asked} answered {kind}, not JSON: {self.said()}") from error

    def said(self) -> str:
        """The beginning of it, on one line."""
        return " ".join(self.body[:1200].decode("utf-8", "replace").split())[:300] or "nothing"

    def __str__(self) -> str:
        return f"{self.asked} answered {self.status}: {self.said()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content: bytes | None = None
    unclear: type[ServiceUnavailable] = ServiceUnavailable
    """What to raise when it may have arrived."""
    timeout_s: float | None = None
    follow: bool = True
    """Whether a redirect is followed: one of a submission would arrive without its body."""
    trace: Callable[[str, Mapping[str, Any]], None] | None = None


class Wire:
    """One client for all requests. Keys go to the operator's own hosts only, and nowhere else."""

    def __init__(self, options: HttpOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        own = options.own_hosts()
        self._own = Gate(own)
        self._allow = (*own, *options.allow_hosts)
        Gate(self._allow)  # so that a host which is none is known at the start
        self._tls = httpx.create_ssl_context()
        self._client: httpx.Client | None = None
        self._not_before = 0.0

    def close(self) -> None:
        """It opens again by itself."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def waits_s(self) -> float:
        """How long the service still wants to be left alone."""
        return max(0.0, self._not_before - self._clock.monotonic())

    def ask(self, question: Question) -> Answer:
        """`ServiceUnavailable` when there is no answer, `ServiceRejected` when it must not be asked there."""
        if (wait := self.waits_s()) > 0:
            raise ServiceUnavailable(f"the service asked to be left alone for {wait:.0f} more seconds")
        with self._sent(question) as response:
            limit = self._options.max_answer_mb * _MEGABYTE
            seconds = question.timeout_s or self._options.timeout_s
            try:
                body = whole(response, self._clock, seconds=seconds, largest=limit)
            except Oversized as error:
                raise TooLarge(
                    f"{_asked(question)} answered with more than {limit} bytes; see option max_answer_mb"
                ) from error
            except Endless as error:
                raise question.unclear(f"{_asked(question)} answered too slowly") from error
            answer = Answer(
                asked=_asked(question), status=response.status_code, headers=dict(response.headers), body=body
            )
        said = answer.headers.get("retry-after", "")
        if answer.status in self._options.retry_status and said.isdecimal():
            self._not_before = self._clock.monotonic() + min(float(said), MOST_RETRY_AFTER_S)
        return answer

    @contextmanager
    def download(self, url: str) -> Generator[Iterator[bytes]]:
        """A file, piece by piece; its size is limited by who keeps it."""
        question = Question(method="GET", url=url)
        with self._sent(question) as response:
            if response.status_code in self._options.retry_status:
                raise ServiceUnavailable(f"{_asked(question)} answered {response.status_code}; it is asked again")
            if not response.is_success:
                raise ServiceRejected(f"{_asked(question)} answered {response.status_code}: no file", retry=True)
            yield response.iter_bytes()

    @contextmanager
    def _sent(self, question: Question) -> Generator[httpx.Response]:
        try:
            if self._client is None:
                self._client = guarded_client(self._allow, timeout=self._options.timeout_s, tls=self._tls)
            url = httpx.URL(question.url)
            headers = dict(question.headers)
            if self._own.allows(url.host, url.port or (443 if url.scheme == "https" else 80)):
                keys = {name: each.get_secret_value() for name, each in self._options.headers.items()}
                headers = keys | headers
            for name, value in headers.items():
                if not value.isascii() or not value.isprintable():
                    raise ServiceRejected(f"the header {name} would hold a character that no header may hold")
            timeout = question.timeout_s or self._options.timeout_s
            request = self._client.build_request(
                question.method,
                url,
                headers=headers,
                content=question.content,
                timeout=httpx.Timeout(timeout, connect=min(timeout, self._options.timeout_s)),
                extensions={} if question.trace is None else {"trace": question.trace},
            )
            with sent(self._client, request, follow_redirects=question.follow) as response:
                yield response
        except Forbidden as error:
            raise ServiceRejected(str(error)) from error
        except _WRONG_ADDRESS as error:
            raise ServiceRejected(f"{_asked(question)} cannot be sent: {error}") from error
        except NEVER_SENT as error:
            raise ServiceUnavailable(f"{_asked(question)} found nobody: {_why(error)}") from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise question.unclear(f"{_asked(question)} was not answered: {_why(error)}") from error


def _asked(question: Question) -> str:
    """Without the query, which may hold a key."""
    return f"{question.method} {question.url.partition('?')[0][:200]}"


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__


class SyncCall:
    """One call. `begin` returns once the request is out, so that who is not there is known at once."""

    def __init__(self, external_id: str, ask: Callable[[Question], Answer], question: Question) -> None:
        self.external_id = external_id
        self._question = replace(question, trace=self._trace)
        self._ask = ask
        self._sent = False
        self._begun = threading.Event()
        self._over = threading.Event()
        self._stream: Any = None
        self._outcome: Answer | HerdsmanError | None = None
        self._thread = threading.Thread(target=self._run, name=f"call {external_id}", daemon=True)

    def begin(self, wait: timedelta) -> None:
        """Raises what went wrong before anything was sent."""
        self._thread.start()
        self._begun.wait(wait.total_seconds())
        if not self._sent and isinstance(self._outcome, HerdsmanError):
            raise self._outcome

    def wait(self, silence: timedelta) -> bool:
        """Whether it is over."""
        return self._over.wait(silence.total_seconds())

    @property
    def outcome(self) -> Answer | HerdsmanError | None:
        """None while nothing came back."""
        return self._outcome if self._over.is_set() else None

    def cut(self) -> None:
        """Closing a socket wakes nobody who waits on it; shutting it down does."""
        if self._stream is not None and not self._over.is_set():
            with suppress(OSError):
                self._stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join(_CUT_S)

    def _run(self) -> None:
        try:
            self._outcome = self._ask(self._question)
        except HerdsmanError as error:
            self._outcome = error
        finally:
            self._over.set()
            self._begun.set()

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
            self._stream = info["return_value"]
        elif event.endswith("send_request_body.complete"):
            self._sent = True
            self._begun.set()


class CallbackServer:
    """Listens from its making until `close`. Others than the service find nothing here."""

    def __init__(self, options: Callback) -> None:
        self._path = f"/{secrets.token_urlsafe(32)}"
        self._news: queue.Queue[object] = queue.Queue(MOST_NEWS)
        try:
            self._server = _Server((options.host, options.port), self._take)
        except OSError as error:
            raise ServiceUnavailable(
                f"callback: {options.host}:{options.port} cannot be listened on: {error}"
            ) from error
        where = options.public_url or f"http://{options.host}:{self._server.server_port}"
        self.url = f"{where.rstrip('/')}{self._path}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_SETTLE_S,), name="callback", daemon=True
        )
        self._thread.start()

    def wait(self, silence: timedelta) -> object | None:
        """The next that was posted; None when nothing came."""
        try:
            return self._news.get(timeout=max(0.001, silence.total_seconds()))
        except queue.Empty:
            return None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, path: str, body: bytes) -> int:
        """The status to answer with."""
        if not compare_digest(path.partition("?")[0].encode(), self._path.encode()):
            return 404
        try:
            document: object = json.loads(body)
        except (ValueError, RecursionError):
            return 400
        if not isinstance(document, dict | list):
            return 400
        try:
            self._news.put_nowait(cast("object", document))
        except queue.Full:
            return 503
        return 204


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], take: Callable[[str, bytes], int]) -> None:
        self.take = take
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Without looking up the name of the host, which may take seconds and serves nothing here."""
        TCPServer.server_bind(self)
        self.server_port = int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that connects and leaves is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = _SILENCE_S

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            status = 413
        else:
            status = self.server.take(self.path, self.rfile.read(int(length)))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_POST  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """The path is a secret."""
