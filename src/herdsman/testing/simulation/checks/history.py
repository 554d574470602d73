"""What happened, as plain values: what the database wrote down, and what was really done outside of it.

Times are seconds on one clock for the whole history. A part that nobody recorded stays empty, and no check
finds anything in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One row of the audit; the audit lists them in the order in which they were committed."""

    kind: str
    """`job`, `worker`, `pool` or `lease`."""
    id: str
    seq: int
    old: str | None
    new: str
    reason: str = ""
    actor: str = ""
    at: float = 0.0
    token: int | None = None
    """Of a job: its claim token after this move, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An object as its table shows it in the end."""

    kind: str
    id: str
    status: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow(Row):
    kind: str = "job"
    claim_token: int = 0
    attempts: int = 0
    max_attempts: int | None = None
    """Its own limit; None for that of `Limits`."""
    interruptions: int = 0
    worker_losses: int = 0
    pool: str = ""
    priority: int = 0
    result: object = None
    created_at: float = 0.0
    run_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow(Row):
    kind: str = "worker"
    instance: str | None = None
    """The name of its pod, as it was asked for."""
    error_code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow(Row):
    kind: str = "lease"
    gpu: str | None = None
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """What the database says of one claim."""

    job_id: str
    token: int
    worker: str
    claimed_at: float
    ended_at: float | None = None
    outcome: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Somebody was told that the job was accepted."""

    job_id: str
    at: float
    priority: int = 0
    expected: object = None
    """The result that it must have, where it ends well."""
    delay_s: float = 0.0
    """How long it is to wait from when it was accepted."""
    concurrency_key: str | None = None
    unserved: bool = False
    """No worker can run it: it waits until somebody cancels it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Somebody was told that the job is cancelled, or will be."""

    job_id: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A worker was told that its ending was accepted; `state` is what the job became."""

    job_id: str
    token: int
    worker: str
    status: str
    at: float


@dataclass(slots=True, kw_only=True)
class Run:
    """A handler really worked on a job, from when to when; None while it still does."""

    job_id: str
    token: int
    worker: str
    began: float
    ended: float | None = None
    stopped_by: str = ""
    """`` for one that ended by itself."""
    process: str = ""
    """Who ran it; a worker may have more than one, one after the other or beside each other."""
    excused_until: float = -inf
    """Up to then it may go on beside another: its machine stood still, or the clock was set, and it could not know."""
    able_s: float | None = None
    """For how long its supervisor could have reported the end before the claim was over; None where nobody measured."""


@dataclass(slots=True, kw_only=True)
class Saved:
    """A handler looked for a checkpoint, and then saved one. Values only rise, whoever saves them."""

    job_id: str
    token: int
    value: int
    began: float
    """When it looked."""
    found: object = None
    kept: float | None = None
    """When it was told that its own is kept; None where it never was."""


