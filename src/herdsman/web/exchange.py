"""One request and its answer, read to the end, but neither for ever nor without measure."""

from collections.abc import Generator
from contextlib import contextmanager

import httpx

from herdsman.ports import Clock

# What fails before a byte of the request has left us.
NEVER_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


class Endless(httpx.ReadError):
    """The answer goes on and on: httpx limits only the silence in between."""


class Oversized(httpx.ReadError):
    """The answer is larger than anything that we would use."""


@contextmanager
def sent(
    client: httpx.Client, request: httpx.Request, *, follow_redirects: bool = False
) -> Generator[httpx.Response]:
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
