"""What a person may stop for a while, and let go on: everything, one pool, or one type of job."""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from herdsman.control.services import Services
from herdsman.core.body import clean
from herdsman.core.errors import InvalidRequest
from herdsman.core.holds import ALL, Hold, HoldKind, Stillness
from herdsman.core.model import PoolId
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.store import fleet, holds, tally

T = TypeVar("T")

LONGEST_HOLD = timedelta(days=365)
LONGEST_WHY = 255


def pause(
    services: Services, scope: str, *, why: str = "", duration: timedelta | None = None, who: str = "admin"
) -> Hold:
    """No job of it is given out from here on; workers finish what they hold, and stay. May be repeated."""
    if duration is not None and not timedelta(0) < duration <= LONGEST_HOLD:
        raise InvalidRequest(f"the pause lasts {duration}: it must be more than 0 and at most {LONGEST_HOLD}")

    def write(tx: Tx) -> Hold:
        until = None if duration is None else tx.now() + duration
        return holds.put(tx, scope, HoldKind.PAUSE, _why(why, "paused by hand"), who, until)

    return _again(services, write)


def resume(services: Services, scope: str, *, who: str = "admin") -> bool:
    """Whether it was held. Jobs are given out again at once, unless something else holds them.

    A pool that the provider had rejected is asked for again, too: whoever says this has mended the cause.
    """

    def write(tx: Tx) -> bool:
        lifted = holds.lift(tx, scope, who)
        return _mended(tx, scope) or lifted

    return _again(services, write)


def _mended(tx: Tx, scope: str) -> bool:
    kind, _, name = scope.partition(":")
    if kind not in (ALL, "pool"):
        return False
    return fleet.mend(tx, PoolId(name) if kind == "pool" else None)


def drain(services: Services, *, why: str = "", who: str = "admin") -> Hold:
    """The whole cluster: nothing is given out, every worker finishes what it holds and leaves, none are made."""

    def write(tx: Tx) -> Hold:
        holds.drain_workers(tx, who)
        return holds.put(tx, ALL, HoldKind.DRAIN, _why(why, "drained by hand"), who, None)

    return _again(services, write)


def find_holds(services: Services) -> Stillness:
    def read(tx: Tx) -> Stillness:
        return Stillness(
            holding=holds.standing(tx), jobs_held=tally.jobs_held(tx), workers=tally.living_workers(tx)
        )

    return services.database.read(read)


def expire_holds(services: Services, *, who: str = "leader") -> int:
    """Remove those whose time is over. They counted no more; now the audit says so too."""
    return _again(services, lambda tx: holds.lift_expired(tx, who))


def _again(services: Services, write: Callable[[Tx], T]) -> T:
    """Two that hold the same thing for the first time at the same time: the second one finds the row, which stays."""
    try:
        return services.database.transact(write)
    except Duplicate:
        return services.database.transact(write)


def _why(said: str, usual: str) -> str:
    return clean(said.strip(), LONGEST_WHY) or usual
