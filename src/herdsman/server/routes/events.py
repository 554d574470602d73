"""Everything that happens, as it happens."""

from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from herdsman.errors import InvalidRequest
from herdsman.jobs.model import AuditEntry
from herdsman.server.event_stream import told
from herdsman.server.limits import network
from herdsman.server.request import ApiRoute, Who
from herdsman.server.state import Server
from herdsman.states import JOB

router = APIRouter(route_class=ApiRoute, tags=["events"])

Kind = Literal["job", "worker", "pool", "lease", "stream", "policy", "hold"]
_LAST = 2**63 - 1


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Server-sent events."}},
)
async def events(
    *,
    who: Who,
    request: Request,
    server: Server,
    since: Annotated[int | None, Query(ge=0, le=_LAST)] = None,
    kind: Kind | None = None,
    job_id: Annotated[str | None, Query(max_length=128)] = None,
    follow: bool = True,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> StreamingResponse:
    """From `Last-Event-ID` or `since` on; without either, from now on. With `follow=false` it ends with what has
    happened by now, and begins with the first event that is kept."""
    if last_event_id is not None:
        if not (last_event_id.isascii() and last_event_id.isdecimal() and int(last_event_id) <= _LAST):
            raise InvalidRequest(f"Last-Event-ID is {last_event_id!r}: it must be the id of an event")
        since = int(last_event_id)

    def wanted(entry: AuditEntry) -> bool:
        if job_id is not None and (entry.kind, entry.object_id) != (JOB.kind, job_id):
            return False
        return kind in (None, entry.kind)

    address = "?" if request.client is None else request.client.host
    place = ExitStack()
    place.enter_context(server.streams.admitted(who.token_id, network(address)))
    return _EventStream(told(server.streams, wanted, since, follow=follow), place)


class _EventStream(StreamingResponse):
    """Gives its place back when it ends, also when it ends before its first word."""

    def __init__(self, text: AsyncIterator[str], place: ExitStack) -> None:
        super().__init__(text, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            await super().__call__(scope, receive, send)
