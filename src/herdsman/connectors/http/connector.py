"""Any service that takes a job by HTTP and tells later, or at once, what became of it."""

import json
import queue
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from socketserver import TCPServer
from typing import Any, cast

from herdsman.connectors.http import template
from herdsman.connectors.http.options import Callback, HttpOptions
from herdsman.connectors.http.protocol import (
    ANSWER,
    accepted,
    fetch,
    judge_call,
    look,
    question_of,
    refused,
    stopped,
    values_of,
    verdict_of,
)
from herdsman.connectors.http.wire import Question, SyncCall, Wire
from herdsman.connectors.registry import Around
from herdsman.errors import HerdsmanError, ServiceRejected, ServiceUnavailable, SubmissionUnknown, TooLarge
from herdsman.jobs.protocol import (
    Broken,
    Capabilities,
    Ended,
    Finished,
    Fitness,
    Heard,
    ServiceJob,
    Unknown,
    Verdict,
    Working,
)

LARGEST_BODY = 16 * 1024 * 1024
MOST_NEWS = 1000
_SILENCE_S = 5.0
_SETTLE_S = 0.05
_SHORT_LOOK_S = 1.5
"""A look while listening may not take as long as one that was asked for."""


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


@dataclass(slots=True)
class _Watch:
    """The job at hand, as far as we have heard of it."""

    external_id: str
    look_at: float
    last: Verdict


