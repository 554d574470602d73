"""The work queue of a worker on another machine. A request is sent once: the worker knows when to send it again."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

import httpx

from herdsman.client import work_calls
from herdsman.client.connection import Blocking
from herdsman.client.driving import run
from herdsman.client.reports import LARGEST_REPORT, split
from herdsman.client.retries import Patience
from herdsman.client.transport import Transport
from herdsman.core.body import encode
from herdsman.core.errors import NotFound, StaleWrite, StoreUnavailable, Unauthenticated
from herdsman.core.model import DEFAULT_POOL, Claim, ClaimKey, WorkerId
from herdsman.core.service import ServiceMark
from herdsman.core.work import Ask, Ending, Exchange, Orders, Pulse
from herdsman.ports import Clock
from herdsman.wire.work import RegisteredOut

TIMEOUT = timedelta(seconds=10)
"""Well below the time after which a silent worker stops its own job."""
PATIENCE = Patience().most
ONCE = Patience(most=timedelta(0))


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
            Blocking(clock, transport),
            url=url,
            token=token,
            timeout=timeout,
            patience=ONCE,
            on_version=on_version,
        )

    def close(self) -> None:
        run(self._transport.close())

    def claim(self, ask: Ask, wait: timedelta = timedelta(0)) -> Sequence[Claim]:
        with self._wanted():
            answer = run(self._transport.send(work_calls.claim(ask, wait)))
        return [each.claim() for each in answer.claims]

    def held(self) -> Sequence[ClaimKey]:
        with self._wanted():
            answer = run(self._transport.send(work_calls.held(self.worker_id)))
        return [each.key() for each in answer.claims]

    def start(self, keys: Sequence[ClaimKey]) -> Mapping[ClaimKey, str]:
        with self._wanted():
            return run(self._transport.send(work_calls.start(keys))).by_key()

    def beat(self, pulse: Pulse) -> Orders:
        with self._wanted():
            answer = run(self._transport.send(work_calls.beat(self.worker_id, pulse)))
        if answer.token is not None:
            self._transport.renew(answer.token)
        return answer.orders()

    def finish(self, endings: Sequence[Ending], then: Ask | None = None) -> Exchange:
        parts = split(endings)
        told, claims = list(parts.refused), list[Claim]()
        for index, part in enumerate(parts.sent, start=1):
            last = index == len(parts.sent)
            with self._wanted():
                answer = run(self._transport.send(work_calls.finish(part, then if last else None)))
            told.extend(answer.exchange().told)
            claims.extend(answer.exchange().claims)
        return Exchange(told=told, claims=claims)

    def get_checkpoint(self, key: ClaimKey) -> object:
        with self._wanted(), _held(key):
            return run(self._transport.send(work_calls.get_checkpoint(key))).value

    def put_checkpoint(self, key: ClaimKey, value: object) -> None:
        encode(value, what="checkpoint", limit=LARGEST_REPORT)
        with self._wanted(), _held(key):
            run(self._transport.send(work_calls.put_checkpoint(key, value)))

    def mark_service(self, key: ClaimKey, mark: ServiceMark) -> None:
        with self._wanted(), _held(key):
            run(self._transport.send(work_calls.mark_service(key, mark)))

    def leave(self) -> None:
        with self._wanted():
            run(self._transport.send(work_calls.leave(self.worker_id)))

    @contextmanager
    def _wanted(self) -> Generator[None]:
        """The token dies with the worker's row, so one that is refused says the same as a row that is gone."""
        try:
            yield
        except Unauthenticated as error:
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
        Blocking(clock, transport),
        url=url,
        token=bootstrap_token,
        timeout=timeout,
        patience=Patience(most=patience),
        on_version=on_version,
    )
    call = work_calls.register(
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


@contextmanager
def _held(key: ClaimKey) -> Generator[None]:
    """A job that is gone is no claim of ours any more; that says nothing about the worker."""
    try:
        yield
    except NotFound as error:
        raise StaleWrite(f"job {key.job_id} is no longer there: {error}") from error
