"""The server, for programs that block: hand in jobs, wait for results, look and intervene."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, Unpack

import httpx

from herdsman.client import calls
from herdsman.client.call import Call, T
from herdsman.client.connection import Blocking
from herdsman.client.downloading import Downloading
from herdsman.client.driving import iterate, run
from herdsman.client.handle import KEEP, JobHandle
from herdsman.client.lease import Lease, wanted
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

TIMEOUT = timedelta(seconds=30)
PATIENCE = Patience().most
WINDOW = 100


class Client:
    """Safe to share between threads.

    `timeout` limits every single request, `patience` how long one is repeated while the server cannot be
    reached. `agent` is for whom jobs run that name nobody else.
    """

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
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._transport = Transport(
            Blocking(clock, transport),
            url=url,
            token=token,
            timeout=span(timeout),
            patience=Patience(most=span(patience)),
            on_version=on_version,
        )
        self._submitting = Submitting(self._transport, agent=agent, new_job_id=new_job_id)
        self._listing = Listing(self._transport)
        self._agent = agent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        run(self._transport.close())

    def send(self, call: Call[T]) -> T:
        """The answer to one of the calls of `herdsman.client`: for what has no method of its own here."""
        return run(self._transport.send(call))

    def submit(self, type: str, payload: object = None, **options: Unpack[SubmitOptions]) -> JobHandle:  # noqa: A002
        """Once it returns, the job is stored. No payload means an empty object."""
        done = run(self._submitting.submit(type, payload, options))
        return JobHandle(self._transport, done.job_id, created=done.created)

    def submit_many(
        self,
        type: str,  # noqa: A002
        payloads: Iterable[object],
        **options: Unpack[SharedOptions],
    ) -> list[JobHandle]:
        """One job for each payload, in their order, many in one request."""
        done = run(self._submitting.submit_many(type, payloads, options))
        return [JobHandle(self._transport, each.job_id, created=each.created) for each in done]

    def map(
        self,
        type: str,  # noqa: A002
        payloads: Iterable[object],
        *,
        window: int = WINDOW,
        patience: Seconds | None = None,
        return_exceptions: bool = False,
        **options: Unpack[SharedOptions],
    ) -> Iterator[Any]:
        """Results in the order of the payloads, as they come; at most `window` jobs are handed in ahead.

        `patience` limits the wait for each result. A failed job raises, or is returned as its error; jobs that
        were handed in already go on in either case.
        """
        return iterate(
            self._submitting.map(
                type, payloads, options, window=window, patience=patience, keep_errors=return_exceptions
            )
        )

    def job(self, job_id: str) -> JobHandle:
        """A handle for a job that was submitted elsewhere; nothing is asked yet."""
        return JobHandle(self._transport, job_id)

    def jobs(
        self,
        *,
        status: str | Sequence[str] = (),
        type: str | None = None,  # noqa: A002
        agent: str | None = None,
        pool: str | None = None,
        tag: str | None = None,
        failure_class: str | None = None,
    ) -> Iterator[JobOut]:
        """All that match, newest first, fetched page by page."""
        return iterate(
            self._listing.jobs(
                statuses=(status,) if isinstance(status, str) else tuple(status),
                kind=type,
                agent=agent,
                pool=pool,
                tag=tag,
                failure_class=failure_class,
            )
        )

    def cancel(self, job_id: str) -> str:
        return self.job(job_id).cancel()

    def retry(self, job_id: str, payload: object = KEEP) -> JobHandle:
        handle = self.job(job_id)
        handle.retry(payload)
        return handle

    def logs(self, job_id: str, *, follow: bool = False) -> Iterator[LogLine]:
        return self.job(job_id).logs(follow=follow)

    def download(self, job_id: str, name: str, to: Path) -> Path:
        """A file that the job made, by the name that its result tells; where it is now.

        `to` is the file, or a directory for it. What was there is replaced, once all has arrived and its SHA-256 is
        the one that the result tells.
        """
        return run(Downloading(self._transport).download(job_id, name, to))

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
    ) -> Lease:
        """Memory of a GPU for a `with` block; `LeaseDenied` when there is none within `wait`.

        In the block, `lease.check()` raises `LeaseLost` as soon as the GPU may be another's.
        """
        return Lease(
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

    def workers(self) -> Iterator[WorkerOut]:
        """All of them, newest first, with what each said of itself last."""
        return iterate(self._listing.workers())

    def events(
        self,
        *,
        since: int | None = None,
        kind: str | None = None,
        job_id: str | None = None,
        follow: bool = True,
    ) -> Iterator[EventOut]:
        """All that happens from now on, or from behind the event `since`; it ends when you stop asking.

        Without `follow`, what has happened so far.
        """
        return iterate(self._listing.events(since=since, kind=kind, job_id=job_id, follow=follow))

    def overview(self) -> OverviewOut:
        """Everything at a glance: queues, workers, money, the latest decisions, the last hour."""
        return run(self._transport.send(calls.overview()))

    def why(self, kind: str, id: str) -> WhyOut:  # noqa: A002
        """Why a `job`, a `worker` or a `pool` is as it is, and what would change it."""
        return run(self._transport.send(calls.why(kind, id)))

    def eta(self, job_id: str) -> EtaOut:
        """When a job is likely to start and to end, from how long others took."""
        return run(self._transport.send(calls.eta(job_id)))

    def decisions(
        self, *, after: str | None = None, limit: int = 50, pool: str | None = None, acted: bool = False
    ) -> DecisionsOut:
        """What the control loop decided, newest cycle first; one page, and `next` for the one that follows."""
        return run(self._transport.send(calls.decisions(after, limit, pool, acted=acted)))

    def failures(self, *, since_hours: int = 24) -> FailuresOut:
        """Jobs that failed, in groups of the same cause."""
        return run(self._transport.send(calls.failures(since_hours)))

    def cost(self, *, days: int = 7) -> CostOut:
        """What the fleet cost in so many days, today included."""
        return run(self._transport.send(calls.cost(days)))