@dataclass(slots=True, kw_only=True)
class Rendering:
    """What an external service really worked on."""

    job_id: str
    began: float
    ends_at: float
    cancelled: bool = False
    over_at: float = inf
    """When the service was asked to stop it, or forgot it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A worker lived, was awake, and could reach everybody but the database, from when to when."""

    worker: str
    since: float
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Nothing that a process said was heard, from when to when."""

    process: str
    since: float
    until: float


@dataclass(slots=True, kw_only=True)
class Pod:
    """What the provider really ran, and billed, by its own ledger."""

    name: str
    born: float
    died: float | None = None
    ours: bool = True
    """False for one of somebody else's."""
    ended_by_us: bool = False
    end_asked: float | None = None
    """When we first asked for its end."""
    exited: bool = False
    """It ended while it started, and the provider says so."""
    orphan: bool = False
    """It carries our name, and nobody of ours asked for it: it must be found, but no limit could prevent it."""
    started_by: str = ""
    """The database whose control plane asked for it, where there was more than one."""
    asked: float = -inf
    """When its start was asked for, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The control plane of a database asked the provider for the end of a pod."""

    pod: str
    database: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseCopy:
    """A copy of a database was put into use: beside the original, or in its place."""

    name: str
    of: str
    since: float
    adopted_at: float | None = None
    """When a person said that it goes on in place of the original."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """A backup took the place of the live database: what was written since then is forgotten."""

    at: float
    spawned: int
    """The number of the last start that the backup remembers."""
    recognised_at: float | None = None
    """When it said that it went back in time, and had raised its numbers."""
    adopted_at: float | None = None


@dataclass(slots=True, kw_only=True)
class Use:
    """One holder used a GPU from when it heard of its lease to when it last knew that it had it."""

    token: str
    gpu: str
    seq: int
    memory_mb: int
    exclusive: bool
    began: float
    ended: float
    asked: float = -inf
    """When it asked: what it was given is newer than all that had ended by then."""
    until: float = inf
    """The last moment that it may have gone on: its end less the margin."""
    late: str = ""
    """What a heartbeat after that was answered with, where one was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderWrite:
    """A fenced transaction of somebody who leads; listed in the order of the commits."""

    holder: str
    epoch: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What is in the streams in the end."""

    left: Mapping[str, int] = field(default_factory=dict[str, int])
    """Entries by stream; only those that have some."""
    held: Mapping[str, int] = field(default_factory=dict[str, int])
    """Entries that were handed out and not acknowledged, in the same way."""
    letters: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often each job is announced as dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    most_pods: int | None = None
    most_attempts: int = 3
    most_worker_losses: int = 2
    most_interruptions: int = 20
    rescue_s: float | None = None
    """Within so many seconds after its worker's last sign a job is taken back (J4)."""
    fence_s: float | None = None
    """Within so many seconds a worker that is cut off has stopped what it runs (W5)."""
    known_s: float | None = None
    """Within so many seconds a pod of ours that no row knows is ended (P3)."""
    report_s: float | None = None
    """A supervisor that is able to report for so many seconds has reported what has ended (J12)."""
    replaced_s: float | None = None
    """Within so many seconds a worker whose pod has exited while it started counts no more."""
    settled_s: float | None = None
    """Within so many seconds after the last fault every job has its end (J1)."""
    one_clock: bool = True
    """Whether the times that the database wrote can be compared with those of others."""
    most_overtakes: int | None = None
    """So many jobs that were queued later, and are not more urgent, may be claimed before one that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    moves: tuple[Move, ...] = ()
    rows: tuple[Row, ...] = ()
    """The final ones of all kinds; jobs as `JobRow`."""
    attempts: tuple[AttemptRow, ...] = ()
    submissions: tuple[Submission, ...] = ()
    asked: frozenset[str] = frozenset()
    """Jobs whose submission was never answered: each may be there or not."""
    cancels: tuple[Cancel, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    runs: tuple[Run, ...] = ()
    saves: tuple[Saved, ...] = ()
    renderings: tuple[Rendering, ...] = ()
    healthy: tuple[Health, ...] = ()
    outages: tuple[tuple[float, float], ...] = ()
    """Of the database, from when to when."""
    cuts: tuple[Cut, ...] = ()
    pods: tuple[Pod, ...] = ()
    ends: tuple[End, ...] = ()
    copies: tuple[DatabaseCopy, ...] = ()
    restores: tuple[Restore, ...] = ()
    uses: tuple[Use, ...] = ()
    gpu_mb: Mapping[str, int] = field(default_factory=dict[str, int])
    """The memory of each GPU that somebody used."""
    writes: tuple[LeaderWrite, ...] = ()
    hints: Hints | None = None
    """None where there were no streams."""
    limits: Limits = field(default_factory=Limits)
    last_fault_at: float = 0.0
    ended_at: float = 0.0
    """When the look at it was taken."""
    quiet: bool = True
    """Whether it was left alone long enough after the last fault that everything should have come to its end."""
    notes: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often each rare situation occurred."""
