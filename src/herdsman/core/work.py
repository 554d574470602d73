"""What passes between a worker and the queue: asked for, kept alive, and ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from herdsman.core.gpu import GpuReport
from herdsman.core.model import Claim, ClaimKey, Failure
from herdsman.core.states import JobState

MOST_AT_ONCE = 100
"""How many jobs one worker may hold: a GPU batch, not a hoard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A worker asks for work. It holds nothing, or a batch that is not full."""

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
class Pulse:
    """Everything a worker has to say with one beat."""

    keys: tuple[ClaimKey, ...] = ()
    report: GpuReport | None = None
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
class Orders:
    """What a beat brings back."""

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


@dataclass(frozen=True, slots=True)
class Failed:
    key: ClaimKey
    failure: Failure


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The job is unharmed and keeps its place; the attempt does not count against it."""

    key: ClaimKey
    why: str


Ending = Done | Failed | GivenBack


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What became of a job whose end was reported."""

    key: ClaimKey
    state: JobState | None = None
    """None when the report was refused."""
    refused: str | None = None
    stale: bool = False
    """The claim is another's by now; otherwise the report itself cannot be taken, and another one may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The answer to endings, with new work where it was asked for in the same word."""

    told: Sequence[Told]
    claims: Sequence[Claim] = ()
