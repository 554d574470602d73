"""The WebSockets of one run of the service: which client gets which message."""

import asyncio
import contextlib
import json
import struct
import threading
from typing import Any, cast

from starlette.websockets import WebSocket, WebSocketDisconnect

from herdsman.testing.fakes.app_server import Address, client_of

PREVIEW, PREVIEW_WITH_METADATA = 1, 4
PNG = 2


class Socket:
    """One WebSocket that can go wrong in every way. Messages may be sent from any thread, and are sent in order.

    They wait in a queue, so that a client which does not read holds up nobody.
    """

    def __init__(self, websocket: WebSocket) -> None:
        self.client: Address = client_of(websocket)
        self._websocket = websocket
        self._loop = asyncio.get_running_loop()
        self._outbox: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self.deaf = False
        """Nothing is sent any more, and nobody can tell."""

    def send(self, message: dict[str, object] | bytes) -> bool:
        """Whether it will go out, as far as anybody can know."""
        if not self.deaf:
            self._put(message if isinstance(message, bytes) else json.dumps(message))
        return not self.deaf

    def cut(self) -> None:
        """The connection ends once all is out that was sent before, without a closing frame."""
        self._put(None)

    async def serve(self, hub: "Hub", client_id: str) -> None:
        """Until the client goes, or the connection is cut. uvicorn closes the connection without a frame."""

        async def receive() -> None:
            first = True
            while (message := await self._websocket.receive())["type"] != "websocket.disconnect":
                text = message.get("text")
                if text is not None and first:
                    hub.hear_first(self, client_id, text)
                    first = False
            self.cut()

        receiving = asyncio.create_task(receive())
        try:
            while (message := await self._outbox.get()) is not None:
                if isinstance(message, bytes):
                    await self._websocket.send_bytes(message)
                else:
                    await self._websocket.send_text(message)
        except (WebSocketDisconnect, RuntimeError):
            pass  # the client has left
        finally:
            receiving.cancel()

    def _put(self, message: str | bytes | None) -> None:
        with contextlib.suppress(RuntimeError):  # the fake has stopped
            self._loop.call_soon_threadsafe(self._outbox.put_nowait, message)


class Hub:
    """Nothing is kept for later, and nothing is sent twice."""

    def __init__(self, features: dict[str, Any]) -> None:
        self._features = features
        self._registered: dict[str, Socket] = {}
        self._open: set[Socket] = set()
        self._wants_metadata: set[str] = set()
        self._over = False
        self._lock = threading.Lock()
        # Of the job that runs: what a socket gets that comes back to it.
        self.client_id: str | None = None
        self.node_id: str | None = None

    @property
    def clients(self) -> set[Address]:
        """The connections that are open."""
        with self._lock:
            return {socket.client for socket in self._open}

    async def attend(self, socket: Socket, client_id: str, remaining: int) -> None:
        """From the first message to a socket to its end."""
        with self._lock:  # so that nothing of a job is sent before the first message
            socket.send(_message("status", {**status(remaining), "sid": client_id}))
            if self.client_id == client_id and self.node_id is not None:
                socket.send(_message("executing", {"node": self.node_id}))
            self._registered[client_id] = socket
            self._open.add(socket)
            self._wants_metadata.discard(client_id)
            if self._over:
                socket.cut()
        try:
            await socket.serve(self, client_id)
        finally:
            if self._gone(socket):
                self.unregister(client_id)

    def cut(self, socket: Socket, client_id: str) -> None:
        """Registration and connection at once, so that its end does no harm to one that comes after it."""
        self._gone(socket)
        self.unregister(client_id)
        socket.cut()

    def unregister(self, client_id: str) -> None:
        """Whoever is registered under the id: also a newer socket than the one that has closed."""
        with self._lock:
            self._registered.pop(client_id, None)

    def find(self, client_id: str | None) -> Socket | None:
        with self._lock:
            return self._registered.get(client_id or "")

    def send(self, kind: str, data: dict[str, Any], client_id: str | None) -> bool:
        """To one client, or to all if it is None; whether anybody was there to receive it."""
        with self._lock:
            chosen = [socket for each, socket in self._registered.items() if client_id is None or each == client_id]
        sent = [socket.send(_message(kind, data)) for socket in chosen]
        return any(sent)

    def show(self, picture: bytes, metadata: dict[str, Any], client_id: str | None) -> None:
        """A preview, with metadata for those who asked for it."""
        described = json.dumps({**metadata, "image_type": "image/png"}).encode()
        with self._lock:
            everybody = dict(self._registered)
        for each, socket in everybody.items():
            if client_id not in (None, each):
                continue
            if each in self._wants_metadata:
                socket.send(struct.pack(">II", PREVIEW_WITH_METADATA, len(described)) + described + picture)
            else:
                socket.send(struct.pack(">II", PREVIEW, PNG) + picture)

    def cut_all(self) -> None:
        """And those that come too late as well."""
        with self._lock:
            self._over = True
            sockets = tuple(self._open)
        for socket in sockets:
            socket.cut()

    def hear_first(self, socket: Socket, client_id: str, text: str) -> None:
        """Only the first message of a client counts, and only if it is about features; the rest is ignored."""
        try:
            message = json.loads(text)
        except ValueError:
            return
        fields = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
        if fields.get("type") == "feature_flags":
            wanted = cast("dict[str, Any]", fields.get("data") or {})
            if wanted.get("supports_preview_metadata"):
                with self._lock:
                    self._wants_metadata.add(client_id)
            socket.send(_message("feature_flags", self._features))

    def _gone(self, socket: Socket) -> bool:
        with self._lock:
            known = socket in self._open
            self._open.discard(socket)
            return known


def status(remaining: int) -> dict[str, Any]:
    return {"status": {"exec_info": {"queue_remaining": remaining}}}


def _message(kind: str, data: dict[str, Any]) -> dict[str, object]:
    return {"type": kind, "data": data}
