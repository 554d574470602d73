"""The ids of jobs, workers and pools, what a name may look like, and the limits of what a job may ask for."""

import re
from collections.abc import Mapping
from typing import NewType

from herdsman.errors import InvalidRequest

JobId = NewType("JobId", str)
WorkerId = NewType("WorkerId", str)
PoolId = NewType("PoolId", str)
DEFAULT_POOL = PoolId("default")
DEFAULT_AGENT = "default"
LOWEST, HIGHEST = -100, 100
"""Of priorities."""
MAX_TAGS = 20
MAX_ATTEMPTS = 100
# Ids travel in URLs, file names, stream fields and logs: nothing in them may need escaping.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]*", re.ASCII)
MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+/-]*", re.ASCII)
LONGEST: Mapping[str, int] = {
    "agent": 255,
    "concurrency_key": 128,
    "idempotency_key": 255,
    "job_id": 128,
    "model": 255,
    "node": 128,
    "pool": 128,
    "pool_id": 123,
    "tag": 64,
    "token": 64,
    "type": 64,
    "variant": 64,
    "worker_id": 128,
}
"""Characters of a name, by what it names. `pool_id` is a new pool: with the word that a hold has before it, the audit
takes no more."""
LARGEST_MEMORY_MB = 16_777_216


def check_model(field: str, value: str) -> None:
    """The name of a model or an adapter: as other names, with slashes."""
    check_name(field, value, LONGEST["model"], slashes=True)


def check_name(field: str, value: str, longest: int | None = None, *, slashes: bool = False) -> None:
    """`longest` is for what has no limit in `LONGEST`, or another one."""
    longest = LONGEST[field] if longest is None else longest
    if len(value) > longest:
        raise InvalidRequest(f"{field} has {len(value)} characters, the limit is {longest}")
    if not (MODEL if slashes else NAME).fullmatch(value):
        signs = ". _ : @ + / -" if slashes else ". _ : @ + -"
        raise InvalidRequest(
            f"{field} is {value!r}: it must begin with a letter or digit and hold only letters, digits and {signs}"
        )
