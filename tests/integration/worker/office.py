"""The part of the API that a worker needs, on jobs in memory: for real workers that a test gives orders to."""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from pydantic import BaseModel

from herdsman.jobs.worker_wire import (
    ClaimOut,
    ClaimRequestIn,
    ClaimsOut,
    FinishedOut,
    FinishIn,
    HeartbeatIn,
    HeartbeatReplyOut,
    RegisteredOut,
)
from tests.worker_queue import BreakableQueue

Answer = BaseModel | Mapping[str, object]


class Office:
    def __init__(self, queue: BreakableQueue) -> None:
        self.queue = queue
        self.url = ""

    def answer(self, path: str, body: Any) -> Answer:
        known: dict[str, Callable[[Any], Answer]] = {
            "/workers/register": self._register,
            "/jobs/claim": self._claim,
            "/jobs/finish": self._finish,
            f"/workers/{self.queue.worker_id}/heartbeat": self._beat,
            f"/workers/{self.queue.worker_id}/leave": self._leave,
        }
        return known[path](body)

    def _register(self, _body: Any) -> Answer:
        return RegisteredOut(
            worker_id=self.queue.worker_id,
            token="a-token",
            expires_at=datetime.now(UTC) + timedelta(days=1),
            heartbeat_seconds=5,
            claim_ttl_seconds=30,
        )

    def _claim(self, body: Any) -> Answer:
        asked = ClaimRequestIn(**body)
        claims = self.queue.claim(asked.ask(), timedelta(seconds=asked.wait_seconds))
        return ClaimsOut(claims=tuple(ClaimOut.of(claim) for claim in claims))

    def _finish(self, body: Any) -> Answer:
        told = FinishIn(**body)
        then = None if told.then is None else told.then.ask()
        return FinishedOut.of(self.queue.finish([each.ending() for each in told.endings], then))

    def _beat(self, body: Any) -> Answer:
        return HeartbeatReplyOut.of(self.queue.beat(HeartbeatIn(**body).heartbeat()))

    def _leave(self, _body: Any) -> Answer:
        self.queue.leave()
        return {}


@contextmanager
def open_office(queue: BreakableQueue) -> Generator[Office]:
    office = Office(queue)

    class Window(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
            answer = office.answer(self.path, body)
            text = answer.model_dump_json() if isinstance(answer, BaseModel) else json.dumps(answer)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

    server = ThreadingHTTPServer(("127.0.0.1", 0), Window)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        office.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield office
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
