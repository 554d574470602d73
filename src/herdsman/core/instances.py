"""What a provider rents us: a pod, a process, a batch job."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import NewType

from herdsman.core.model import PoolId, WorkerId

InstanceRef = NewType("InstanceRef", str)
"""The provider's own id of an instance."""


class InstanceState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    """There, but not running; it may still cost something."""
    BROKEN = "broken"
    UNKNOWN = "unknown"
    """In a state that we have no word for: not ready, and not gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    ref: InstanceRef
    name: str
    """Exactly the name of the request that started it."""
    state: InstanceState
    gpu_type: str | None = None
    gpu_count: int = 0
    cost_per_hour: Decimal = Decimal(0)
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnRequest:
    name: str
    """Unique for ever: a lost answer is found again by it."""
    worker_id: WorkerId
    pool: PoolId
    environment: Mapping[str, str]
    """What the worker needs to report for duty. Its bootstrap token is the only secret in it."""


LOCAL_NAME = "LOCAL_INSTANCE_NAME"
"""In the environment of a worker that a provider started as a process beside it: the name of that instance."""


def process_name(instance: str) -> str:
    """What a process of ours calls itself, in the 15 letters that Linux keeps, for whoever started it to find it by."""
    return f"herdsman:{sha256(instance.encode()).hexdigest()[:6]}"
