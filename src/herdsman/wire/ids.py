"""Names for what is new."""

import secrets
import time
from hashlib import sha256
from uuid import UUID, uuid4, uuid5

from herdsman.core.model import ClaimKey, JobId, WorkerId

_SERVICES = UUID("6a1f2f4e-5a3b-5c5d-9e0b-6d1f0c7a2b41")


def new_job_id() -> JobId:
    """Rises with time, so that new jobs lie together in every index."""
    return JobId(f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}")


def new_lease_token() -> str:
    """Nobody can guess it: to know it is to hold the lease."""
    return secrets.token_hex(20)


def lease_id(token: str) -> str:
    """What a lease is called where its token is nobody's business."""
    return f"lease-{sha256(token.encode()).hexdigest()[:16]}"


def service_id(key: ClaimKey) -> str:
    """Under which one claim hands its job to an external service: known before anything is sent."""
    return str(uuid5(_SERVICES, f"{key.job_id}:{key.token}"))


def new_installation_id() -> str:
    """In the name of every instance that a database starts."""
    return secrets.token_hex(6)


def new_worker_id() -> WorkerId:
    return WorkerId(f"gpu-{time.time_ns() // 1_000_000_000}-{uuid4()}")
