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
_BODY = tuple(each.name for each in fields(NewJob) if each.name not in ("job_id", "idempotency_key"))
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]*", re.ASCII)


def check(new: NewJob, policy: JobPolicy) -> str:
    """The payload as JSON text, once everything about the submission has been found in order."""
    _check_names(new)
    _check_numbers(new)
    _check_times(new)
    return encode(new.payload, what="payload", limit=policy.max_payload_bytes)


def body_hash(new: NewJob) -> str:
    """Of all that was asked for; the names by which a submission is recognised are left out."""
    return fingerprint({field: getattr(new, field) for field in _BODY})


def check_name(field: str, value: str, longest: int) -> None:
    if len(value) > longest:
        raise InvalidRequest(f"{field} has {len(value)} characters, the limit is {longest}")
    if not NAME.fullmatch(value):
        raise InvalidRequest(
            f"{field} is {value!r}: it must begin with a letter or digit and hold only letters, digits and . _ : @ + -"
        )


def _check_names(new: NewJob) -> None:
    check_name("type", new.type, 64)
    check_name("agent", new.agent, 255)
    check_name("pool", new.pool, 128)
    if new.job_id is not None:
        check_name("job_id", new.job_id, 128)
    if new.idempotency_key is not None:
        check_name("idempotency_key", new.idempotency_key, 255)
    if len(new.tags) > MAX_TAGS:
        raise InvalidRequest(f"{len(new.tags)} tags were given, the limit is {MAX_TAGS}")
    for tag in new.tags:
        check_name("tag", tag, 64)


def _check_numbers(new: NewJob) -> None:
    _check_range("priority", new.priority, LOWEST, HIGHEST)
    if new.max_attempts is not None:
        _check_range("max_attempts", new.max_attempts, 1, MAX_ATTEMPTS)


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
        "timeout": (new.timeout, LONGEST_RUN),
        "retry_base": (new.retry_base, LONGEST_WAIT),
        "retry_cap": (new.retry_cap, LONGEST_WAIT),
    }
    for field, (value, limit) in longest.items():
        if value is not None and not timedelta(0) < value <= limit:
            raise InvalidRequest(f"{field} is {value}: it must be more than 0 and at most {limit}")
