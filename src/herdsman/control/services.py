"""What a command needs to do its work."""

from collections.abc import Callable
from dataclasses import dataclass

from herdsman.core.model import JobId, JobPolicy
from herdsman.store.database import Database


@dataclass(frozen=True, slots=True)
class Services:
    database: Database
    policy: JobPolicy
    new_job_id: Callable[[], JobId]
