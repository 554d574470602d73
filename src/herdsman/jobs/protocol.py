"""What passes between a worker and the queue: asked for, kept alive, and ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from herdsman.errors import InvalidRequest
from herdsman.ids import check_model
from herdsman.jobs.model import Claim, ClaimKey, Failure, FailureClass
from herdsman.states import JobStatus

if TYPE_CHECKING:  # a handler process has no use for the fleet, and starts sooner
    from herdsman.fleet.model import GpuReport

MOST_AT_ONCE = 100
"""How many jobs one worker may hold: a GPU batch, not a hoard."""
SLOTS = 10_000
"""Slots are numbered below this: who takes jobs ahead counts on, and begins again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """What a worker asks for. It holds nothing, or a batch that is not full."""

    types: tuple[str, ...] = ()
    """The job types that it can run; empty means any."""
    most: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many jobs of a type it takes at once, for the types where that is more than one."""
    beside: int = 0
    """How many it holds already, all of the one type it asks for: the new ones join their batch."""
    begin: bool = False
    """The jobs are started with the claim: whoever asks will run them this moment."""
    resume: bool = False
    """An earlier answer was lost: what this worker holds and has not begun is given to it again (L1-17)."""
    models: tuple[str, ...] = ()
    """What it has loaded: jobs that name one of these are preferred."""
    ahead: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many jobs of a type it takes ahead: they follow in queue order behind what it works on, and are not begun. A
    job of another type, or beyond that number, is left to the request of a worker with free hands."""
    held: int = 0
    """How many claims it holds while it asks for more ahead, those included whose ends are told in the same request."""
    slot: int = 0
    """The first slot that it has free then. Where a claim is in it, an answer was lost, and nothing more is given out."""
    urgent_before: int | None = None
    """Only jobs before this place: it holds enough that may wait."""
    incarnation: str | None = None
    """Which process of the worker asks, as its token says: what one has begun is no other's (J11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    done: float
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLines:
    """A piece of what one attempt wrote; `first` counts its lines from 0, so that a piece may be sent twice."""

    first: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHeartbeat:
    """Everything that a worker reports with one heartbeat."""

    keys: tuple[ClaimKey, ...] = ()
    report: "GpuReport | None" = None
    progress: Mapping[ClaimKey, Progress] = field(default_factory=dict[ClaimKey, Progress])
    logs: Mapping[ClaimKey, LogLines] = field(default_factory=dict[ClaimKey, LogLines])
    models: tuple[str, ...] | None = None
    """What the worker has loaded now; None says nothing."""
    revision: int | None = None
    """The edition of its pool's model that it serves."""
    trouble: str | None = None
    """Why it could not load what it was told to; it goes on with what it had."""
    unfit: Mapping[str, str] | None = None
    """Types of jobs that it does not take at the moment, and why: their service is away; None says nothing."""
    begun: tuple[ClaimKey, ...] = ()
    """Claims that were taken ahead and have begun since: jobs that outlive a heartbeat are shown as running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a worker of a pool has to have loaded."""

    revision: int
    model: str | None = None
    adapter: str | None = None
    variant: str | None = None
    preload: tuple[str, ...] = ()
    """Further models that are loaded before the first job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """The answer to a heartbeat."""

    expires_at: datetime
    drain: bool = False
    """Take no new job; finish what is at hand and leave."""
    cancel: frozenset[ClaimKey] = frozenset()
    """Stop these jobs and say so: somebody cancelled them."""
    lost: Mapping[ClaimKey, str] = field(default_factory=dict[ClaimKey, str])
    """Claims that are another's by now, and why: stop, there is nothing to report."""
    load: Load | None = None
    """Serve this from now on: finish the job at hand, then start the handlers anew with it."""
    not_active: str | None = None
    """Why the worker is given no jobs yet, in words; None once it is active."""


@dataclass(frozen=True, slots=True)
class Done:
    key: ClaimKey
    result: object
    saved: timedelta | None = None
    """Where the result had been made before and was only found: the GPU time that this spared."""
    ran: timedelta | None = None
    """How long the job ran, for one whose start was never written."""


