"""Why something moved: stable codes, the same in the audit, the log, the metrics and the pages."""

from enum import StrEnum


class Reason(StrEnum):
    SUBMITTED = "submitted"
    DUE = "due"
    """Its `run_at` has come."""
    CLAIMED = "claimed"
    STARTED = "started"
    COMPLETED = "completed"
    RELEASED = "released"
    """The worker gave the job back unharmed: it drains, or lost its machine with notice."""
    CANCEL_REQUESTED = "cancel_requested"
    CANCELLED = "cancelled"
    REQUEUED = "requeued"
    """A person put a finished job back into the queue."""
    REQUEUED_EDITED = "requeued_edited"
    """The same, with another payload."""

    USER_ERROR = "user_error"
    JOB_ERROR = "job_error"
    OUT_OF_MEMORY = "out_of_memory"
    INFRASTRUCTURE = "infrastructure"
    TIMEOUT = "timeout"
    CLAIM_EXPIRED = "claim_expired"
    """The worker fell silent while it held the job."""

    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    OUT_OF_MEMORY_AGAIN = "out_of_memory_again"
    INTERRUPTED_TOO_OFTEN = "interrupted_too_often"
    KILLS_WORKERS = "kills_workers"
    """As many workers as allowed were lost while running this job."""

    REGISTERED = "registered"
    READY = "ready"
    DRAINED = "drained"
    STOPPED = "stopped"
    LOST = "lost"
