"""The work queue of a worker on another machine. A request is sent once: the worker knows when to send it again."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

import httpx

from herdsman.client.call import Call, batches, built, encoded, get, named, nothing, post, weight
from herdsman.client.transport import BlockingConnection, Patience, Transport, run
from herdsman.errors import InvalidRequest, NotFound, StaleWrite, StoreUnavailable, Unauthenticated
from herdsman.ids import DEFAULT_POOL, WorkerId
from herdsman.jobs import protocol, worker_wire
from herdsman.jobs.model import Claim, ClaimKey
from herdsman.json_text import encode
from herdsman.ports import Clock
from herdsman.wire import Request

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
        self._path = f"/workers/{named('worker_id', worker_id)}"
        self._transport = Transport(
            BlockingConnection(url, clock, transport),
            url=url,
            token=token,
            timeout=timeout,
            patience=ONCE,
            on_version=on_version,
        )

    def close(self) -> None:
        run(self._transport.close())

    def claim(self, ask: protocol.ClaimRequest, wait: timedelta = timedelta(0)) -> Sequence[Claim]:
        body = built(lambda: worker_wire.ClaimRequestIn.of(ask, wait))
        call = post("/jobs/claim", worker_wire.ClaimsOut, body, wait=timedelta(seconds=body.wait_seconds))
        return [each.claim() for each in self._send(call).claims]

    def held(self) -> Sequence[ClaimKey]:
        return [each.key() for each in self._send(get(f"{self._path}/claims", worker_wire.HeldClaimsOut)).claims]

    def start(self, keys: Sequence[ClaimKey]) -> Mapping[ClaimKey, str]:
        body = built(lambda: worker_wire.StartManyIn(claims=tuple(worker_wire.KeyIn.of(key) for key in keys)))
        return self._send(post("/jobs/start", worker_wire.StartedOut, body)).by_key()

    def beat(self, heartbeat: protocol.WorkerHeartbeat) -> protocol.HeartbeatReply:
        answer = self._send(
            post(
                f"{self._path}/heartbeat",
                worker_wire.HeartbeatReplyOut,
                built(lambda: worker_wire.HeartbeatIn.of(heartbeat)),
            )
        )
        if answer.token is not None:
            self._transport.renew(answer.token)
        return answer.reply()

    def finish(
        self, endings: Sequence[protocol.Ending], then: protocol.ClaimRequest | None = None
    ) -> protocol.FinishAndClaim:
        """In requests that the server takes. One result that cannot be sent holds up no other."""
        fit: list[tuple[protocol.Ending, int]] = []
        told: list[protocol.FinishResult] = []
        for ending in endings:
            try:
                match ending:
                    case protocol.Done():
                        if ending.saved is not None:
                            protocol.check_saved(ending.saved)
                        text = encode(ending.result, what="result", limit=LARGEST_REPORT)
                        fit.append((ending, weight(text.encode())))
                    case protocol.Failed():
                        fit.append((ending, len(ending.failure.error)))
                    case _:
                        fit.append((ending, len(ending.reason)))
            except InvalidRequest as error:
                told.append(protocol.FinishResult(key=ending.key, refused=str(error)))
        claims: list[Claim] = []
        parts = list(batches(fit, most=protocol.MOST_AT_ONCE, largest=LARGEST_REPORT))
        for part in parts:
            more = worker_wire.ClaimRequestIn.of(then, timedelta(0)) if then is not None and part is parts[-1] else None
            body = built(
                lambda part=part, more=more: worker_wire.FinishIn(
                    endings=tuple(worker_wire.EndingIn.of(each) for each in part), then=more
                )
            )
            answer = self._send(post("/jobs/finish", worker_wire.FinishedOut, body)).exchange()
            told.extend(answer.told)
            claims.extend(answer.claims)
        return protocol.FinishAndClaim(told=told, claims=claims)

    def get_checkpoint(self, key: ClaimKey) -> object:
        call = get(f"/jobs/{named('job_id', key.job_id)}/checkpoint", worker_wire.CheckpointOut, token=key.token)
        return self._send(call, about=key).value

    def put_checkpoint(self, key: ClaimKey, value: object) -> None:
        encode(value, what="checkpoint", limit=LARGEST_REPORT)
        self._put(key, "checkpoint", built(lambda: worker_wire.CheckpointIn(token=key.token, value=value)))

    def mark_service(self, key: ClaimKey, mark: protocol.ServiceMark) -> None:
        self._put(key, "service", built(lambda: worker_wire.ServiceIn.of(key.token, mark)))

    def leave(self) -> None:
        self._send(Call(method="POST", path=f"{self._path}/leave", read=nothing, body=b"{}"))

    def _put(self, key: ClaimKey, what: str, body: Request) -> None:
        path = f"/jobs/{named('job_id', key.job_id)}/{what}"
        self._send(Call(method="PUT", path=path, read=nothing, body=encoded(body)), about=key)

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
) -> tuple[HttpQueue, worker_wire.RegisteredOut]:
    """Exchange the bootstrap token for one of this worker's own. The same incarnation may ask again.

    `on_version` is called with the version of the server, and again when that changes. A control plane that answers, and whose
    database is away, is asked for as long as `outage`.
    """
    sender = Transport(
        BlockingConnection(url, clock, transport),
        url=url,
        token=bootstrap_token,
        timeout=timeout,
        patience=Patience(most=patience),
        on_version=on_version,
    )
    body = built(
        lambda: worker_wire.RegisterIn(
            worker_id=worker_id, pool=pool, incarnation=incarnation, instance_type=instance_type
        )
    )
    call = post("/workers/register", worker_wire.RegisteredOut, body)
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
    queue = HttpQueue(url, found.token, named, timeout=timeout, clock=clock, transport=transport, on_version=on_version)
    return queue, found
