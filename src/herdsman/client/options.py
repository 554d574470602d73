"""What may be said about a job when it is submitted."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict, cast

from herdsman.client.call import built
from herdsman.client.waiting import Seconds, seconds
from herdsman.core.body import encode
from herdsman.core.errors import InvalidRequest
from herdsman.wire.jobs import JobIn

LARGEST_PAYLOAD = 16 * 1024 * 1024
"""The server has a limit of its own, which may be lower."""
_SPANS = ("delay", "timeout", "retry_base", "retry_cap", "max_defer")


class SharedOptions(TypedDict, total=False):
    """Those that many jobs may have in common. A number stands for seconds."""

    agent: str
    pool: str
    priority: int
    tags: Sequence[str]
    run_at: datetime
    delay: Seconds
    timeout: Seconds
    max_attempts: int
    retry_base: Seconds
    retry_cap: Seconds
    model: str
    gpu_memory_mb: int
    concurrency_key: str
    allow_cpu: bool
    max_defer: Seconds


class SubmitOptions(SharedOptions, total=False):
    job_id: str
    idempotency_key: str


def job_in(kind: str, payload: object, options: SubmitOptions, *, job_id: str, agent: str | None) -> JobIn:
    """`job_id` is for a job that was given none: sent again after a lost answer, it is the same job."""
    payload = {} if payload is None else payload
    encode(payload, what="payload", limit=LARGEST_PAYLOAD)
    fields = _fields(options)
    # A key already tells the server which job it is; an id made for this try would be another body's name.
    if "idempotency_key" not in fields:
        fields.setdefault("job_id", job_id)
    if agent is not None:
        fields.setdefault("agent", agent)
    return built(lambda: JobIn(type=kind, payload=payload, **fields))


def _fields(options: SubmitOptions) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name in _SPANS:
            fields[f"{name}_seconds"] = seconds(cast("Seconds", value))
        elif name == "tags":
            fields[name] = _tags(value)
        else:
            fields[name] = value
    return fields


def _tags(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InvalidRequest(f"tags is the text {value!r}: give a list of texts")
    return tuple(cast("Sequence[str]", value))
