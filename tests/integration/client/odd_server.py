"""A real HTTP server on this machine that answers as a test tells it to, well or badly."""

import json
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

import uvicorn

Send = Callable[[dict[str, Any]], Awaitable[None]]
Answering = Callable[["Asked", Send], Awaitable[None]]


class Asked:
    def __init__(self, scope: dict[str, Any], body: bytes) -> None:
        self.path: str = scope["path"]
        self.headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.body = body


class OddServer:
    def __init__(self, answer: Answering) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self.url = ""

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.asked.append(Asked(scope, body))
        await self.answer(self.asked[-1], send)


@contextmanager
def serving(answer: Answering) -> Generator[OddServer]:
    app = OddServer(answer)
    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="odd-server")
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            threading.Event().wait(0.01)
        app.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield app
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


async def head(send: Send, status: int, kind: str, **headers: str) -> None:
    pairs = [(b"content-type", kind.encode())]
    pairs += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def body(send: Send, content: bytes, *, more: bool = False) -> None:
    await send({"type": "http.response.body", "body": content, "more_body": more})


async def reply(send: Send, said: object, status: int = 200, kind: str = "application/json", **headers: str) -> None:
    content = said if isinstance(said, bytes) else json.dumps(said).encode()
    await head(send, status, kind, **headers)
    await body(send, content)


class Cut(Exception):
    """Raised by an answer after its head: the server closes the connection in the middle."""
