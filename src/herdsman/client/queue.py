"""The work queue of a worker on another machine. A request is sent once: the worker knows when to send it again."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

import httpx

from herdsman.client import calls
from herdsman.client.call import Call, batches, weight
from herdsman.client.operation import run
from herdsman.client.transport import BlockingConnection, Patience, Transport
from herdsman.core.body import encode
from herdsman.core.errors import InvalidRequest, NotFound, StaleWrite, StoreUnavailable, Unauthenticated
from herdsman.core.model import DEFAULT_POOL, Claim, ClaimKey, WorkerId
from herdsman.core.saved import check_saved
from herdsman.core.service import ServiceMark
from herdsman.core.work import MOST_AT_ONCE, Ask, Done, Ending, Exchange, Failed, Orders, Pulse, Told
from herdsman.ports import Clock
from herdsman.wire.jobs import RegisteredOut

TIMEOUT = timedelta(seconds=10)
"""Well below the time after which a silent worker stops its own job."""
PATIENCE = Patience().most
ONCE = Patience(most=timedelta(0))
LARGEST_REPORT = 8 * 1024 * 1024
"""Half of what the server takes at once, so that there is room for the rest of the request."""

T = TypeVar("T")


class HttpQueue:
    """Safe to share between threads: each request has a connection of its own, so none waits for another."""

    def __init__(
        self,
        url: str,
        token: str,
        worker_id: WorkerId,
        *,
        timeout: timedelta = TIMEOUT,
        clock: Clock | None = None,
        transport: httpx.BaseTransport | None = None,
        on_version: Callable[[str], None] | None = None,
    ) -> None:
        self.worker_id = worker_id
        self._transport = Transport(
            BlockingConnection(clock, transport),
            url=url,
            token=token,
            timeout=timeout,
            patience=ONCE,
            on_version=on_version,
        )

    def close(self) -> None:
        run(self._transport.close())

    def claim(self, ask: Ask, wait: timedelta = timedelta(0)) -> Sequence[Claim]:
        return [each.claim() for each in self._send(calls.claim(ask, wait)).claims]

    def held(self) -> Sequence[ClaimKey]:
        return [each.key() for each in self._send(calls.held(self.worker_id)).claims]

    def start(self, keys: Sequence[ClaimKey]) -> Mapping[ClaimKey, str]:
        return self._send(calls.start(keys)).by_key()

    def beat(self, pulse: Pulse) -> Orders:
        answer = self._send(calls.beat(self.worker_id, pulse))
        if answer.token is not None:
            self._transport.renew(answer.token)
        return answer.orders()

    def finish(self, endings: Sequence[Ending], then: Ask | None = None) -> Exchange:
        """In requests that the server takes. One result that cannot be sent holds up no other."""
        fit: list[tuple[Ending, int]] = []
        told: list[Told] = []
        for ending in endings:
            try:
                fit.append((ending, _size(ending)))
            except InvalidRequest as error:
                told.append(Told(key=ending.key, refused=str(error)))
        claims: list[Claim] = []
        parts = list(batches(fit, most=MOST_AT_ONCE, largest=LARGEST_REPORT))
        for part in parts:
            answer = self._send(calls.finish(part, then if part is parts[-1] else None)).exchange()
            told.extend(answer.told)
            claims.extend(answer.claims)
        return Exchange(told=told, claims=claims)

    def get_checkpoint(self, key: ClaimKey) -> object:
        return self._send(calls.get_checkpoint(key), about=key).value

    def put_checkpoint(self, key: ClaimKey, value: object) -> None:
        encode(value, what="checkpoint", limit=LARGEST_REPORT)
        self._send(calls.put_checkpoint(key, value), about=key)

    def mark_service(self, key: ClaimKey, mark: ServiceMark) -> None:
        self._send(calls.mark_service(key, mark), about=key)

    def leave(self) -> None:
        self._send(calls.leave(self.worker_id))

    def _send(self, call: Call[T], *, about: ClaimKey | None = None) -> T:
        try:
            return run(self._transport.send(call))
        except NotFound as error:
            if about is None:
                raise
            # A job that is gone is no claim of ours any more; that says nothing about the worker.
            raise StaleWrite(f"job {about.job_id} is no longer there: {error}") from error
        except Unauthenticated as error:
            # The token dies with the worker's row, so one that is refused says the same as a row that is gone.
            raise NotFound(f"the server takes it no longer: {error}") from error


def register(
    url: str,
    bootstrap_token: str,
    worker_id: WorkerId | None = None,
    *,
    incarnation: str,
    pool: str = DEFAULT_POOL,
    instance_type: str | None = None,
    timeout: timedelta = TIMEOUT,
    patience: timedelta = PATIENCE,
    clock: Clock | None = None,
    transport: httpx.BaseTransport | None = None,
    on_version: Callable[[str], None] | None = None,
    outage: timedelta = timedelta(0),
    say: Callable[[str], None] = lambda _: None,
) -> tuple[HttpQueue, RegisteredOut]:
    """Exchange the bootstrap token for one of this worker's own. The same incarnation may ask again.

    `on_version` hears with every answer which version the server is of. A control plane that answers, and whose
    database is away, is asked for as long as `outage`.
    """
    sender = Transport(
        BlockingConnection(clock, transport),
        url=url,
        token=bootstrap_token,
        timeout=timeout,
        patience=Patience(most=patience),
        on_version=on_version,
    )
    call = calls.register(
        worker_id=worker_id, pool=pool, incarnation=incarnation, instance_type=instance_type
    )
    until = sender.now() + outage.total_seconds()
    try:
        while True:
            try:
                found = run(sender.send(call))
                break
            except StoreUnavailable as error:
                if sender.now() >= until:
                    raise
                say(f"waiting to register: {error}")
    finally:
        run(sender.close())
    named = WorkerId(found.worker_id)
    queue = HttpQueue(
        url, found.token, named, timeout=timeout, clock=clock, transport=transport, on_version=on_version
    )
    return queue, found


def _size(ending: Ending) -> int:
    match ending:
        case Done():
            check_saved(ending.saved)
            return weight(encode(ending.result, what="result", limit=LARGEST_REPORT).encode())
        case Failed():
            return len(ending.failure.error)
        case _:
            return len(ending.why)
