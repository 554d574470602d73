"""The server, for programs: submit jobs, wait for results, look and intervene.

Every operation is written once, in `_Client`; `Client` offers it to programs that block, `AsyncClient` to programs with
an event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypedDict, TypeVar, Unpack, cast

import httpx

from herdsman.client import calls
from herdsman.client import transport as wire
from herdsman.client.call import Call, batches, built, encoded, weight
from herdsman.client.event_streams import download, read_events
from herdsman.client.handle import KEEP, AsyncJobHandle, JobCancelled, JobFailed, JobHandle, LogLine
from herdsman.client.lease import AsyncLease, Lease
from herdsman.errors import InvalidRequest
from herdsman.json_text import encode
from herdsman.wire import new_job_id, new_lease_token

if TYPE_CHECKING:  # calls loads what a request needs
    from herdsman.explain.wire import EtaOut, WhyOut
    from herdsman.fleet.wire import CostOut, DecisionsOut, OverviewOut, WorkerOut
    from herdsman.jobs.wire import EventOut, FailuresOut, JobIn, JobOut, SubmittedOut
    from herdsman.ports import Clock

TIMEOUT = timedelta(seconds=30)
PATIENCE = wire.Patience().most
WINDOW = 100
WIDEST = 10_000
PAGE = 200
MOST_JOBS = 1000
MOST_BYTES = 8 * 1024 * 1024
LARGEST_PAYLOAD = 16 * 1024 * 1024
"""The server has a limit of its own, which may be lower."""
_SPANS = ("delay", "timeout", "retry_base", "retry_cap", "max_defer")

T = TypeVar("T")
X = TypeVar("X")
"""What httpx sends requests through."""
H = TypeVar("H", JobHandle, AsyncJobHandle)
L = TypeVar("L", Lease, AsyncLease)


class SharedOptions(TypedDict, total=False):
    """Those that many jobs may have in common. A number stands for seconds."""

    agent: str
    pool: str
    priority: int
    tags: Sequence[str]
    run_at: datetime
    delay: wire.Seconds
    timeout: wire.Seconds
    max_attempts: int
    retry_base: wire.Seconds
    retry_cap: wire.Seconds
    model: str
    gpu_memory_mb: int
    concurrency_key: str
    allow_cpu: bool
    max_defer: wire.Seconds


class SubmitOptions(SharedOptions, total=False):
    job_id: str
    idempotency_key: str


class _Client(Generic[H, L, X]):
    _handle: type[H]
    _lease: type[L]
    _connect: Callable[[str, Clock | None, X | None], wire.Connection]

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: wire.Seconds = TIMEOUT,
        patience: wire.Seconds = PATIENCE,
        agent: str | None = None,
        on_version: Callable[[str], None] | None = None,
        clock: Clock | None = None,
        transport: X | None = None,
    ) -> None:
        self._transport = wire.Transport(
            self._connect(url, clock, transport),
            url=url,
            token=token,
            timeout=wire.span(timeout),
            patience=wire.Patience(most=wire.span(patience)),
            on_version=on_version,
        )
        self._agent = agent

    @wire.operation
    async def close(self) -> None:
        await self._transport.close()

    @wire.operation
    async def submit(self, type: str, payload: object = None, **options: Unpack[SubmitOptions]) -> H:  # noqa: A002
        """Once it returns, the job is stored. No payload means an empty object."""
        job = job_in(type, payload, options, job_id=new_job_id(), agent=self._agent)
        done = await self._transport.send(calls.submit(job))
        return self._handle(self._transport, done.job_id, created=done.created)

    @wire.operation
    async def submit_many(
        self,
        type: str,  # noqa: A002
        payloads: Iterable[object],
        **options: Unpack[SharedOptions],
    ) -> list[H]:
        """One job for each payload, in their order, many in one request.

        Requests are of a bounded size. Each of them is taken as a whole or refused as a whole.
        """
        done = await self._submit_many(type, payloads, options)
        return [self._handle(self._transport, each.job_id, created=each.created) for each in done]

    @wire.iteration
    async def map(
        self,
        type: str,  # noqa: A002
        payloads: Iterable[object],
        *,
        window: int = WINDOW,
        patience: wire.Seconds | None = None,
        return_exceptions: bool = False,
        **options: Unpack[SharedOptions],
    ) -> AsyncGenerator[Any]:
        """Results in the order of the payloads, as they come; at most `window` jobs are submitted ahead.

        `patience` limits the wait for each result. A failed job raises, or is returned as its error; jobs that
        were submitted already go on in either case.
        """
        if not 1 <= window <= WIDEST:
            raise InvalidRequest(f"window is {window}: it must be from 1 to {WIDEST}")
        source, waiting = iter(payloads), deque[str]()
        while True:
            if len(waiting) <= window // 2:
                more = await self._submit_many(type, list(islice(source, window - len(waiting))), options)
                waiting.extend(each.job_id for each in more)
            if not waiting:
                return
            try:
                result = await AsyncJobHandle(self._transport, waiting.popleft()).result(patience)
            except (JobFailed, JobCancelled) as error:
                if not return_exceptions:
                    raise
                result = error
            yield result

    def job(self, job_id: str) -> H:
        """A handle for a job that was submitted elsewhere; nothing is asked yet."""
        return self._handle(self._transport, job_id)

    @wire.iteration
    async def jobs(
        self,
        *,
        status: str | Sequence[str] = (),
        type: str | None = None,  # noqa: A002
        agent: str | None = None,
        pool: str | None = None,
        tag: str | None = None,
        failure_class: str | None = None,
    ) -> AsyncGenerator[JobOut]:
        """All that match, newest first, fetched page by page."""
        matching = partial(
            calls.jobs,
            statuses=(status,) if isinstance(status, str) else tuple(status),
            kind=type,
            agent=agent,
            pool=pool,
            tag=tag,
            failure_class=failure_class,
            limit=PAGE,
        )
        async for page in self._transport.pages(lambda after: matching(after=after)):
            for job in page.jobs:
                yield job

    @wire.operation
    async def cancel(self, job_id: str) -> str:
        """From here on the job is never done; the answer is its status, which may take a moment to become final."""
        return await AsyncJobHandle(self._transport, job_id).cancel()

    @wire.operation
    async def retry(self, job_id: str, payload: object = KEEP) -> H:
        """Run a job that has ended once more; with a payload, with that one."""
        await AsyncJobHandle(self._transport, job_id).retry(payload)
        return self._handle(self._transport, job_id)

    @wire.iteration
    def logs(self, job_id: str, *, follow: bool = False) -> AsyncGenerator[LogLine]:
        """What the attempts of a job wrote so far; with `follow` also what they write until it ends."""
        return AsyncJobHandle(self._transport, job_id).logs(follow=follow)

    @wire.operation
    async def download(self, job_id: str, name: str, to: Path) -> Path:
        """A file that the job made, by the name that its result tells; where it is now.

        `to` is the file, or a directory for it. What was there is replaced, once all has arrived and its SHA-256 is
        the one that the result tells.
        """
        return await download(self._transport, job_id, name, to)

    def lease(
        self,
        *,
        memory_mb: int,
        ttl: wire.Seconds | None = None,
        wait: wire.Seconds = 0,
        exclusive: bool = False,
        allow_cpu: bool = False,
        node: str | None = None,
        gpu_index: int | None = None,
        agent: str | None = None,
        metadata: dict[str, object] | None = None,
    ) -> L:
        """Memory of a GPU for a `with` block; `LeaseDenied` when there is none within `wait`.

        In the block, `lease.check()` raises `LeaseLost` as soon as the GPU may be another's.
        """
        body = built(
            lambda: calls.leases_wire.LeaseIn(
                agent=agent or self._agent,
                min_memory_mb=memory_mb,
                ttl_seconds=None if ttl is None else wire.span(ttl).total_seconds(),
                exclusive=exclusive,
                allow_cpu=allow_cpu,
                node=node,
                gpu_index=gpu_index,
                token=new_lease_token(),
                metadata=metadata or {},
            )
        )
        return self._lease(self._transport, body, wire.span(wait))

    @wire.iteration
    async def workers(self) -> AsyncGenerator[WorkerOut]:
        """All of them, newest first, with what each said of itself last."""
        async for page in self._transport.pages(lambda after: calls.workers(after, PAGE)):
            for worker in page.workers:
                yield worker

    @wire.iteration
    def events(
        self, *, since: int | None = None, kind: str | None = None, job_id: str | None = None, follow: bool = True
    ) -> AsyncGenerator[EventOut]:
        """All that happens from now on, or from behind the event `since`; it ends when you stop asking.

        Without `follow`, what has happened so far.
        """
        return read_events(self._transport, since=since, kind=kind, job_id=job_id, follow=follow)

    @wire.operation
    async def overview(self) -> OverviewOut:
        """Everything on one page: queues, workers, money, the latest decisions, the last hour."""
        return await self._transport.send(calls.overview())

    @wire.operation
    async def why(self, kind: str, id: str) -> WhyOut:  # noqa: A002
        """Why a `job`, a `worker` or a `pool` is as it is, and what would change it."""
        return await self._transport.send(calls.why(kind, id))

    @wire.operation
    async def eta(self, job_id: str) -> EtaOut:
        """When a job is likely to start and to end, from how long others took."""
        return await self._transport.send(calls.eta(job_id))

    @wire.operation
    async def decisions(
        self, *, after: str | None = None, limit: int = 50, pool: str | None = None, acted: bool = False
    ) -> DecisionsOut:
        """What the control loop decided, newest cycle first; one page, and `next` for the one that follows."""
        return await self._transport.send(calls.decisions(after, limit, pool, acted=acted))

    @wire.operation
    async def failures(self, *, since_hours: int = 24) -> FailuresOut:
        """Jobs that failed, in groups of the same cause."""
        return await self._transport.send(calls.failures(since_hours))

    @wire.operation
    async def cost(self, *, days: int = 7) -> CostOut:
        """What the fleet cost in so many days, today included."""
        return await self._transport.send(calls.cost(days))

    async def _submit_many(self, kind: str, payloads: Iterable[object], options: SharedOptions) -> list[SubmittedOut]:
        # A name that only one job may have would make the others the same job, or refuse them.
        for name in ("job_id", "idempotency_key"):
            if name in options:
                raise InvalidRequest(f"{name} was given for many jobs at once: submit such a job by itself")
        done: list[SubmittedOut] = []
        each = SubmitOptions(**options)
        jobs = (job_in(kind, payload, each, job_id=new_job_id(), agent=self._agent) for payload in payloads)
        weighed = ((job, weight(encoded(job))) for job in jobs)
        for batch in batches(weighed, most=MOST_JOBS, largest=MOST_BYTES):
            done.extend((await self._transport.send(calls.submit_many(batch))).jobs)
        return done


class Client(_Client[JobHandle, Lease, httpx.BaseTransport], wire.Blocking):
    """Safe to share between threads.

    `timeout` limits every single request, `patience` how long one is repeated while the server cannot be
    reached. `agent` is for whom jobs run that name nobody else.
    """

    _handle = JobHandle
    _lease = Lease
    _connect = wire.BlockingConnection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, call: Call[T]) -> T:
        """The answer to one of the calls of `herdsman.client`: for what has no method of its own here."""
        return wire.run(self._transport.send(call))


class AsyncClient(_Client[AsyncJobHandle, AsyncLease, httpx.AsyncBaseTransport], wire.Awaited):
    """`Client` for programs with an event loop: its methods are awaited, a lease is for an `async with` block."""

    _handle = AsyncJobHandle
    _lease = AsyncLease
    _connect = wire.AsyncConnection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, call: Call[T]) -> T:
        """The answer to one of the calls of `herdsman.client`: for what has no method of its own here."""
        return await self._transport.send(call)


def job_in(kind: str, payload: object, options: SubmitOptions, *, job_id: str, agent: str | None) -> JobIn:
    """`job_id` is for a job that was given none: sent again after a lost answer, it is the same job."""
    payload = {} if payload is None else payload
    encode(payload, what="payload", limit=LARGEST_PAYLOAD)
    fields: dict[str, Any] = dict(options)
    for name in _SPANS:
        if name in fields:
            value = fields.pop(name)
            fields[f"{name}_seconds"] = value.total_seconds() if isinstance(value, timedelta) else value
    if "tags" in fields:
        tags = fields["tags"]
        if isinstance(tags, str):
            raise InvalidRequest(f"tags is the text {tags!r}: give a list of texts")
        fields["tags"] = tuple(cast("Sequence[str]", tags))
    # A key already tells the server which job it is; an id made for this try would be another body's name.
    if "idempotency_key" not in fields:
        fields.setdefault("job_id", job_id)
    if agent is not None:
        fields.setdefault("agent", agent)
    return built(lambda: calls.jobs_wire.JobIn(type=kind, payload=payload, **fields))
