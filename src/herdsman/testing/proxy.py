"""A TCP proxy in front of a fake service: it cuts connections and closes its port, as networks and crashes do.

A service cannot do either from within an HTTP framework: a request there always ends in a response. The proxy runs on
the event loop of the service, and is called from there only.
"""

import asyncio
import contextlib
import socket
from collections.abc import Collection
from dataclasses import dataclass, field

PIECE = 256 * 1024
BACKLOG = 256
END_OF_HEAD = b"\r\n\r\n"

Address = tuple[str, int]


@dataclass(slots=True, eq=False)
class _Connection:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    body_bytes: int | None = None
    """Cut after so many bytes of the next body; None passes everything on."""
    withheld: bytearray = field(default_factory=bytearray)

    def cut(self) -> None:
        """A client that has read everything sees an orderly end of the stream, without a byte more."""
        with contextlib.suppress(OSError):
            self.client.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self.client.transport.abort()
        self.server.transport.abort()


class Proxy:
    """Listens on `address` between `open` and `close`; between `close` and `open` connections are refused.

    A connection is known by the address that the server behind sees as its client, which is the `client` of a request.
    """

    def __init__(self, host: str, port: int = 0) -> None:
        """`OSError` if the port is taken."""
        self._family = socket.AF_INET6 if ":" in host else socket.AF_INET
        if port:
            # Sockets that share a port do not notice each other, so that another fake is looked for without
            # sharing.
            with socket.socket(self._family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        # Bound, but not listening: the port stays ours while connections are refused.
        self._reserved = self._bound(host, port)
        self.address: Address = (host, self._reserved.getsockname()[1])
        self._listener: socket.socket | None = None
        self._connections: dict[Address, _Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = 0
        """How often, which tells a connection that was accepted before from one after."""

    @property
    def url(self) -> str:
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def open(self, server: Address) -> None:
        listener, closed, loop = self._bound(*self.address), self._closed, asyncio.get_running_loop()
        listener.settimeout(0)
        listener.listen(BACKLOG)

        def accept() -> None:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return  # the client has left already
            task = loop.create_task(self._serve(accepted, server, closed))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        loop.add_reader(listener, accept)
        self._listener = listener

    def close(self, *, spare: Collection[Address] = ()) -> None:
        """Refuse new connections, and cut those that are open, but for the ones to spare."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
            self._closed += 1
        for address in set(self._connections) - set(spare):
            self._connections[address].cut()

    def cut(self, client: Address) -> None:
        """End a connection before another byte is sent."""
        if client in self._connections:
            self._connections[client].cut()

    def cut_in_body(self, client: Address, body_bytes: int) -> None:
        """End a connection after the head of its next response and so many bytes of its body."""
        if client in self._connections:
            self._connections[client].body_bytes = body_bytes

    async def drain(self, seconds: float) -> None:
        """Wait until the open connections have ended by themselves, but not longer than that."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def release(self) -> None:
        """The end for good: the port is free again."""
        self.close()
        self._reserved.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, accepted: socket.socket, server: Address, closed: int) -> None:
        reader, writer = await asyncio.open_connection(sock=accepted, limit=PIECE)
        server_reader, server_writer = await asyncio.open_connection(*server, limit=PIECE)
        address: Address = server_writer.get_extra_info("sockname")
        connection = self._connections[address] = _Connection(writer, server_writer)
        if self._closed != closed:
            connection.cut()
        requests = asyncio.ensure_future(_pass_on(reader, server_writer))
        try:
            await _pass_back(connection, server_reader)
        finally:
            requests.cancel()
            server_writer.transport.abort()
            writer.close()
            # A client that does not read may keep it open; it can still be cut.
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            if self._connections.get(address) is connection:  # another may have got the same port meanwhile
                del self._connections[address]

    def _bound(self, host: str, port: int) -> socket.socket:
        # With the protocol named, or asyncio would not switch off Nagle's algorithm, which costs 40 ms an answer.
        bound = socket.socket(self._family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            bound.bind((host, port))
        except OSError:
            bound.close()
            raise
        return bound


async def _pass_on(reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(PIECE):
            server.write(data)
            await server.drain()
    server.close()


async def _pass_back(connection: _Connection, reader: asyncio.StreamReader) -> None:
    """Until either side ends, or as far as the connection is meant to get."""
    with contextlib.suppress(OSError):
        while data := await reader.read(PIECE):
            if connection.body_bytes is None:
                connection.client.write(data)
                await connection.client.drain()
                continue
            connection.withheld += data
            head, end, body = connection.withheld.partition(END_OF_HEAD)
            if end and len(body) >= connection.body_bytes:
                connection.client.write(head + end + body[: connection.body_bytes])
                return
