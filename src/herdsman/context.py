"""What a command needs to do its work."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from herdsman.db.connection import Database
from herdsman.fleet import workers_sql
from herdsman.fleet.observe import FleetRules
from herdsman.ids import JobId, PoolId, WorkerId
from herdsman.jobs.model import JobPolicy
from herdsman.jobs.protocol import ClaimRequest
from herdsman.leases.rules import LeasePolicy
from herdsman.limits.control_policy import ControlPolicy
from herdsman.limits.rules import Closed
from herdsman.pools.rules import PoolLimits

MOST_KNOWN = 50_000


class KnownTypes:
    """The job types of workers that this process has written already. Forgetting costs one read of a row."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[WorkerId, tuple[str, ...]] = {}

    def note(self, database: Database, asks: Mapping[WorkerId, ClaimRequest]) -> None:
        """In a transaction of its own for each: nobody who asks for work waits for another's row.

        A worker that fills up a batch names only its type. One that never named any takes anything.
        """
        with self._lock:
            news = {
                worker_id: ask.types
                for worker_id, ask in asks.items()
                if not ask.beside and self._known.get(worker_id, ()) != ask.types
            }
        for worker_id, types in news.items():
            database.transact(lambda tx, of=worker_id, types=types: workers_sql.note_types(tx, of, types))
            with self._lock:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                self._known[worker_id] = types


@dataclass(frozen=True, slots=True)
class Services:
    database: Database
    policy: JobPolicy
    new_job_id: Callable[[], JobId]
    leasing: LeasePolicy = field(default_factory=LeasePolicy)
    rules: Callable[[], ControlPolicy] = ControlPolicy
    """What people have set for agents and queues, as it is now."""
    gates: Callable[[ControlPolicy], Closed] | None = None
    """Which gates are closed, as they were seen a moment ago; without this, each submission looks."""
    turns: dict[PoolId, str] = field(default_factory=dict[PoolId, str])
    """The agent of each pool that this process served last: where several wait, they are served in a circle."""
    pools: PoolLimits = field(default_factory=PoolLimits)
    types: KnownTypes = field(default_factory=KnownTypes)
    fleet: Callable[[], FleetRules] = FleetRules
    """By which rules the control loop keeps the fleet, for whoever asks why."""
    drop_files: Callable[[str], None] = lambda _: None
    """Told of each job that is removed. It must be quick: whoever removes jobs has more to do."""
