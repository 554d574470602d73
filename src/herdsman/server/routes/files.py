"""Files that jobs made. A service wrote them, so a browser is trusted with none of them."""

import re
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
_NOT_REACHED = "the place where files are kept cannot be used right now: try again; the log of the server says why"
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
    sha256, kind = sha256_of(job.result, name), content_type(name)
    tag = None if sha256 is None else f'"{sha256}"'
    headers = {
        "Content-Type": kind,
        "Content-Disposition": f"{'inline' if kind.startswith(_SHOWN) else 'attachment'};"
        f" filename*=UTF-8''{quote(name, safe='')}",
        "Content-Security-Policy": "sandbox",
        "X-Content-Type-Options": "nosniff",
        "Accept-Ranges": "bytes",
        **({} if tag is None else {"ETag": tag, "Cache-Control": "private, no-cache"}),
    }
    try:
        store = server.results
        uri = None if store is None else store.find(job.job_id, name)
        if store is None or uri is None:
            raise NotFound(f"job {job.job_id!r} has no file {name[:200]!r} here")
        known = [each.strip().removeprefix("W/") for each in (if_none_match or "").split(",")]
        if tag is not None and (tag in known or "*" in known):
            return Response(status_code=304, headers=headers)
        # A part of another file than the one that the caller has the rest of would be worse than none.
        asked = range if if_range is None or if_range == tag else None
        size = store.size(uri)
        part = wanted_part(asked, size)
        first, last = part or (0, size - 1)
        if part is not None:
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        length = last - first + 1
        headers["Content-Length"] = str(length)
        return StreamingResponse(store.part(uri, first, length), 200 if part is None else 206, headers)
    except ServiceUnavailable as error:  # no other route has one between a caller and an answer
        log.warning("results.unavailable", reason=str(error))
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "results-unavailable", _NOT_REACHED) from error


_ONE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


def wanted_part(asked: str | None, size: int) -> tuple[int, int] | None:
    """The first byte and the last. None for the whole: a range that is not understood, or more than one, may be left aside."""
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
    return first, last
