"""Looking at a job until it has ended, and what its end means to whoever waits."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime, timedelta

from herdsman.client import calls
from herdsman.client.errors import JobCancelled, JobFailed
from herdsman.client.transport import Transport
from herdsman.client.waiting import Seconds, pauses, span, until
from herdsman.core.errors import Unreachable
from herdsman.core.states import JOB, JobState
from herdsman.wire.jobs import EventOut, JobDetail, LogsOut, ResultOut


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    claim_token: int
    """Which attempt wrote it."""
    number: int
    ts: datetime
    text: str

    def __str__(self) -> str:
        return self.text


class Watching:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def look(self, job_id: str) -> JobDetail:
        return (await self._seen(job_id, None, None)).job

    async def wait(self, job_id: str, within: Seconds | None) -> JobDetail:
        return await self._wait(job_id, until(self._transport.now(), within), within)

    async def result(self, job_id: str, within: Seconds | None) -> object:
        end = until(self._transport.now(), within)
        # Of many jobs most have ended before anybody asks: one request is enough for these.
        while (found := await self._transport.send(calls.result(job_id), until=end)) is None:
            await self._wait(job_id, end, within)
        if found.status == JobState.DONE:
            return found.result
        raise await self._failure(found)

    async def history(self, job_id: str) -> AsyncGenerator[EventOut]:
        since: str | None = None
        while True:
            page = await self._transport.send(calls.history(job_id, since))
            for event in page.events:
                yield event
            if page.next is None or not page.events:
                return
            since = _onward(page.next, since)

    async def logs(self, job_id: str, *, follow: bool) -> AsyncGenerator[LogLine]:
        """What the attempts wrote so far; with `follow` also what they write until the job ends."""
        since: str | None = None
        rests = pauses()
        while True:
            page = await self._transport.send(calls.logs(job_id, since))
            for line in _lines(page):
                yield line
            if page.pieces and page.next is not None:
                since, rests = _onward(page.next, since), pauses()
            elif page.ended or not follow:
                return
            else:
                await self._transport.pause(next(rests))

    async def _wait(self, job_id: str, end: float | None, within: Seconds | None) -> JobDetail:
        seen: calls.Look | None = None
        for pause in pauses():
            seen = await self._seen(job_id, seen, end)
            if seen.job.status in JOB.terminal:
                return seen.job
            now = self._transport.now()
            if end is not None and now >= end:
                raise TimeoutError(
                    f"job {job_id} is still {seen.job.status} after {_shown(within)}: it goes on; wait longer, or cancel it"
                )
            await self._transport.pause(pause if end is None else min(pause, timedelta(seconds=end - now)))
        raise AssertionError("the pauses never end")

    async def _seen(self, job_id: str, before: calls.Look | None, end: float | None) -> calls.Look:
        mark = None if before is None else before.mark
        found = await self._transport.send(calls.look(job_id, mark), until=end)
        seen = found or before
        assert seen is not None
        return seen

    async def _failure(self, found: ResultOut) -> JobFailed | JobCancelled:
        if found.status == JobState.CANCELLED:
            return JobCancelled(found.job_id)
        job = await self.look(found.job_id)
        return JobFailed(
            found.job_id,
            failure_class=found.failure_class,
            error=found.last_error,
            attempts=job.attempts,
        )


def _lines(page: LogsOut) -> list[LogLine]:
    return [
        LogLine(claim_token=piece.claim_token, number=number, ts=piece.ts, text=text)
        for piece in page.pieces
        for number, text in enumerate(piece.lines, start=piece.first)
    ]


def _shown(within: Seconds | None) -> str:
    return f"{0 if within is None else span(within).total_seconds():g} s"


def _onward(following: str, before: str | None) -> str:
    if following == before:
        raise Unreachable(f"the server's pages do not end: {following!r} follows upon itself")
    return following
