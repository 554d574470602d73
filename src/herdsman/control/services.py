"""What a command needs to do its work."""

from collections.abc import Callable
from dataclasses import dataclass, field

from herdsman.control.known_types import KnownTypes
from herdsman.control.snapshot import FleetRules
from herdsman.control.turns import Turns
from herdsman.core.control_policy import ControlPolicy
from herdsman.core.gating import Closed
from herdsman.core.leasing import LeasePolicy
from herdsman.core.model import JobId, JobPolicy
from herdsman.core.pools import PoolLimits
from herdsman.db.connection import Database


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
    turns: Turns = field(default_factory=Turns)
    pools: PoolLimits = field(default_factory=PoolLimits)
    types: KnownTypes = field(default_factory=KnownTypes)
    fleet: Callable[[], FleetRules] = FleetRules
    """By which rules the control loop keeps the fleet, for whoever asks why."""
    drop_files: Callable[[str], None] = lambda _: None
    """Told of each job that is removed. It must be quick: whoever removes jobs has more to do."""
