"""HTTP to others: who may be reached, and one exchange within limits.

HTTP to addresses that somebody else wrote: only what is public can be reached, and what was allowed by name.

A name is resolved once, the address is judged, and the connection goes to exactly that address: a name that means
something else a moment later changes nothing. TLS still verifies the name. Redirects pass the same gate.
"""

import socket
import ssl
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx

from herdsman.errors import Forbidden, InvalidSettings
from herdsman.ports import Clock

MOST_REDIRECTS = 5

# Public by the books, and yet no place for a job: address translation, documentation, and the inside of clouds.
_NOT_FOR_US = tuple(
    ip_network(each)
    for each in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "2001::/23", "2002::/16", "3fff::/20")
)
_UNICAST = ip_network("2000::/3")
_NAT64 = ip_network("64:ff9b::/96")

# What may follow a redirect to another place; keys and cookies stay behind.
_HARMLESS = frozenset(
    {"accept", "accept-encoding", "connection", "host", "range", "user-agent"}
    | {"content-length", "content-type", "transfer-encoding"}
)
_FIRST_ORIGIN = "herdsman.first_origin"
# What fails before a byte of the request has left us.
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)


def guarded_client(
    allow: Sequence[str] = (),
    *,
    timeout: float = 30.0,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> httpx.Client:
    """A client that reaches public addresses, and the hosts in `allow` (`host` or `host:port`) wherever they are.

    Anything else raises `Forbidden`. `headers` go to the first host only, not where it redirects to.
    """
    return httpx.Client(
        transport=_Transport(Gate(allow), tls or httpx.create_ssl_context()),
        timeout=timeout,
        headers=headers,
        follow_redirects=True,
        max_redirects=MOST_REDIRECTS,
        trust_env=False,
        event_hooks={"request": [_leave_secrets_behind]},
    )


class Gate:
    """Says which addresses may be connected to."""

    def __init__(self, allow: Sequence[str] = ()) -> None:
        self._allow = frozenset(_read_allowed(each) for each in allow)

    def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """Where to connect to, in this order; `Forbidden` where one of them is not for us."""
        try:
            resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"the name {host} is not known: {error}") from error
        found = tuple(dict.fromkeys(str(each[4][0]) for each in resolved))
        if not self.allows(host, port):
            for address in found:
                if (reason := refusal(address)) is not None:
                    where = host if address == host else f"{host} ({address})"
                    raise Forbidden(
                        f"{where} must not be reached: {reason}; if that is meant, allow {host}:{port} by name"
                    )
        return found

    def allows(self, host: str, port: int) -> bool:
        name = _plain(host)
        return (name, None) in self._allow or (name, port) in self._allow


def refusal(address: str) -> str | None:
    """Why an address is not for us; None when it is a public one."""
    inner = ip_address(address)
    # The IPv4 address that it stands for, where the network would go there.
    if isinstance(inner, IPv6Address):
        inner = IPv4Address(int(inner) & 0xFFFFFFFF) if inner in _NAT64 else inner.ipv4_mapped or inner
    if inner.is_loopback or inner.is_unspecified:
        return "it is this machine itself"
    if inner.is_link_local:
        return "it is a link-local address, where clouds keep their metadata"
    if not inner.is_global or inner.is_multicast or inner.is_reserved:
        return "it is not a public address"
    if isinstance(inner, IPv6Address) and inner not in _UNICAST:
        return "it is not a public address"
    if any(inner.version == net.version and inner in net for net in _NOT_FOR_US):
        return "it is an address with a special use"
    return None


def _read_allowed(entry: str) -> tuple[str, int | None]:
    try:
        return _plain(str(ip_address(entry))), None
    except ValueError:
        pass
    try:
        parts = urlsplit(f"//{entry}")
        name, port = parts.hostname, parts.port
    except ValueError:
        name, port = None, None
    if not name or any(each in entry for each in "/?#@ "):
        raise InvalidSettings(f"{entry!r} is no host; write a host as NAME or NAME:PORT")
    return _plain(name), port


def _plain(host: str) -> str:
    """One way to write it, so that two can be compared."""
    name = host.lower().rstrip(".")
    try:
        return str(ip_address(name))
    except ValueError:
        return name if name.isascii() else httpx.URL(scheme="http", host=name).raw_host.decode("ascii")


class _Backend(httpcore.NetworkBackend):
    """Opens connections for httpcore, to addresses that the gate lets through."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        until = None if timeout is None else time.monotonic() + timeout
        failure: Exception = httpcore.ConnectError(f"the name {host} has no address")
        for address in self._gate.addresses(host, port):
            left = None if until is None else max(0.05, until - time.monotonic())
            try:
                return self._plain.connect_tcp(address, port, left, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


class _Transport(httpx.HTTPTransport):
    """That of httpx over a pool of our own, since only a pool can be told how to connect."""

    def __init__(self, gate: Gate, tls: ssl.SSLContext) -> None:
        super().__init__(verify=tls, trust_env=False)
        assert isinstance(self._pool, httpcore.ConnectionPool), "this httpx would connect past the gate"
        self._pool = httpcore.ConnectionPool(ssl_context=tls, network_backend=_Backend(gate))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        if url.scheme not in {"http", "https"} or not url.host:
            shown = str(url.copy_with(query=None, fragment=None, userinfo=b""))[:200]
            raise Forbidden(f"{url.scheme or 'no scheme'!r} in {shown} must not be used; write http or https")
        if url.userinfo:
            raise Forbidden(f"the URL of {url.host} holds a user or a password; put secrets into a header")
        return super().handle_request(request)


def _leave_secrets_behind(request: httpx.Request) -> None:
    """httpx carries a request's extensions along when it follows a redirect, and most of its headers."""
    origin = (request.url.scheme, request.url.host, request.url.port)
    if request.extensions.setdefault(_FIRST_ORIGIN, origin) != origin:
        for name in [each for each in request.headers if each not in _HARMLESS]:
            del request.headers[name]


class Endless(httpx.ReadError):
    """The answer goes on and on: httpx limits only the silence in between."""


class Oversized(httpx.ReadError):
    """The answer is larger than anything that we would use."""


@contextmanager
def sent(client: httpx.Client, request: httpx.Request, *, follow_redirects: bool = False) -> Generator[httpx.Response]:
    response = client.send(request, stream=True, follow_redirects=follow_redirects)
    try:
        yield response
    finally:
        response.close()


def whole(response: httpx.Response, clock: Clock, *, seconds: float, largest: int) -> bytes:
    """The body, where it comes within so many seconds and bytes."""
    deadline = clock.monotonic() + seconds
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > largest:
            raise Oversized(f"the answer goes on after {len(body)} bytes")
        if clock.monotonic() > deadline:
            raise Endless(f"the answer goes on after {seconds:g} seconds")
    return bytes(body)
