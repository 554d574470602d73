"""What may be said about a job when it is submitted."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict, cast

from herdsman.client.call import built
from herdsman.errors import InvalidRequest
from herdsman.jobs.wire import JobIn
from herdsman.json_text import encode

LARGEST_PAYLOAD = 16 * 1024 * 1024
"""The server has a limit of its own, which may be lower."""
_SPANS = ("delay", "timeout", "retry_base", "retry_cap", "max_defer")

Seconds = float | timedelta


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


def span(given: Seconds) -> timedelta:
    return given if isinstance(given, timedelta) else timedelta(seconds=given)


def job_in(kind: str, payload: object, options: SubmitOptions, *, job_id: str, agent: str | None) -> JobIn:
    """`job_id` is for a job that was given none: sent again after a lost answer, it is the same job."""
    payload = {} if payload is None else payload
    encode(payload, what="payload", limit=LARGEST_PAYLOAD)
    fields: dict[str, Any] = dict(options)
    for name in _SPANS:
        if name in fields:
            value = fields.pop(name)
            fields[f"{name}_seconds"] = value.total_seconds() if isinstance(value, timedelta) else value
    if "tags" in fields:
        tags = fields["tags"]
        if isinstance(tags, str):
            raise InvalidRequest(f"tags is the text {tags!r}: give a list of texts")
        fields["tags"] = tuple(cast("Sequence[str]", tags))
    # A key already tells the server which job it is; an id made for this try would be another body's name.
    if "idempotency_key" not in fields:
        fields.setdefault("job_id", job_id)
    if agent is not None:
        fields.setdefault("agent", agent)
    return built(lambda: JobIn(type=kind, payload=payload, **fields))
