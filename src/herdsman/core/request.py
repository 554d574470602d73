"""Is a submission one that we can keep? Every refusal names the field, the value and the rule."""

import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta

from herdsman.core.body import encode, fingerprint
from herdsman.core.errors import InvalidRequest
from herdsman.core.model import JobPolicy, NewJob
from herdsman.core.order import HIGHEST, LOWEST

MAX_TAGS = 20
MAX_ATTEMPTS = 100
LONGEST_WAIT = timedelta(days=365)
LONGEST_RUN = timedelta(days=30)

# Ids travel in URLs, file names, stream fields and logs: nothing in them may need escaping.
_NAMES = ("job_id", "idempotency_key")
# Those of later versions count only where they are used: a job that was sent before an upgrade stays the same job.
_LATER = ("model", "gpu_memory_mb", "concurrency_key", "allow_cpu", "max_defer")
_DEFAULTS = {each.name: each.default for each in fields(NewJob) if each.name in _LATER}
_BODY = tuple(each.name for each in fields(NewJob) if each.name not in _NAMES)
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


def check(new: NewJob, policy: JobPolicy) -> str:
    """The payload as JSON text, once everything about the submission has been found in order."""
    _check_names(new)
    _check_numbers(new)
    _check_times(new)
    return encode(new.payload, what="payload", limit=policy.max_payload_bytes)


def body_hash(new: NewJob) -> str:
    """Of all that was asked for; the names by which a submission is recognised are left out."""
    body = {field: getattr(new, field) for field in _BODY}
    return fingerprint({field: value for field, value in body.items() if not _unused(field, value)})


def _unused(field: str, value: object) -> bool:
    return field in _DEFAULTS and value == _DEFAULTS[field]


def check_model(field: str, value: str) -> None:
    """The name of a model or an adapter: as other names, with slashes."""
    if len(value) > LONGEST["model"]:
        raise InvalidRequest(f"{field} has {len(value)} characters, the limit is {LONGEST['model']}")
    if not MODEL.fullmatch(value):
        raise InvalidRequest(
            f"{field} is {value!r}: it must begin with a letter or digit and hold only letters, digits and . _ : @ + / -"
        )


def check_name(field: str, value: str, longest: int | None = None) -> None:
    """`longest` is for what has no limit in `LONGEST`, or another one."""
    longest = LONGEST[field] if longest is None else longest
    if len(value) > longest:
        raise InvalidRequest(f"{field} has {len(value)} characters, the limit is {longest}")
    if not NAME.fullmatch(value):
        raise InvalidRequest(
            f"{field} is {value!r}: it must begin with a letter or digit and hold only letters, digits and . _ : @ + -"
        )


def _check_names(new: NewJob) -> None:
    check_name("type", new.type)
    check_name("agent", new.agent)
    check_name("pool", new.pool)
    if new.job_id is not None:
        check_name("job_id", new.job_id)
    if new.idempotency_key is not None:
        check_name("idempotency_key", new.idempotency_key)
    if new.concurrency_key is not None:
        check_name("concurrency_key", new.concurrency_key)
    if new.model is not None:
        check_model("model", new.model)
    if len(new.tags) > MAX_TAGS:
        raise InvalidRequest(f"{len(new.tags)} tags were given, the limit is {MAX_TAGS}")
    for tag in new.tags:
        check_name("tag", tag)


def _check_numbers(new: NewJob) -> None:
    _check_range("priority", new.priority, LOWEST, HIGHEST)
    if new.max_attempts is not None:
        _check_range("max_attempts", new.max_attempts, 1, MAX_ATTEMPTS)
    if new.gpu_memory_mb is not None:
        _check_range("gpu_memory_mb", new.gpu_memory_mb, 1, LARGEST_MEMORY_MB)


def _check_range(field: str, value: int, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidRequest(f"{field} is {value!r}: it must be a whole number from {low} to {high}")


def _check_instant(run_at: datetime | None) -> None:
    if run_at is None:
        return
    if run_at.tzinfo is None:
        raise InvalidRequest(f"run_at is {run_at.isoformat()}: it must say its time zone")
    try:
        run_at.astimezone(UTC)
    except OverflowError as error:
        raise InvalidRequest(
            f"run_at is {run_at.isoformat()}, which lies outside the calendar in UTC"
        ) from error


def _check_times(new: NewJob) -> None:
    if new.run_at is not None and new.delay is not None:
        raise InvalidRequest("run_at and delay were both given: use one of them")
    _check_instant(new.run_at)
    longest: Mapping[str, tuple[timedelta | None, timedelta]] = {
        "delay": (new.delay, LONGEST_WAIT),
        "max_defer": (new.max_defer, LONGEST_WAIT),
        "timeout": (new.timeout, LONGEST_RUN),
        "retry_base": (new.retry_base, LONGEST_WAIT),
        "retry_cap": (new.retry_cap, LONGEST_WAIT),
    }
    for field, (value, limit) in longest.items():
        if value is not None and not timedelta(0) < value <= limit:
            raise InvalidRequest(f"{field} is {value}: it must be more than 0 and at most {limit}")
