"""Which streams of jobs there are: one that pools share, and one for each pool that wants its own."""

from collections.abc import Sequence

from herdsman.bus.names import Names, Stream
from herdsman.core.model import PoolId
from herdsman.db.connection import Database
from herdsman.store import hints


class Roster:
    def __init__(self, names: Names, database: Database) -> None:
        self._names = names
        self._database = database
        self._isolated: frozenset[PoolId] = frozenset()

    def refresh(self) -> Sequence[Stream]:
        """Streams that nobody needs any more: their pools share the common one now."""
        found = frozenset(self._database.read(hints.isolated_pools))
        left, self._isolated = self._isolated - found, found
        return [self._names.jobs_of(pool) for pool in left]

    @property
    def streams(self) -> Sequence[Stream]:
        return [self._names.jobs, *(self._names.jobs_of(pool) for pool in sorted(self._isolated))]

    def stream_of(self, pool: PoolId) -> Stream:
        return self._names.jobs_of(pool) if pool in self._isolated else self._names.jobs
