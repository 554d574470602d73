"""Files that jobs made. A service wrote them, so a browser is trusted with none of them."""

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote

import structlog
from fastapi import APIRouter, Header
from fastapi.responses import Response, StreamingResponse

from herdsman.errors import NotFound, ServiceUnavailable
from herdsman.jobs.wire import sha256_of
from herdsman.results.files import content_type
from herdsman.server.errors import Refused
from herdsman.server.request import ApiRoute, Who, visible_job
from herdsman.server.state import Server

log = structlog.get_logger()
router = APIRouter(route_class=ApiRoute, tags=["jobs"])

_SHOWN = ("image/", "video/", "audio/")
_Given = Annotated[str | None, Header(max_length=1000)]
_NOT_REACHED = (
    "the place where files are kept cannot be used right now: try again; the log of the server says why"
)
_BYTES = {"content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}


@router.get(
    "/jobs/{job_id}/files/{name}",
    response_class=Response,
    responses={
        200: {"description": "The file.", **_BYTES},
        206: {"description": "The part of it that `Range` asked for.", **_BYTES},
        304: {"description": "It is as you know it."},
        416: {"description": "It has no such part."},
    },
)
def job_file(
    job_id: str,
    name: str,
    who: Who,
    server: Server,
    range: _Given = None,  # noqa: A002  (the name that the header has)
    if_range: _Given = None,
    if_none_match: _Given = None,
) -> Response:
    """One file that the job made, by the name that its result tells. `ETag` is its SHA-256, where that is known."""
    job = visible_job(server, job_id, who)
    sha256 = sha256_of(job.result, name)
    tag = None if sha256 is None else f'"{sha256}"'
    headers = _headers(name, tag)
    # A part of another file than the one that the caller has the rest of would be worse than none.
    asked = range if if_range is None or if_range == tag else None
    with _reached():
        store = server.results
        uri = None if store is None else store.find(job.job_id, name)
        if store is None or uri is None:
            raise NotFound(f"job {job.job_id!r} has no file {name[:200]!r} here")
        known = [each.strip().removeprefix("W/") for each in (if_none_match or "").split(",")]
        if tag is not None and (tag in known or "*" in known):
            return Response(status_code=304, headers=headers)
        size = store.size(uri)
        part = wanted_part(asked, size)
        if part is None:
            return _stream(200, store.part(uri, 0, size), size, headers)
        content = store.part(uri, part.first, part.length)
        return _stream(206, content, part.length, {**headers, "Content-Range": part.header(size)})


@contextmanager
def _reached() -> Generator[None]:
    """An external service is not otherwise between a caller and an answer, so no other route needs this word."""
    try:
        yield
    except ServiceUnavailable as error:
        log.warning("results.unavailable", reason=str(error))
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "results-unavailable", _NOT_REACHED) from error


def _stream(status: int, content: Iterator[bytes], size: int, headers: Mapping[str, str]) -> Response:
    return StreamingResponse(content, status, {**headers, "Content-Length": str(size)})


def _headers(name: str, tag: str | None) -> dict[str, str]:
    kind = content_type(name)
    placed = "inline" if kind.startswith(_SHOWN) else "attachment"
    return {
        "Content-Type": kind,
        "Content-Disposition": f"{placed}; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Security-Policy": "sandbox",
        "X-Content-Type-Options": "nosniff",
        "Accept-Ranges": "bytes",
        **({} if tag is None else {"ETag": tag, "Cache-Control": "private, no-cache"}),
    }


_ONE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Part:
    first: int
    length: int

    def header(self, size: int) -> str:
        return f"bytes {self.first}-{self.first + self.length - 1}/{size}"


def wanted_part(asked: str | None, size: int) -> Part | None:
    """None for the whole: a range that is not understood, or more than one, may be left aside."""
    found = _ONE.fullmatch(asked.strip()) if asked is not None else None
    if found is None or found[0] == "bytes=-":
        return None
    if found[1]:
        first, last = int(found[1]), min(int(found[2]), size - 1) if found[2] else size - 1
    else:  # `-5` means the last five
        first, last = max(0, size - int(found[2])), size - 1
    if first > last:
        if found[1] and found[2] and int(found[1]) > int(found[2]):
            return None
        raise Refused(
            HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            "no-such-range",
            f"the range {asked} was asked for, and the file has {size:,} bytes",
        )
    return Part(first, last - first + 1)
