"""Names for new jobs, made by whoever submits one."""

import secrets
import time

from herdsman.core.model import JobId


def new_job_id() -> JobId:
    """Rises with time, so that new jobs lie together in every index."""
    return JobId(f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}")
