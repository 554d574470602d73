"""The policy as it is now, without asking the database at every turn."""

from threading import Lock

from herdsman.core.control_policy import ControlPolicy
from herdsman.core.errors import StoreUnavailable
from herdsman.db.connection import Database, Tx
from herdsman.ports import Clock
from herdsman.store import policies
from herdsman.wire.limits import stored

FRESH_S = 1.0
"""What another replica has set holds here after this long."""


class PolicyBook:
    """Safe to share between threads: one of them looks, the others go on with what was last seen."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._looking = Lock()
        self._seen: ControlPolicy | None = None
        self._next = 0.0

    def __call__(self) -> ControlPolicy:
        """While the database is away, what was last seen goes on; with nothing seen yet, `StoreUnavailable`."""
        seen = self._seen
        if seen is not None and self._clock.monotonic() < self._next:
            return seen
        if seen is not None and not self._looking.acquire(blocking=False):
            return seen
        if seen is None:
            self._looking.acquire()
        try:
            return self._look(self._seen)
        finally:
            self._looking.release()

    def drop(self) -> None:
        """It has changed: the next one who asks looks again."""
        self._next = 0.0

    def _look(self, seen: ControlPolicy | None) -> ControlPolicy:
        self._next = self._clock.monotonic() + FRESH_S
        try:
            found = self._database.read(lambda tx: _current(tx, seen))
        except StoreUnavailable:
            if seen is None:
                raise
            return seen
        self._seen = found
        return found


def _current(tx: Tx, seen: ControlPolicy | None) -> ControlPolicy:
    version = policies.newest(tx)
    if seen is not None and seen.version == version:
        return seen
    return stored(policies.get(tx, version).document).policy(version) if version else ControlPolicy()
