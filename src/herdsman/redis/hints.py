"""Streams only hint at jobs; what becomes of a hint is decided by the row of its job."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from typing import assert_never

from herdsman.ids import JobId, PoolId
from herdsman.jobs.rules import NAME
from herdsman.states import JobState

LONGEST_ID = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A job that waits. `version` is that of its row, so that a job that waits again is announced again."""

    job_id: JobId
    type: str
    pool: PoolId
    version: int = 1
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the row of a hint says."""

    job_id: JobId
    state: JobState
    version: int
    pool: PoolId
    attempts: int
    last_error: str | None
    service: dict[str, str] = field(default_factory=dict[str, str])
    """Where the job is on an external service, if it is on one."""


class Verdict(Enum):
    KEEP = auto()
    """The job waits or runs: the hint is left alone, however old it is."""
    SETTLE = auto()
    """Nothing is left to be done about it now; one that is to be tried again is announced again."""
    DEAD_LETTER = auto()
    """Nobody will try it again, and that is announced."""
    QUARANTINE = auto()
    """There is no such job: somebody made the hint up."""


def judge(known: Known | None) -> Verdict:
    if known is None:
        return Verdict.QUARANTINE
    match known.state:
        case JobState.PENDING | JobState.CLAIMED | JobState.RUNNING:
            return Verdict.KEEP
        case JobState.DEAD_LETTER:
            return Verdict.DEAD_LETTER
        case JobState.SCHEDULED | JobState.FAILED | JobState.DONE | JobState.CANCELLED:
            return Verdict.SETTLE
        case _:
            assert_never(known.state)


def possible(job_id: str) -> bool:
    """Whether a job could have this id at all."""
    return len(job_id) <= LONGEST_ID and NAME.fullmatch(job_id) is not None
