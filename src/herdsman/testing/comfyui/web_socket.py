"""One WebSocket connection: it says what it is told to, in order, and can go wrong in every way."""

import json
import socket
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from websockets.datastructures import Headers
from websockets.exceptions import InvalidState, WebSocketException
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

RECEIVED_AT_ONCE = 65536


class WebSocket:
    """Messages go out in a thread of its own, so that a client which does not read holds up nobody."""

    def __init__(self, connection: socket.socket, path: str, headers: Iterable[tuple[str, str]]) -> None:
        self._connection = connection
        self._protocol = ServerProtocol()
        self._lock = threading.Lock()
        self._outbox: SimpleQueue[str | bytes | None] = SimpleQueue()
        self._deaf = False
        self._protocol.receive_data(Request(path, Headers(headers)).serialize())
        for request in self._protocol.events_received():
            assert isinstance(request, Request)  # nothing but that has been received
            self._protocol.send_response(self._protocol.accept(request))
        self._flush()

    @property
    def open(self) -> bool:
        return self._protocol.state is State.OPEN

    def say(self, message: dict[str, object] | bytes) -> bool:
        """Whether it will go out, as far as anybody can know."""
        if not self._deaf:
            self._outbox.put(message if isinstance(message, bytes) else json.dumps(message))
        return not self._deaf

    def go_deaf(self) -> None:
        """Nothing is said any more, and nobody can tell."""
        self._deaf = True

    def cut(self) -> None:
        """The connection ends once all is out that was said before, without a closing word."""
        self._outbox.put(None)

    def listen(self, heard: Callable[[str], None]) -> None:
        """Until the other side goes, or the connection ends."""
        writer = threading.Thread(target=self._write, name="fake-comfyui-socket", daemon=True)
        writer.start()
        try:
            while self.open and (received := self._connection.recv(RECEIVED_AT_ONCE)):
                for text in self._take(received):
                    heard(text)
        except OSError:
            pass  # as when the other side goes: this connection is over
        finally:
            self.cut()
            writer.join()

    def _take(self, received: bytes) -> list[str]:
        with self._lock:
            self._protocol.receive_data(received)
            self._flush()
            events = self._protocol.events_received()
        frames = [event for event in events if isinstance(event, Frame)]
        return [bytes(frame.data).decode(errors="replace") for frame in frames if frame.opcode is Opcode.TEXT]

    def _write(self) -> None:
        while (message := self._outbox.get()) is not None and self._sent(message):
            pass
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the other side was faster

    def _sent(self, message: str | bytes) -> bool:
        with self._lock:
            try:
                if isinstance(message, bytes):
                    self._protocol.send_binary(message)
                else:
                    self._protocol.send_text(message.encode())
                self._flush()
            except (OSError, InvalidState, WebSocketException):
                return False
        return True

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._connection.sendall(data)
