"""A job on an external service: what a connector is given, and what it says about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from herdsman.core.model import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceJob:
    """What a connector needs to know of a job."""

    job_id: str
    type: str
    payload: object
    agent: str = ""
    """For whom it runs: it may read what jobs of this agent have made, and no other's."""
    attempt: int = 1
    model: str | None = None
    adapter: str | None = None
    variant: str | None = None
    workspace: str = "."
    """A directory for this attempt alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """It has come to its end, and the service still has what it made."""

    outputs: Mapping[str, object] = field(default_factory=dict[str, object])
    """As the service tells it; `fetch` makes the result of it."""
    seconds: float | None = None
    """How long the service worked on it, where it says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """It will come to no good end."""

    failure: Failure
    cancelled: bool = False
    """It was stopped from outside, which is no failure where we asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """It waits there, or runs. Two looks that are equal mean that nothing has moved."""

    done: float | None = None
    """From 0 to 1; None where nobody knows."""
    note: str | None = None
    position: int | None = None
    """How many are before it; 0 while it runs, None where nobody knows."""
    ahead: str | None = None
    """What the service is busy with while this one waits: as long as that changes, the service moves."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The service was reached, and does not know it. Not being reached is no verdict, but `ServiceUnavailable`."""

    why: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The service has said that it is over: look now."""


Verdict = Finished | Broken | Working | Unknown
Heard = Working | Ended


class Action(StrEnum):
    """A verdict in the words of logs and pages (S3-11 to S3-14)."""

    COMPLETE_JOB = "complete_job"
    FAIL_JOB = "fail_job"
    CONTINUE_MONITORING = "continue_monitoring"
    RETURN_TO_QUEUE = "return_to_queue"


def action(verdict: Verdict) -> Action:
    match verdict:
        case Finished():
            return Action.COMPLETE_JOB
        case Broken():
            return Action.FAIL_JOB
        case Working():
            return Action.CONTINUE_MONITORING
        case Unknown():
            return Action.RETURN_TO_QUEUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a connector can do; what it cannot is not asked of it."""

    listens: bool = True
    """News come by themselves. Without that it is only looked at, at the pace of `listen`."""
    recovers: bool = True
    """A job is known by its id to another process too, so that a finished result can be adopted."""
    cancels: bool = True
    chooses_id: bool = True
    """The id is ours. Where the service gives its own, `submit` returns that, and it is stored after the submission."""


class MarkStatus(StrEnum):
    """Where a job stands with its service, in its row and in Redis (S3-04)."""

    SUBMITTED = "submitted"
    ATTACHED = "attached"
    """Another process had submitted it."""
    CHECKED = "checked"
    """It went quiet, and the service was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMark:
    external_id: str
    status: MarkStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of a job, where it lies."""

    name: str
    uri: str
    bytes: int
    sha256: str
    content_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """Whether a service can take jobs, and what it says of its machine."""

    fault: str | None = None
    """Why not, for a person."""
    version: str | None = None
    device: str | None = None
    vram_total_mb: int | None = None
    vram_free_mb: int | None = None
    queued: int | None = None
    working_on: str | None = None
    """The job that it is at, or has to begin next; None while it has nothing to do, or does not say."""
