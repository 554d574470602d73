"""Answers of any size: server-sent events, resumed after a break, and files of jobs, whole or not at all."""

import hashlib
import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pydantic import ValidationError

from herdsman.client import calls
from herdsman.client.transport import StreamOver, Transport
from herdsman.errors import HerdsmanError, InvalidRequest, ServiceUnavailable, StoreUnavailable, TooMany, Unreachable
from herdsman.jobs.wire import EventOut, sha256_of
from herdsman.wire import VERSION_HEADER

LARGEST_EVENT = 1024 * 1024
SILENCE = timedelta(seconds=45)
"""The server says something every 15 s, if only that it is there."""
FILE_SILENCE = timedelta(seconds=60)
"""No byte for this long, and the connection counts as broken."""


async def read_events(
    transport: Transport, *, since: int | None, kind: str | None, job_id: str | None, follow: bool = True
) -> AsyncGenerator[EventOut]:
    """Without end and without gaps: a broken stream is taken up again behind the last event that arrived.

    Without `follow`, what has happened so far.
    """
    last: str | None = None
    breaks, began = 0, 0.0
    while True:
        start = since if last is None else None
        call = calls.events(since=start, last=last, kind=kind, job_id=job_id, follow=follow)
        stream = transport.stream(
            call, silence=SILENCE, ours=lambda headers: headers.get("content-type", "").startswith("text/event-stream")
        )
        parser = Parser()
        failed: HerdsmanError
        try:
            async with aclosing(stream) as chunks:
                async for chunk in chunks:
                    for event in parser.feed(chunk):
                        last, breaks = event.id or last, 0
                        if event.data:
                            yield EventOut.model_validate_json(event.data)
        except StreamOver:
            return
        except TooLong:
            failed = Unreachable(f"an event of more than {LARGEST_EVENT:,} bytes is none of Herdsman's: check the URL")
        except ValidationError:
            failed = Unreachable("an event on the stream is none of Herdsman's: check the URL")
        except (Unreachable, StoreUnavailable, TooMany) as error:
            failed = error
        else:
            if not follow:
                return
            failed = Unreachable("the stream of events ended at once, again and again")
        began = transport.now() if breaks == 0 else began
        breaks += 1
        await transport.rest(failed, tries=breaks, began=began)


class TooLong(Exception):
    """One event goes on and on: this is no stream of events."""


@dataclass(frozen=True, slots=True)
class Event:
    id: str | None
    data: str
    """Empty when only the id moved on: there was something, but nothing that was asked for."""


class Parser:
    def __init__(self) -> None:
        self._begun: list[bytes] = []
        """Pieces of a line whose end has not come; put together once, however small they are."""
        self._id: str | None = None
        self._data: list[str] = []
        self._data_size = self._size = 0
        self._moved = False

    def feed(self, chunk: bytes) -> Iterator[Event]:
        first, *others = chunk.split(b"\n")
        self._begin(first)
        for each in others:
            line, self._begun = b"".join(self._begun), []
            event = self._take(line.removesuffix(b"\r").decode(errors="replace"))
            if event is not None:
                yield event
            self._begin(each)

    def _begin(self, part: bytes) -> None:
        self._begun.append(part)
        self._size += len(part)
        if self._size > LARGEST_EVENT:
            raise TooLong

    def _take(self, line: str) -> Event | None:
        if not line:
            event = Event(self._id, "\n".join(self._data)) if self._data or self._moved else None
            self._data, self._data_size, self._size, self._moved = [], 0, 0, False
            return event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._data_size += len(value)
        elif name == "id" and "\0" not in value:
            self._id, self._moved = value, True
        elif not name:  # a comment, sent to keep the connection alive
            self._size = self._data_size
        return None


class _Damaged(Unreachable):
    """It would be the same the next time: what breaks on the way is noticed before."""


async def download(transport: Transport, job_id: str, name: str, to: Path) -> Path:
    if not name or name.startswith(".") or "/" in name or "\\" in name:
        raise InvalidRequest(f"name is {name!r}: it must be the name of a file, without a path before it")
    target = to / name if to.is_dir() else to  # noqa: ASYNC240  (one stat)
    found = await transport.send(calls.result(job_id))
    expected = None if found is None else sha256_of(found.result, name)
    began, tries = transport.now(), 0
    while True:
        tries += 1
        try:
            return await _fetch(transport, job_id, name, target, expected)
        except _Damaged:
            raise
        except (Unreachable, StoreUnavailable, ServiceUnavailable, TooMany) as error:
            await transport.rest(error, tries=tries, began=began)


async def _fetch(transport: Transport, job_id: str, name: str, target: Path, expected: str | None) -> Path:
    """Into a file beside the target, which it replaces when it is whole; nothing is left of it otherwise."""
    part = target.parent / f".{secrets.token_hex(8)}.part"
    digest = hashlib.sha256()
    arriving = transport.stream(
        calls.file(job_id, name), silence=FILE_SILENCE, ours=lambda headers: VERSION_HEADER in headers
    )
    try:
        with part.open("xb") as file:
            async with aclosing(arriving) as chunks:
                async for chunk in chunks:
                    digest.update(chunk)
                    file.write(chunk)
        if expected not in (None, digest.hexdigest()):
            raise _Damaged(
                f"the file {name!r} of job {job_id} arrived with the SHA-256 {digest.hexdigest()}, but its result tells"
                f" {expected}: it was changed since, or damaged"
            )
        return part.replace(target)
    finally:
        part.unlink(missing_ok=True)
