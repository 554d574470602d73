"""A job as the server tells it, field by field, for tests that have no server."""

from typing import Any


def job_fields(status: str, at: object, **more: object) -> dict[str, Any]:
    """One that nobody has begun; `at` is when it was submitted, as an instant or as text."""
    return {
        "job_id": "job-1",
        "type": "image",
        "agent": "default",
        "pool": "default",
        "priority": 0,
        "tags": [],
        "status": status,
        "reason": "submitted",
        "attempts": 0,
        "interruptions": 0,
        "max_attempts": 3,
        "worker_id": None,
        "progress": None,
        "progress_note": None,
        "failure_class": None,
        "last_error": None,
        "run_at": at,
        "created_at": at,
        "claimed_at": None,
        "started_at": None,
        "finished_at": None,
        "timeout_seconds": None,
        "cancel_requested": False,
        "version": 1,
        "payload": {},
        "idempotency_key": None,
        **more,
    }
