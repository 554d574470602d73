"""A clock to move by hand, loops that behave as they are told, and a look at a health server."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from herdsman.loops import Heartbeat, InMemoryMailbox, LoopGroup, MainLoop, MainLoopRequest, Runnable

PATIENCE = 30.0

Requests = InMemoryMailbox[MainLoopRequest[Any]]


class HandClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Works(MainLoop[Any, Any]):
    """Does what the test gave it to do."""

    def __init__(self, requests: Requests, work: Callable[[Any, Callable[[], None]], object], **more: Any) -> None:
        super().__init__(requests, **more)
        self._work = work

    def perform(self, request: Any, beat: Callable[[], None]) -> Any:
        return self._work(request, beat)


class Plain:
    """A loop that runs until it is stopped, and knows nothing of mailboxes; it may be deaf."""

    def __init__(self, name: str, *, beats: bool = True, deaf: bool = False, begin: Callable[[], object] = int) -> None:
        self.name = name
        self.heartbeat = Heartbeat()
        self.stopped = threading.Event()
        self.asked_at: float | None = None
        self.running = False
        self._beats, self._deaf, self._begin = beats, deaf, begin

    def run(
        self,
        max_iterations: int | None = None,  # noqa: ARG002
        visibility_timeout: float = 1,  # noqa: ARG002
        wait_time_seconds: float = 1,  # noqa: ARG002
    ) -> None:
        self.running = True
        try:
            self._begin()
            while not self.stopped.wait(0.01):
                if self._beats:
                    self.heartbeat.beat()
        finally:
            self.running = False

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        self.asked_at = self.asked_at or time.monotonic()
        if not self._deaf:
            self.stopped.set()
        return self.stopped.wait(timeout)


def eventually(holds: Callable[[], object], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


@contextmanager
def running(group: LoopGroup, **times: Any) -> Generator[threading.Thread]:
    thread = threading.Thread(target=group.run, kwargs=times, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        group.shutdown(timeout=0)
        thread.join(PATIENCE)


def loops_of(*loops: Runnable) -> list[Runnable]:
    return list(loops)


@dataclass(frozen=True)
class Reply:
    status: int
    text: str
    kind: str | None
    length: str | None

    @property
    def body(self) -> Any:
        return json.loads(self.text)


def ask(address: tuple[str, int] | None, path: str, method: str = "GET") -> Reply:
    assert address is not None
    connection = http.client.HTTPConnection("127.0.0.1", address[1], timeout=PATIENCE)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        text = answer.read().decode()
        return Reply(answer.status, text, answer.getheader("Content-Type"), answer.getheader("Content-Length"))
    finally:
        connection.close()