class HttpConnector:
    name = "http"

    def __init__(self, options: HttpOptions, around: Around) -> None:
        self._options = options
        self._clock = around.clock
        self._wire = Wire(options, around.clock)
        self._results = around.results
        self._watch: _Watch | None = None
        self._callbacks: CallbackServer | None = None
        self._call: SyncCall | None = None
        self._cancelled: str | None = None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            listens=True,  # it asks at its own pace while it listens
            recovers=self._options.status.url is not None,
            cancels=self._options.cancel is not None,
            chooses_id=self._options.id is None,
        )

    def submit(self, job: ServiceJob, external_id: str) -> str:
        self._forget()
        values = values_of(job, external_id)
        if self._options.callback is not None:
            self._callbacks = CallbackServer(self._options.callback)
            values["callback_url"] = self._callbacks.url
        question, given = question_of(self._options, values), external_id
        try:
            if self._options.sync:
                patient = replace(question, timeout_s=self._options.sync_timeout_s)
                self._call = SyncCall(external_id, self._wire.ask, patient)
                self._call.begin(timedelta(seconds=self._options.timeout_s))
            else:
                given = accepted(self._wire.ask(question), self._options, external_id)
        except SubmissionUnknown:
            self._follow(external_id)  # it may be there, and tell us so
            raise
        except HerdsmanError:
            self._forget()
            raise
        self._follow(given)
        return given

    def attach(self, job: ServiceJob, external_id: str) -> None:  # noqa: ARG002  the id says enough
        self._forget()
        self._follow(external_id)

    def listen(self, external_id: str, silence: timedelta) -> Heard | None:
        if self._options.sync:
            if self._call is None or self._call.external_id != external_id:
                self._clock.sleep(silence)
                return None
            return Ended() if self._call.wait(silence) else None
        until = self._clock.monotonic() + silence.total_seconds()
        while (heard := self._hear(external_id, until)) is None:
            if self._clock.monotonic() >= until:
                return None
        return heard

    def check(self, external_id: str) -> Verdict:
        if self._options.sync:
            if self._call is None or self._call.external_id != external_id:
                return Unknown("no call for it is under way here")
            outcome = self._call.outcome
            return Working() if outcome is None else judge_call(outcome, self._options)
        verdict = self._look(external_id, self._options.timeout_s)
        if external_id == self._cancelled and isinstance(verdict, Unknown | Broken):
            return stopped("it was asked to stop")
        return verdict

    def fetch(self, job: ServiceJob, external_id: str, finished: Finished) -> object:
        answer = finished.outputs.get(ANSWER)
        return fetch(self._wire, self._options, self._results, job, answer=answer, external_id=external_id)

    def cancel(self, external_id: str) -> None:
        options = self._options.cancel
        if options is None:
            return
        url = template.fill_url(options.url, {"id": external_id})
        answer = self._wire.ask(Question(method=options.method, url=url, follow=False))
        if answer.status in self._options.retry_status:
            raise ServiceUnavailable(f"{answer.asked} answered {answer.status}: {answer.said()}")
        if answer.status in {401, 403}:
            raise refused(answer, self._options)
        if answer.is_good:
            self._cancelled = external_id

    def fitness(self) -> Fitness:
        """Without option health anything that answers is well."""
        url = self._options.health
        if url is None:
            scheme, _, rest = self._options.submit.url.partition("://")
            host = rest.partition("/")[0]
            if not host or "{" in host:
                return Fitness()
            url = f"{scheme}://{host}/"
        try:
            answer = self._wire.ask(Question(method="GET", url=url))
        except HerdsmanError as error:
            return Fitness(fault=str(error))
        if self._options.health is not None and not answer.is_good:
            return Fitness(fault=f"{answer.asked} answered {answer.status}: {answer.said()}")
        return Fitness()

    def close(self) -> None:
        self._forget()
        self._wire.close()

    def _follow(self, external_id: str) -> None:
        polls = self._options.status.url is not None
        self._watch = _Watch(external_id, self._clock.monotonic() if polls else inf, Working())

    def _forget(self) -> None:
        self._watch = self._cancelled = None
        if self._callbacks is not None:
            self._callbacks.close()
            self._callbacks = None
        if self._call is not None:
            self._call.cut()
            self._call = None

    def _hear(self, external_id: str, until: float) -> Heard | None:
        """What was posted to us, or what a look shows, whichever comes first."""
        watch = self._watch
        if watch is None or watch.external_id != external_id:
            self._clock.sleep(self._until(until))
            return None
        if watch.look_at == inf and not isinstance(watch.last, Working):
            return Ended()  # a look has taken the news before we could hear them
        pause = self._until(min(until, watch.look_at))
        if self._callbacks is None:
            self._clock.sleep(pause)
        elif (posted := self._callbacks.wait(pause)) is not None:
            return self._take_news(posted)
        return self._poll(watch) if self._clock.monotonic() >= watch.look_at else None

    def _until(self, instant: float) -> timedelta:
        return timedelta(seconds=max(0.0, instant - self._clock.monotonic()))

    def _take_news(self, posted: object) -> Heard | None:
        assert self._watch is not None
        try:
            verdict = verdict_of(posted, self._options.status)
        except ServiceUnavailable:
            return None
        if isinstance(self._watch.last, Working):
            self._watch.last = verdict  # what comes after the end changes nothing
        return verdict if isinstance(verdict, Working) else Ended()

    def _poll(self, watch: _Watch) -> Heard | None:
        """News, if there are any. An unknown job is none: a young one may not be listed yet."""
        try:
            seen = self._look(watch.external_id, min(_SHORT_LOOK_S, self._options.timeout_s))
        except (ServiceUnavailable, ServiceRejected, TooLarge):
            seen = None
        pace = max(self._options.status.interval_s, self._wire.waits_s())
        watch.look_at = self._clock.monotonic() + pace
        if isinstance(seen, Finished | Broken):
            return Ended()
        news = seen if isinstance(seen, Working) and seen != watch.last else None
        watch.last = news or watch.last
        return news

    def _look(self, external_id: str, timeout_s: float) -> Verdict:
        if self._options.status.url is None:
            # Where the service only calls back, we know what it said, and it cannot be asked.
            if self._watch is None or self._watch.external_id != external_id:
                return Unknown("nobody here waits for a call about it")
            while self._callbacks is not None and (posted := self._callbacks.wait(timedelta(0))) is not None:
                self._take_news(posted)
            return self._watch.last
        return look(self._wire, self._options, external_id, timeout_s)
