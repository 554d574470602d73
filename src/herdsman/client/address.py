"""Where the server is, and how a request to it looks."""

from datetime import timedelta
from typing import Any

import httpx

from herdsman import __version__
from herdsman.client.call import Call
from herdsman.core.errors import InvalidRequest


class Address:
    def __init__(self, url: str) -> None:
        self._base = _checked(url)

    def __str__(self) -> str:
        return str(self._base)

    def request(self, call: Call[Any], *, token: str | None, timeout: timedelta) -> httpx.Request:
        headers = {
            "User-Agent": f"herdsman/{__version__}",
            "Accept": "application/json, application/problem+json, text/event-stream",
            # A small answer may then not unfold into a huge one.
            "Accept-Encoding": "identity",
            **({} if token is None else {"Authorization": f"Bearer {token}"}),
            **({} if call.body is None else {"Content-Type": "application/json"}),
            **call.headers,
        }
        url = httpx.URL(f"{self._base}{call.path}", params=call.params or None)
        limits = httpx.Timeout(timeout.total_seconds()).as_dict()
        return httpx.Request(
            call.method, url, headers=headers, content=call.body, extensions={"timeout": limits}
        )


def checked_token(token: str | None) -> str | None:
    """A token with a line break in it, as a file brings one, would be a header of its own."""
    if token is None:
        return None
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidRequest("the token is empty or has characters in it that no token has: copy it again")
    return token


def _checked(url: str) -> str:
    try:
        parsed = httpx.URL(url.strip())
    except httpx.InvalidURL as error:
        raise InvalidRequest(f"the URL of the server cannot be read: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidRequest(
            f"the URL of the server is {url!r}: it must look like http://host:port or https://host"
        )
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise InvalidRequest(
            "the URL of the server may hold neither a password nor a query: pass the token apart"
        )
    return str(parsed).rstrip("/")
