"""What is asked of the server about pools, one function for each."""

from dataclasses import replace

from herdsman.client.answers import body_of
from herdsman.client.call import Call, get, named, post
from herdsman.wire.pools import PoolIn, PoolOut, PoolsOut, ScaleIn, SwapIn


def start(wanted: PoolIn) -> Call[PoolOut]:
    return post("/workers/pool", body_of(PoolOut), wanted)


def page(after: str | None, limit: int) -> Call[PoolsOut]:
    return get("/workers/pool", body_of(PoolsOut), {"after": after, "limit": limit})


def look(pool_id: str) -> Call[PoolOut]:
    return get(_path(pool_id), body_of(PoolOut))


def scale(pool_id: str, wanted: ScaleIn) -> Call[PoolOut]:
    return post(f"{_path(pool_id)}/scale", body_of(PoolOut), wanted)


def swap(pool_id: str, wanted: SwapIn) -> Call[PoolOut]:
    # What is null is taken away, and so it has to be sent.
    body = wanted.model_dump_json(exclude_unset=True).encode()
    return replace(post(f"{_path(pool_id)}/swap", body_of(PoolOut)), body=body)


def drain(pool_id: str) -> Call[PoolOut]:
    return post(f"{_path(pool_id)}/drain", body_of(PoolOut))


def _path(pool_id: str) -> str:
    return f"/workers/pool/{named('pool_id', pool_id)}"
