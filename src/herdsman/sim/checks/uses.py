"""What the holder of a lease has to say for the checks."""

from typing import Any

from herdsman.core.lease import Lease
from herdsman.sim.checks.history import Use


def use_of(lease: Lease, *, began: float, ended: float, **known: Any) -> Use:
    return Use(
        token=lease.token,
        gpu=lease.gpu_uuid or "",
        seq=lease.seq,
        memory_mb=lease.memory_mb,
        exclusive=lease.exclusive,
        began=began,
        ended=ended,
        **known,
    )
