"""What a command needs to do its work."""

from collections.abc import Callable
from dataclasses import dataclass, field

from herdsman.core.control_policy import ControlPolicy
from herdsman.core.leasing import LeasePolicy
from herdsman.core.model import JobId, JobPolicy
from herdsman.store.database import Database


@dataclass(frozen=True, slots=True)
class Services:
    database: Database
    policy: JobPolicy
    new_job_id: Callable[[], JobId]
    leasing: LeasePolicy = field(default_factory=LeasePolicy)
    rules: Callable[[], ControlPolicy] = ControlPolicy
    """What people have set for agents and queues, as it is now."""
