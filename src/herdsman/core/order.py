"""Who is next: priority, with aging built in, as one number that never has to be recomputed.

A point of priority is worth a fixed head start, `step`. A job takes its place by the moment it became
due, moved forward by its head start. So a waiting job of priority p goes before every job of priority q
that became due later than (q - p) * step after it: nothing starves, and the bound can be said aloud.
The place is fixed when the job is queued, so the queue is an index and not a sort.
"""

from datetime import UTC, datetime, timedelta

LOWEST, HIGHEST = -100, 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def place(due: datetime, priority: int, step: timedelta) -> int:
    """The job with the lowest place is claimed first. In microseconds."""
    return (due - _EPOCH - priority * step) // _MICROSECOND


def longest_overtaking(priority: int, step: timedelta) -> timedelta:
    """How long after a job became due another one may still become due and go first."""
    return (HIGHEST - priority) * step
