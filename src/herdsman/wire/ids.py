"""Names for what is new."""

import secrets
import time
from uuid import uuid4

from herdsman.core.model import JobId, WorkerId


def new_job_id() -> JobId:
    """Rises with time, so that new jobs lie together in every index."""
    return JobId(f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}")


def new_lease_token() -> str:
    """Nobody can guess it: to know it is to hold the lease."""
    return secrets.token_hex(20)


def new_worker_id() -> WorkerId:
    return WorkerId(f"gpu-{time.time_ns() // 1_000_000_000}-{uuid4()}")
