"""What operators ask of the server, one function for each."""

from dataclasses import replace
from datetime import timedelta

from herdsman.client.answers import body_of
from herdsman.client.call import Call, built, get, post
from herdsman.wire.control import (
    CycleOut,
    DrainIn,
    EvictIn,
    HoldOut,
    HoldsOut,
    LeaderOut,
    PauseIn,
    ResumedOut,
    ScopeIn,
)
from herdsman.wire.pools import PoolOut

LONGEST_CYCLE = timedelta(seconds=60)
"""Another replica may have to be asked, and a cycle takes its time."""


def pause(wanted: PauseIn) -> Call[HoldOut]:
    return post("/control/pause", body_of(HoldOut), wanted)


def resume(wanted: ScopeIn) -> Call[ResumedOut]:
    return post("/control/resume", body_of(ResumedOut), wanted)


def drain(wanted: DrainIn) -> Call[HoldOut]:
    return post("/control/drain", body_of(HoldOut), wanted)


def holds() -> Call[HoldsOut]:
    return get("/control/holds", body_of(HoldsOut))


def evict(pool: str) -> Call[PoolOut]:
    return post("/control/evict_pool", body_of(PoolOut), built(lambda: EvictIn(pool_id=pool)))


def reconcile() -> Call[CycleOut]:
    return replace(post("/control/reconcile", body_of(CycleOut)), wait=LONGEST_CYCLE)


def leader() -> Call[LeaderOut]:
    return get("/leader", body_of(LeaderOut))
