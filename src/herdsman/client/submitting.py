"""Handing jobs in, and getting the results of many of them in their order."""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from itertools import islice

from herdsman.client import calls
from herdsman.client.call import encoded, weight
from herdsman.client.errors import JobCancelled, JobFailed
from herdsman.client.options import SharedOptions, SubmitOptions, job_in
from herdsman.client.transport import Transport
from herdsman.client.waiting import Seconds
from herdsman.client.watching import Watching
from herdsman.core.errors import InvalidRequest
from herdsman.wire.jobs import JobIn, SubmittedOut

MOST_JOBS = 1000
MOST_BYTES = 8 * 1024 * 1024
WIDEST = 10_000


class Submitting:
    def __init__(self, transport: Transport, *, agent: str | None, new_job_id: Callable[[], str]) -> None:
        self._transport = transport
        self._agent = agent
        self._new_job_id = new_job_id
        self._watching = Watching(transport)

    async def submit(self, kind: str, payload: object, options: SubmitOptions) -> SubmittedOut:
        return await self._transport.send(calls.submit(self._job(kind, payload, options)))

    async def submit_many(
        self, kind: str, payloads: Iterable[object], options: SharedOptions
    ) -> list[SubmittedOut]:
        """In requests of a bounded size. Each of them is taken as a whole or refused as a whole."""
        shared = _shared(options)
        jobs = (self._job(kind, payload, shared) for payload in payloads)
        done: list[SubmittedOut] = []
        for part in _parts(jobs):
            done.extend((await self._transport.send(calls.submit_many(part))).jobs)
        return done

    async def map(
        self,
        kind: str,
        payloads: Iterable[object],
        options: SharedOptions,
        *,
        window: int,
        patience: Seconds | None,
        keep_errors: bool,
    ) -> AsyncGenerator[object]:
        """Results in the order of the payloads; at most `window` jobs are handed in and not yet passed on."""
        if not 1 <= window <= WIDEST:
            raise InvalidRequest(f"window is {window}: it must be from 1 to {WIDEST}")
        source, waiting = iter(payloads), deque[str]()
        while True:
            if len(waiting) <= window // 2:
                more = await self.submit_many(kind, list(islice(source, window - len(waiting))), options)
                waiting.extend(each.job_id for each in more)
            if not waiting:
                return
            yield await self._outcome(waiting.popleft(), patience, keep_errors=keep_errors)

    async def _outcome(self, job_id: str, patience: Seconds | None, *, keep_errors: bool) -> object:
        try:
            return await self._watching.result(job_id, patience)
        except (JobFailed, JobCancelled) as error:
            if keep_errors:
                return error
            raise

    def _job(self, kind: str, payload: object, options: SubmitOptions) -> JobIn:
        return job_in(kind, payload, options, job_id=self._new_job_id(), agent=self._agent)


def _shared(options: SharedOptions) -> SubmitOptions:
    """A name that only one job may have would make the others the same job, or refuse them."""
    for name in ("job_id", "idempotency_key"):
        if name in options:
            raise InvalidRequest(f"{name} was given for many jobs at once: submit such a job by itself")
    return SubmitOptions(**options)


def _parts(jobs: Iterable[JobIn]) -> Iterator[list[JobIn]]:
    part: list[JobIn] = []
    size = 0
    for job in jobs:
        more = weight(encoded(job))
        if part and (len(part) == MOST_JOBS or size + more > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(job)
        size += more
    if part:
        yield part
