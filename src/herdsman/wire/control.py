"""The control loop and the health of a replica, as people and probes see them."""

from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import Field

from herdsman.core.errors import InvalidRequest
from herdsman.core.holds import ALL, LONGEST_NAME, Hold, Stillness, scope_of
from herdsman.wire.model import Duration, Reply, Request, name
from herdsman.wire.shadow import ShadowOut


class CycleOut(Reply):
    """What one cycle saw and did."""

    timestamp: datetime | None
    actions: dict[str, int]
    status: dict[str, int]
    skipped: str
    complete: bool
    steps: tuple[dict[str, Any], ...]
    shadow: tuple[ShadowOut, ...] = Field(
        default=(), description="What a second policy would have done; none of it was done."
    )
    forwarded: bool = Field(default=False, description="Another replica leads, and did it.")


class LeaderOut(Reply):
    leads: bool
    """Whether somebody leads now; otherwise the rest tells of who led last."""
    mine: bool
    holder: str | None = None
    epoch: int | None = None
    since: datetime | None = None
    expires_at: datetime | None = None


class LiveOut(Reply):
    status: str


class ReadyOut(LiveOut):
    checks: dict[str, str]


class HealthOut(ReadyOut):
    version: str
    database: str
    leads: bool
    streams: str = "off"
    """`off`, `ok`, or what is wrong with Redis; without it jobs start a little later, so it makes nothing unhealthy."""
    jobs: dict[str, int]


Why = Annotated[str, Field(max_length=255, description="For who wonders later.")]


class ScopeIn(Request):
    """One pool, one type of job, or everything."""

    scope: str | None = Field(
        default=None, max_length=160, description="`all`, `pool:NAME` or `type:NAME`, instead of the others."
    )
    pool: Annotated[str, name(LONGEST_NAME)] | None = None
    type: Annotated[str, name(64)] | None = None
    queue: Annotated[str, name(64)] | None = Field(default=None, description="Another word for `type`.")

    def meant(self) -> str:
        given = [each for each in (self.scope, self.pool, self.type, self.queue) if each is not None]
        if len(given) > 1:
            raise InvalidRequest("more than one of scope, pool, type and queue was given: use one at a time")
        if self.scope is None:
            return scope_of(pool=self.pool, kind=self.type if self.type is not None else self.queue)
        match self.scope.partition(":"):
            case ["pool", ":", named]:
                return scope_of(pool=named)
            case ["type", ":", named]:
                return scope_of(kind=named)
            case [only, "", _] if only == ALL:
                return ALL
            case _:
                raise InvalidRequest(f"scope is {self.scope!r}: it must be all, pool:NAME or type:NAME")


class PauseIn(ScopeIn):
    why: Why = ""
    seconds: Duration | None = Field(default=None, description="After so long it goes on by itself.")

    @property
    def duration(self) -> timedelta | None:
        return None if self.seconds is None else timedelta(seconds=self.seconds)


class DrainIn(Request):
    why: Why = ""


class EvictIn(Request):
    pool_id: Annotated[str, name(128)]


class HoldOut(Reply):
    scope: str
    kind: str
    why: str
    actor: str
    since: datetime
    until: datetime | None = None

    @classmethod
    def of(cls, hold: Hold) -> "HoldOut":
        return cls(
            scope=hold.scope,
            kind=hold.kind,
            why=hold.why,
            actor=hold.actor,
            since=hold.since,
            until=hold.until,
        )


class ResumedOut(Reply):
    scope: str
    resumed: bool = Field(description="Whether it was held.")


class HoldsOut(Reply):
    """What is held, and what goes on all the same."""

    holds: tuple[HoldOut, ...]
    jobs_held: int = Field(description="Jobs that workers hold.")
    workers: dict[str, int] = Field(description="Workers that live, by status.")

    @classmethod
    def of(cls, found: Stillness) -> "HoldsOut":
        return cls(
            holds=tuple(HoldOut.of(each) for each in found.holding.holds),
            jobs_held=found.jobs_held,
            workers={state.value: count for state, count in found.workers.items()},
        )
