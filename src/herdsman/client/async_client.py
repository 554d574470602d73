"""The server, for programs with an event loop."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

import httpx

from herdsman.client import calls
from herdsman.client.async_handle import AsyncJobHandle
from herdsman.client.async_lease import AsyncLease
from herdsman.client.call import Call, T
from herdsman.client.client import PATIENCE, TIMEOUT, WINDOW
from herdsman.client.connection import Waiting
from herdsman.client.downloading import Downloading
from herdsman.client.handle import KEEP
from herdsman.client.lease import wanted
from herdsman.client.listing import Listing
from herdsman.client.options import SharedOptions, SubmitOptions
from herdsman.client.retries import Patience
from herdsman.client.submitting import Submitting
from herdsman.client.transport import Transport
from herdsman.client.waiting import Seconds, span
from herdsman.client.watching import LogLine
from herdsman.ports import Clock
from herdsman.wire.dashboard import CostOut, DecisionsOut, EtaOut, FailuresOut, OverviewOut, WhyOut
from herdsman.wire.ids import new_job_id, new_lease_token
from herdsman.wire.jobs import EventOut, JobOut
from herdsman.wire.workers import WorkerOut


class AsyncClient:
    """The twin of `Client`; its methods do the same, and are explained there."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: Seconds = TIMEOUT,
        patience: Seconds = PATIENCE,
        agent: str | None = None,
        on_version: Callable[[str], None] | None = None,
        clock: Clock | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._transport = Transport(
            Waiting(clock, transport),
            url=url,
            token=token,
            timeout=span(timeout),
            patience=Patience(most=span(patience)),
            on_version=on_version,
        )
        self._submitting = Submitting(self._transport, agent=agent, new_job_id=new_job_id)
        self._listing = Listing(self._transport)
        self._agent = agent

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    async def send(self, call: Call[T]) -> T:
        return await self._transport.send(call)

    async def submit(
        self,
        type: str,  # noqa: A002
        payload: object = None,
        **options: Unpack[SubmitOptions],
    ) -> AsyncJobHandle:
        done = await self._submitting.submit(type, payload, options)
        return AsyncJobHandle(self._transport, done.job_id, created=done.created)

    async def submit_many(
        self,
        type: str,  # noqa: A002
        payloads: Iterable[object],
        **options: Unpack[SharedOptions],
    ) -> list[AsyncJobHandle]:
        done = await self._submitting.submit_many(type, payloads, options)
        return [AsyncJobHandle(self._transport, each.job_id, created=each.created) for each in done]

    def map(
        self,
        type: str,  # noqa: A002
        payloads: Iterable[object],
        *,
        window: int = WINDOW,
        patience: Seconds | None = None,
        return_exceptions: bool = False,
        **options: Unpack[SharedOptions],
    ) -> AsyncIterator[Any]:
        return self._submitting.map(
            type, payloads, options, window=window, patience=patience, keep_errors=return_exceptions
        )

    def job(self, job_id: str) -> AsyncJobHandle:
        return AsyncJobHandle(self._transport, job_id)

    def jobs(
        self,
        *,
        status: str | Sequence[str] = (),
        type: str | None = None,  # noqa: A002
        agent: str | None = None,
        pool: str | None = None,
        tag: str | None = None,
        failure_class: str | None = None,
    ) -> AsyncIterator[JobOut]:
        return self._listing.jobs(
            statuses=(status,) if isinstance(status, str) else tuple(status),
            kind=type,
            agent=agent,
            pool=pool,
            tag=tag,
            failure_class=failure_class,
        )

    async def cancel(self, job_id: str) -> str:
        return await self.job(job_id).cancel()

    async def retry(self, job_id: str, payload: object = KEEP) -> AsyncJobHandle:
        handle = self.job(job_id)
        await handle.retry(payload)
        return handle

    def logs(self, job_id: str, *, follow: bool = False) -> AsyncIterator[LogLine]:
        return self.job(job_id).logs(follow=follow)

    async def download(self, job_id: str, name: str, to: Path) -> Path:
        return await Downloading(self._transport).download(job_id, name, to)

    def lease(
        self,
        *,
        memory_mb: int,
        ttl: Seconds | None = None,
        wait: Seconds = 0,
        exclusive: bool = False,
        allow_cpu: bool = False,
        node: str | None = None,
        gpu_index: int | None = None,
        agent: str | None = None,
        metadata: dict[str, object] | None = None,
    ) -> AsyncLease:
        """For an `async with` block."""
        return AsyncLease(
            self._transport,
            wanted(
                memory_mb=memory_mb,
                ttl=ttl,
                wait=wait,
                exclusive=exclusive,
                allow_cpu=allow_cpu,
                node=node,
                gpu_index=gpu_index,
                agent=agent or self._agent,
                metadata=metadata,
                token=new_lease_token(),
            ),
        )

    def workers(self) -> AsyncIterator[WorkerOut]:
        return self._listing.workers()

    def events(
        self,
        *,
        since: int | None = None,
        kind: str | None = None,
        job_id: str | None = None,
        follow: bool = True,
    ) -> AsyncIterator[EventOut]:
        return self._listing.events(since=since, kind=kind, job_id=job_id, follow=follow)

    async def overview(self) -> OverviewOut:
        return await self._transport.send(calls.overview())

    async def why(self, kind: str, id: str) -> WhyOut:  # noqa: A002
        return await self._transport.send(calls.why(kind, id))

    async def eta(self, job_id: str) -> EtaOut:
        return await self._transport.send(calls.eta(job_id))

    async def decisions(
        self, *, after: str | None = None, limit: int = 50, pool: str | None = None, acted: bool = False
    ) -> DecisionsOut:
        return await self._transport.send(calls.decisions(after, limit, pool, acted=acted))

    async def failures(self, *, since_hours: int = 24) -> FailuresOut:
        return await self._transport.send(calls.failures(since_hours))

    async def cost(self, *, days: int = 7) -> CostOut:
        return await self._transport.send(calls.cost(days))
