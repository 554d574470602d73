"""What a command needs to do its work."""

from collections.abc import Callable
from dataclasses import dataclass, field

from herdsman.db.connection import Database
from herdsman.fleet.observe import FleetRules
from herdsman.ids import JobId, PoolId, WorkerId
from herdsman.jobs.model import JobPolicy
from herdsman.leases.rules import LeasePolicy
from herdsman.limits.control_policy import ControlPolicy
from herdsman.limits.rules import Closed
from herdsman.pools.rules import PoolLimits


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
    types: dict[WorkerId, tuple[str, ...]] = field(default_factory=dict[WorkerId, tuple[str, ...]])
    """The job types of workers that this process has written already. Forgetting costs one read of a row."""
    fleet: Callable[[], FleetRules] = FleetRules
    """By which rules the control loop keeps the fleet, for whoever asks why."""
    drop_files: Callable[[str], None] = lambda _: None
    """Told of each job that is removed. It must be quick: whoever removes jobs has more to do."""
