"""What people have stopped for a while: no job of it is given out, and nothing of it is lost."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from herdsman.core.errors import InvalidRequest
from herdsman.core.request import LONGEST, check_name
from herdsman.core.states import WorkerState

ALL = "all"


class HoldKind(StrEnum):
    PAUSE = "pause"
    """No jobs are given out; workers stay."""
    DRAIN = "drain"
    """Workers finish what they hold and leave as well, and none are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    scope: str
    """`all`, `pool:NAME` or `type:NAME`."""
    kind: HoldKind
    why: str
    actor: str
    since: datetime
    until: datetime | None = None
    """None: until somebody resumes it."""


@dataclass(frozen=True, slots=True)
class Holding:
    """All that is held at one moment."""

    holds: tuple[Hold, ...] = ()

    @property
    def drained(self) -> str | None:
        """Why all workers are let go; None when they are not."""
        return next((each.why for each in self.holds if each.kind is HoldKind.DRAIN), None)

    @property
    def types(self) -> frozenset[str]:
        return frozenset(each.scope[5:] for each in self.holds if each.scope.startswith("type:"))

    def pauses(self, pool: str) -> bool:
        return any(each.scope in (ALL, f"pool:{pool}") for each in self.holds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stillness:
    """What is held, and what goes on all the same."""

    holding: Holding
    jobs_held: int
    workers: Mapping[WorkerState, int]
    """Those that live."""

    @property
    def still(self) -> bool:
        return self.jobs_held == 0 and not any(self.workers.values())


def scope_of(*, pool: str | None = None, kind: str | None = None) -> str:
    """What is meant by a pool, by a type of job, or by neither of them."""
    if pool is not None and kind is not None:
        raise InvalidRequest("a pool and a type were both given: hold one of them, or each by itself")
    if pool is not None:
        check_name("pool", pool, LONGEST["pool_id"])
        return f"pool:{pool}"
    if kind is not None:
        check_name("type", kind)
        return f"type:{kind}"
    return ALL
