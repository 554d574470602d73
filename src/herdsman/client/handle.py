"""One job, as the program sees it that submitted it: wait for its end, read its result, follow its logs."""

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from herdsman.client import calls
from herdsman.client.call import onward
from herdsman.client.transport import Awaited, Blocking, Seconds, Transport, iteration, operation, span
from herdsman.errors import HerdsmanError
from herdsman.jobs.wire import AttemptOut, EventOut, JobDetail, RetryIn
from herdsman.states import JOB, JobStatus

SHORTEST_PAUSE = timedelta(milliseconds=50)
LONGEST_PAUSE = timedelta(seconds=1)
GROWTH = 1.5
KEEP = object()
"""Says that a job keeps the payload it has, since None is a payload too."""


class JobFailed(HerdsmanError):
    """The job will not be tried again: its result does not exist, and waiting longer does not help."""

    def __init__(self, job_id: str, *, failure_class: str | None, error: str | None, attempts: int | None) -> None:
        tried = "" if attempts is None else f" after {attempts} attempt{'' if attempts == 1 else 's'}"
        super().__init__(f"job {job_id} failed{tried} ({failure_class or 'unknown'}): {error or 'no error was kept'}")
        self.job_id = job_id
        self.failure_class = failure_class
        self.error = error
        self.attempts = attempts


class JobCancelled(HerdsmanError):
    """Somebody cancelled the job."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} was cancelled")
        self.job_id = job_id


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    claim_token: int
    """Which attempt wrote it."""
    number: int
    ts: datetime
    text: str

    def __str__(self) -> str:
        return self.text


class _Handle:
    """Holds nothing but the id: what it tells is asked of the server each time."""

    def __init__(self, transport: Transport, job_id: str, *, created: bool | None = None) -> None:
        self._transport = transport
        self.id = job_id
        self.created = created
        """False when the same job had been submitted before; None when this handle submitted nothing."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    @operation
    async def status(self) -> str:
        return (await self._look()).job.status

    @operation
    async def look(self) -> JobDetail:
        """Everything there is to know about the job, except its result."""
        return (await self._look()).job

    @operation
    async def wait(self, timeout: Seconds | None = None) -> JobDetail:  # noqa: ASYNC109  (of the job, not of this call)
        """Until it has ended in whatever way; `TimeoutError` when it has not by then."""
        return await self._wait(self._deadline(timeout), timeout)

    @operation
    async def result(self, timeout: Seconds | None = None) -> Any:  # noqa: ASYNC109  (of the job, not of this call)
        """Waits for it. `JobFailed`, `JobCancelled` or `TimeoutError` say why there is none."""
        deadline = self._deadline(timeout)
        # Of many jobs most have ended before anybody asks: one request is enough for these.
        while (found := await self._transport.send(calls.result(self.id), until=deadline)) is None:
            await self._wait(deadline, timeout)
        if found.status == JobStatus.DONE:
            return found.result
        if found.status == JobStatus.CANCELLED:
            raise JobCancelled(found.job_id)
        raise JobFailed(
            found.job_id,
            failure_class=found.failure_class,
            error=found.last_error,
            attempts=(await self._look()).job.attempts,
        )

    @operation
    async def cancel(self) -> str:
        """From here on the job is never done; the answer is its status, which may take a moment to become final."""
        return (await self._transport.send(calls.cancel(self.id))).status

    @operation
    async def retry(self, payload: object = KEEP) -> None:
        """Run a job that has ended once more; with a payload, with that one."""
        body = RetryIn() if payload is KEEP else RetryIn(payload=payload, edit=True)
        await self._transport.send(calls.retry(self.id, body))

    @operation
    async def attempts(self) -> tuple[AttemptOut, ...]:
        return (await self._transport.send(calls.attempts(self.id))).attempts

    @iteration
    async def events(self) -> AsyncGenerator[EventOut]:
        """What happened to it so far."""
        async for page in self._transport.pages(lambda since: calls.history(self.id, since)):
            for event in page.events:
                yield event
            if not page.events:
                return

    @iteration
    async def logs(self, *, follow: bool = False) -> AsyncGenerator[LogLine]:
        """What the attempts wrote so far; with `follow` also what they write until the job ends."""
        since: str | None = None
        pauses = _pauses()
        while True:
            page = await self._transport.send(calls.logs(self.id, since))
            for piece in page.pieces:
                for number, text in enumerate(piece.lines, start=piece.first):
                    yield LogLine(claim_token=piece.claim_token, number=number, ts=piece.ts, text=text)
            if page.pieces and page.next is not None:
                since, pauses = onward(page.next, since), _pauses()
            elif page.ended or not follow:
                return
            else:
                await self._transport.pause(next(pauses))

    def _deadline(self, timeout: Seconds | None) -> float | None:
        return None if timeout is None else self._transport.now() + span(timeout).total_seconds()

    async def _wait(self, deadline: float | None, within: Seconds | None) -> JobDetail:
        seen: calls.Look | None = None
        for pause in _pauses():
            seen = await self._look(seen, deadline)
            if seen.job.status in JOB.terminal:
                return seen.job
            now = self._transport.now()
            if deadline is not None and now >= deadline:
                waited = span(within or 0).total_seconds()
                raise TimeoutError(
                    f"job {self.id} is still {seen.job.status} after {waited:g} s: it goes on; wait longer, or cancel it"
                )
            await self._transport.pause(pause if deadline is None else min(pause, timedelta(seconds=deadline - now)))
        raise AssertionError("the pauses never end")

    async def _look(self, before: calls.Look | None = None, deadline: float | None = None) -> calls.Look:
        mark = None if before is None else before.mark
        seen = await self._transport.send(calls.look(self.id, mark), until=deadline) or before
        assert seen is not None, "only what was seen before can be unchanged"
        return seen


class JobHandle(_Handle, Blocking):
    """A job of a `Client`. It holds nothing but the id: what it tells is asked of the server each time."""


class AsyncJobHandle(_Handle, Awaited):
    """A job of an `AsyncClient`, with the methods of `JobHandle` to be awaited."""


def _pauses() -> Iterator[timedelta]:
    """Short at first, for a job that is nearly done, then longer."""
    pause = SHORTEST_PAUSE
    while True:
        yield pause
        pause = min(LONGEST_PAUSE, pause * GROWTH)
