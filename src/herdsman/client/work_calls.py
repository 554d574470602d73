"""What a worker asks of the server, one function for each."""

from collections.abc import Sequence
from datetime import timedelta

from herdsman.client.answers import body_of, nothing
from herdsman.client.call import Call, built, encoded, get, named, post
from herdsman.core.model import ClaimKey
from herdsman.core.service import ServiceMark
from herdsman.core.work import Ask, Ending, Pulse
from herdsman.wire.beats import OrdersOut, PulseIn
from herdsman.wire.work import (
    AskIn,
    CheckpointIn,
    CheckpointOut,
    ClaimsOut,
    EndingIn,
    FinishedOut,
    FinishIn,
    HeldClaimsOut,
    KeyIn,
    RegisteredOut,
    RegisterIn,
    ServiceIn,
    StartedOut,
    StartManyIn,
)


def register(
    *, worker_id: str | None, pool: str, incarnation: str, instance_type: str | None
) -> Call[RegisteredOut]:
    body = built(
        lambda: RegisterIn(
            worker_id=worker_id, pool=pool, incarnation=incarnation, instance_type=instance_type
        )
    )
    return post("/workers/register", body_of(RegisteredOut), body)


def claim(ask: Ask, wait: timedelta) -> Call[ClaimsOut]:
    body = built(lambda: AskIn.of(ask, wait))
    return Call(
        method="POST",
        path="/jobs/claim",
        read=body_of(ClaimsOut),
        body=encoded(body),
        wait=timedelta(seconds=body.wait_seconds),
    )


def held(worker_id: str) -> Call[HeldClaimsOut]:
    return get(f"/workers/{named('worker_id', worker_id)}/claims", body_of(HeldClaimsOut))


def start(keys: Sequence[ClaimKey]) -> Call[StartedOut]:
    body = built(lambda: StartManyIn(claims=tuple(KeyIn.of(key) for key in keys)))
    return post("/jobs/start", body_of(StartedOut), body)


def beat(worker_id: str, pulse: Pulse) -> Call[OrdersOut]:
    path = f"/workers/{named('worker_id', worker_id)}/heartbeat"
    return post(path, body_of(OrdersOut), built(lambda: PulseIn.of(pulse)))


def finish(endings: Sequence[Ending], then: Ask | None) -> Call[FinishedOut]:
    body = built(
        lambda: FinishIn(
            endings=tuple(EndingIn.of(ending) for ending in endings),
            then=None if then is None else AskIn.of(then, timedelta(0)),
        )
    )
    return post("/jobs/finish", body_of(FinishedOut), body)


def get_checkpoint(key: ClaimKey) -> Call[CheckpointOut]:
    return get(_checkpoint(key), body_of(CheckpointOut), {"token": key.token})


def put_checkpoint(key: ClaimKey, value: object) -> Call[None]:
    body = built(lambda: CheckpointIn(token=key.token, value=value))
    return Call(method="PUT", path=_checkpoint(key), read=nothing, body=encoded(body))


def mark_service(key: ClaimKey, mark: ServiceMark) -> Call[None]:
    body = built(lambda: ServiceIn.of(key.token, mark))
    return Call(
        method="PUT", path=f"/jobs/{named('job_id', key.job_id)}/service", read=nothing, body=encoded(body)
    )


def leave(worker_id: str) -> Call[None]:
    return post(f"/workers/{named('worker_id', worker_id)}/leave", nothing)


def _checkpoint(key: ClaimKey) -> str:
    return f"/jobs/{named('job_id', key.job_id)}/checkpoint"