@dataclass(frozen=True, slots=True)
class Failed:
    key: ClaimKey
    failure: Failure
    ran: timedelta | None = None


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The job is unharmed and keeps its place; the attempt does not count against it."""

    key: ClaimKey
    reason: str
    begun: bool = True
    """Else the claim was taken ahead and never begun: it counts no attempt, nor an interruption (J14)."""

    @property
    def failure(self) -> Failure:
        return Failure(kind=FailureClass.INTERRUPTED, error=self.reason)


Ending = Done | Failed | GivenBack


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishResult:
    """What became of a job whose end was reported."""

    key: ClaimKey
    status: JobStatus | None = None
    """None when the report was refused."""
    refused: str | None = None
    stale: bool = False
    """The claim is another's by now; otherwise the report itself cannot be taken, and another one may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishAndClaim:
    """The answer to endings, with new work where it was asked for in the same word."""

    told: Sequence[FinishResult]
    claims: Sequence[Claim] = ()


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

    action: ClassVar = "complete_job"
    """The verdict in the words of logs and pages."""
    outputs: Mapping[str, object] = field(default_factory=dict[str, object])
    """As the service tells it; `fetch` makes the result of it."""
    seconds: float | None = None
    """How long the service worked on it, where it says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """It will come to no good end."""

    action: ClassVar = "fail_job"
    failure: Failure
    cancelled: bool = False
    """It was stopped from outside, which is no failure where we asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """It waits there, or runs. Two that are equal mean that nothing has moved."""

    action: ClassVar = "continue_monitoring"
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

    action: ClassVar = "return_to_queue"
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The service has said that it is over: look now."""


Verdict = Finished | Broken | Working | Unknown
Heard = Working | Ended


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
    """Where a job stands with its service, in its row and in Redis."""

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


MOST_SAVED = timedelta(days=3650)
"""More than any job takes: a larger number is a mistake of whoever reports it."""


def check_saved(saved: timedelta) -> None:
    if not timedelta(0) <= saved <= MOST_SAVED:
        raise InvalidRequest(
            f"saved is {saved.total_seconds():g} seconds: it must be from 0 to {MOST_SAVED.total_seconds():g};"
            " leave it out where nothing was recovered"
        )


MODEL = "HERDSMAN_MODEL"
ADAPTER = "HERDSMAN_ADAPTER"
VARIANT = "HERDSMAN_VARIANT"
REVISION = "HERDSMAN_REVISION"
PRELOAD = "HERDSMAN_PRELOAD"
VARIABLES = (MODEL, ADAPTER, VARIANT, REVISION, PRELOAD)
NOTHING = Load(revision=0)
"""For a pool that names no model."""


def to_variables(load: Load) -> dict[str, str]:
    """Only those that say something."""
    given = {
        MODEL: load.model,
        ADAPTER: load.adapter,
        VARIANT: load.variant,
        REVISION: str(load.revision) if load.revision else None,
        PRELOAD: ",".join(load.preload),
    }
    return {name: value for name, value in given.items() if value}


def from_variables(given: Mapping[str, str]) -> Load:
    """`InvalidRequest` names the variable that cannot be used."""
    revision = given.get(REVISION) or "0"
    if not (revision.isascii() and revision.isdecimal()):
        raise InvalidRequest(f"{REVISION} is {revision!r}: it must be a whole number")
    preload = tuple(part.strip() for part in given.get(PRELOAD, "").split(",") if part.strip())
    load = Load(
        revision=int(revision),
        model=given.get(MODEL) or None,
        adapter=given.get(ADAPTER) or None,
        variant=given.get(VARIANT) or None,
        preload=preload,
    )
    for name, value in ((MODEL, load.model), (ADAPTER, load.adapter), *((PRELOAD, each) for each in preload)):
        if value is not None:
            check_model(name, value)
    return load
