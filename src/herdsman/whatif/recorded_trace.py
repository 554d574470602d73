"""Reads a trace and boot times from the history of a database."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from herdsman.db.connection import Database, Tx
from herdsman.errors import InvalidRequest
from herdsman.fleet import stats_sql
from herdsman.ids import PoolId
from herdsman.whatif.machines import Boots
from herdsman.whatif.trace import Classes, Trace, made

MOST_JOBS = 5_000_000


@dataclass(frozen=True, slots=True)
class History:
    trace: Trace
    boots: Boots | None
    """None where no start was ever timed."""


def read_history(database: Database, pool: PoolId, span: timedelta) -> History:
    def read(tx: Tx) -> History:
        timed = stats_sql.boot_times(tx, pool).seconds
        boots = Boots(sample_s=timed, failing=stats_sql.failing_starts(tx, pool)) if timed else None
        return History(_trace(tx, pool, span), boots)

    return database.read(read)


def _trace(tx: Tx, pool: PoolId, span: timedelta) -> Trace:
    since = tx.now() - span

    types = Classes()

    def rows() -> Iterator[tuple[float, float]]:
        for came, took, kind in stats_sql.ended_attempts(tx, pool, since, MOST_JOBS):
            types.add(kind)
            yield came.timestamp(), took

    name = f"history of pool {pool}"
    try:
        found = made(name, rows(), types)
    except InvalidRequest as error:
        days = span.total_seconds() / 86_400
        said = f"no job of pool {pool} has ended within the last {days:g} days: run some, or give a --trace"
        raise InvalidRequest(said) from error
    # They are read by their end, so that the order is no surprise to anybody.
    return replace(found, said=())
