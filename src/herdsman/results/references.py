"""References to files, as jobs name them: which kinds there are, and those that lead to the web."""

import re
from collections.abc import Iterator, Sequence

import httpx

from herdsman.core.errors import Forbidden, InvalidRequest, NotFound, ServiceUnavailable
from herdsman.results.limits import PIECE, Limits
from herdsman.web import guarded_client

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
KINDS = "file://, s3://, http:// or https://"
_LONGEST_SHOWN = 300
_PATIENCE_S = 30.0


def kind_of(uri: str) -> str:
    """`file`, `s3` or `http`; files inside the job itself are refused, for its row would have to hold them."""
    found = SCHEME.match(uri)
    scheme = found[1].lower() if found else ""
    if scheme == "data":
        raise InvalidRequest(
            "a file was given as a data: URI, and no job holds files: keep it in the result store or on a web"
            f" server, and give a reference to it ({KINDS})"
        )
    if scheme in ("file", "s3"):
        return scheme
    if scheme in ("http", "https"):
        return "http"
    raise InvalidRequest(
        f"{_shown(uri)} is no reference to a file: it must begin with {KINDS}; base64 is not taken"
    )


def not_ours(uri: str, place: str) -> Forbidden:
    return Forbidden(f"{_shown(uri)} must not be read: only files in the result store {place} may be")


def missing(uri: str) -> NotFound:
    return NotFound(f"there is no file {_shown(uri)}")


class Web:
    """Files of others. The first piece is the moment at which one is asked for."""

    def __init__(self, allow: Sequence[str], limits: Limits) -> None:
        self._allow = tuple(allow)
        self._limits = limits

    def read(self, uri: str) -> Iterator[bytes]:
        what = f"the file at {_place(uri)}"
        try:
            with (
                guarded_client(self._allow, timeout=_PATIENCE_S) as client,
                client.stream("GET", uri, headers={"Accept-Encoding": "identity"}) as answer,
            ):
                _check_status(what, answer.status_code)
                yield from self._limited(what, answer)
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise ServiceUnavailable(
                f"{what} could not be read: {type(error).__name__}; check that it can be reached from the worker"
            ) from error
        except httpx.InvalidURL as error:
            raise InvalidRequest(f"{_shown(_place(uri))} is no URL: {error}") from error

    def _limited(self, what: str, answer: httpx.Response) -> Iterator[bytes]:
        told = answer.headers.get("content-length", "")
        self._limits.check_file(what, int(told) if told.isdecimal() else 0)
        size = 0
        for piece in answer.iter_bytes(PIECE):
            size += len(piece)
            self._limits.check_file(what, size)
            yield piece


def _check_status(what: str, status: int) -> None:
    if status in (404, 410):
        raise NotFound(f"{what} does not exist: its server answered with {status}")
    if status in (401, 403):
        raise Forbidden(f"{what} must not be read: its server answered with {status}; use a URL that is open")
    if status != 200:
        raise ServiceUnavailable(f"{what} could not be read: its server answered with {status}")


def _place(uri: str) -> str:
    """Without what may be a key: links to private files carry it behind the question mark."""
    return re.sub(r"//[^/@]*@", "//", uri.partition("?")[0].partition("#")[0])


def _shown(uri: str) -> str:
    return repr(uri if len(uri) <= _LONGEST_SHOWN else f"{uri[:_LONGEST_SHOWN]}...")
