"""One job, as a program with an event loop sees it."""

from collections.abc import AsyncIterator
from typing import Any

from herdsman.client import calls
from herdsman.client.handle import KEEP, retry_in
from herdsman.client.transport import Transport
from herdsman.client.waiting import Seconds
from herdsman.client.watching import LogLine, Watching
from herdsman.wire.jobs import AttemptOut, EventOut, JobDetail


class AsyncJobHandle:
    """The twin of `JobHandle`."""

    def __init__(self, transport: Transport, job_id: str, *, created: bool | None = None) -> None:
        self._transport = transport
        self._watching = Watching(transport)
        self.id = job_id
        self.created = created

    def __repr__(self) -> str:
        return f"AsyncJobHandle({self.id!r})"

    async def status(self) -> str:
        return (await self.look()).status

    async def look(self) -> JobDetail:
        return await self._watching.look(self.id)

    async def wait(self, timeout: Seconds | None = None) -> JobDetail:  # noqa: ASYNC109  as in `JobHandle`
        return await self._watching.wait(self.id, timeout)

    async def result(self, timeout: Seconds | None = None) -> Any:  # noqa: ASYNC109  as in `JobHandle`
        return await self._watching.result(self.id, timeout)

    async def cancel(self) -> str:
        return (await self._transport.send(calls.cancel(self.id))).status

    async def retry(self, payload: object = KEEP) -> None:
        await self._transport.send(calls.retry(self.id, retry_in(payload)))

    async def attempts(self) -> tuple[AttemptOut, ...]:
        return (await self._transport.send(calls.attempts(self.id))).attempts

    def events(self) -> AsyncIterator[EventOut]:
        return self._watching.history(self.id)

    def logs(self, *, follow: bool = False) -> AsyncIterator[LogLine]:
        return self._watching.logs(self.id, follow=follow)
