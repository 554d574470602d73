"""The cable between a browser and the server, with a plug that can be pulled."""

import socket
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from threading import Thread

import httpx


class Cable:
    def __init__(self, url: str) -> None:
        self._server = (httpx.URL(url).host, httpx.URL(url).port or 80)
        self._open: list[socket.socket] = []
        self._plugged = True
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        Thread(target=self._serve, daemon=True).start()

    def pull(self) -> None:
        """What is under way breaks off, and who comes anew is turned away."""
        self._plugged = False
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def plug(self) -> None:
        self._plugged = True

    def close(self) -> None:
        self.pull()
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()

    def _serve(self) -> None:
        with suppress(OSError):  # the door was closed
            while True:
                near, _ = self._door.accept()
                Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        with closing(near), suppress(OSError):
            if not self._plugged:
                return
            with closing(socket.create_connection(self._server)) as far:
                self._open += [near, far]
                back = Thread(target=_copy, args=(far, near), daemon=True)
                back.start()
                _copy(near, far)
                back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def a_cable(url: str) -> Generator[Cable]:
    with closing(Cable(url)) as laid:
        yield laid
