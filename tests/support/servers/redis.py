"""A private Redis."""

import socket
from typing import ClassVar

from tests.support.servers.server import HOST, PrivateServer, program

SILENCE_S = 5


class RedisServer(PrivateServer):
    """It keeps its data over a restart, as a Redis that is worth relying on does."""

    program: ClassVar[str] = "redis-server"

    def url(self, database: int = 0) -> str:
        return f"redis://{HOST}:{self.port}/{database}"

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), SILENCE_S) as connection:
                connection.sendall(b"PING\r\nCONFIG GET dir\r\n")
                said = connection.recv(4096)
                return said.startswith(b"+PONG") and bytes(self.home.data) in said
        except OSError:
            return False

    def _prepare(self) -> None:
        """Redis fills its directory by itself."""

    def _command(self) -> list[str]:
        settings = {
            "bind": HOST,
            "port": self.port,
            "dir": self.home.data,
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always" if self.durable else "no",
        }
        options = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        return [program("redis-server"), *options]
