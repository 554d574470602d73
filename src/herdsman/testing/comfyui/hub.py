"""Who is told what: the sockets of one life of the service, by client id."""

import json
import struct
import threading
from typing import Any, cast

from herdsman.testing.comfyui.web_socket import WebSocket

PREVIEW, PREVIEW_WITH_METADATA = 1, 4
PNG = 2


class Hub:
    """Nothing is kept for later, and nothing is said twice."""

    def __init__(self, features: dict[str, Any]) -> None:
        self._features = features
        self._registered: dict[str, WebSocket] = {}
        self._open: set[WebSocket] = set()
        self._wants_metadata: set[str] = set()
        self._over = False
        self._lock = threading.Lock()
        # Of the job that runs: what a socket hears that comes back to it.
        self.client_id: str | None = None
        self.node_id: str | None = None

    @property
    def sockets(self) -> int:
        with self._lock:
            return len(self._open)

    def attend(self, socket: WebSocket, client_id: str, remaining: int) -> None:
        """From the first word to a socket to its end."""
        with self._lock:  # so that nothing of a job is said before the first word
            socket.say(_message("status", {**status(remaining), "sid": client_id}))
            if self.client_id == client_id and self.node_id is not None:
                socket.say(_message("executing", {"node": self.node_id}))
            self._registered[client_id] = socket
            self._open.add(socket)
            self._wants_metadata.discard(client_id)
            if self._over:
                socket.cut()
        try:
            self._listen(socket, client_id)
        finally:
            if self._gone(socket):
                self.leave(client_id)

    def cut(self, socket: WebSocket, client_id: str) -> None:
        """Place and connection at once, so that its end does no harm to one that comes after it."""
        self._gone(socket)
        self.leave(client_id)
        socket.cut()

    def leave(self, client_id: str) -> None:
        """Whoever is registered under the id loses the place: also a newer socket than the one that has closed."""
        with self._lock:
            self._registered.pop(client_id, None)

    def find(self, client_id: str | None) -> WebSocket | None:
        with self._lock:
            return self._registered.get(client_id or "")

    def tell(self, kind: str, data: dict[str, Any], client_id: str | None) -> bool:
        """One client, or all if it is None; whether anybody was there to hear it."""
        said = [socket.say(_message(kind, data)) for socket in self._told(client_id)]
        return any(said)

    def show(self, picture: bytes, metadata: dict[str, Any], client_id: str | None) -> None:
        """A preview, with words about it for those who asked for them."""
        words = json.dumps({**metadata, "image_type": "image/png"}).encode()
        with self._lock:
            everybody = dict(self._registered)
        for each, socket in everybody.items():
            if client_id not in (None, each):
                continue
            if each in self._wants_metadata:
                socket.say(struct.pack(">II", PREVIEW_WITH_METADATA, len(words)) + words + picture)
            else:
                socket.say(struct.pack(">II", PREVIEW, PNG) + picture)

    def cut_all(self) -> None:
        """And those that come too late as well."""
        with self._lock:
            self._over = True
            sockets = tuple(self._open)
        for socket in sockets:
            socket.cut()

    def _gone(self, socket: WebSocket) -> bool:
        with self._lock:
            known = socket in self._open
            self._open.discard(socket)
            return known

    def _told(self, client_id: str | None) -> list[WebSocket]:
        with self._lock:
            if client_id is None:
                return list(self._registered.values())
            found = self._registered.get(client_id)
            return [] if found is None else [found]

    def _listen(self, socket: WebSocket, client_id: str) -> None:
        first = True

        def hear(text: str) -> None:
            nonlocal first
            if first:
                self._hear_first(socket, client_id, text)
            first = False

        socket.listen(hear)

    def _hear_first(self, socket: WebSocket, client_id: str, text: str) -> None:
        """Only the first word counts, and only if it is about features; the rest is ignored."""
        try:
            message = json.loads(text)
        except ValueError:
            return
        if not isinstance(message, dict):
            return
        fields = cast("dict[str, Any]", message)
        if fields.get("type") == "feature_flags":
            wishes = cast("dict[str, Any]", fields.get("data") or {})
            if wishes.get("supports_preview_metadata"):
                with self._lock:
                    self._wants_metadata.add(client_id)
            socket.say(_message("feature_flags", self._features))


def status(remaining: int) -> dict[str, Any]:
    return {"status": {"exec_info": {"queue_remaining": remaining}}}


def _message(kind: str, data: dict[str, Any]) -> dict[str, object]:
    return {"type": kind, "data": data}
