"""Why a job waits, as stable codes, and what would make its pool add a worker."""

from bisect import bisect_left
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from herdsman.fleet.actions import ActionReason, Code, Note, SpawnWorker
from herdsman.fleet.decide import decide
from herdsman.fleet.snapshot import ListingFailed, Snapshot
from herdsman.ids import PoolId


class WaitCode(StrEnum):
    DELAYED = "DELAYED"
    PUT_OFF = "PUT_OFF"
    """A limit deferred it at submission."""
    BACKOFF = "BACKOFF"
    NOT_STAGED = "NOT_STAGED"
    """It is due, and no control plane is there to queue it."""
    PAUSED = "PAUSED"
    DRAINED = "DRAINED"
    POOL_CLOSED = "POOL_CLOSED"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    SERVICE_UNFIT = "SERVICE_UNFIT"
    """The service that its workers would run it on is away, or cannot take jobs."""
    AGENT_FULL = "AGENT_FULL"
    KEY_FULL = "KEY_FULL"
    NO_GPU = "NO_GPU"
    """The job needs one, or its pool requires one, and the workers that are there have none."""
    GPU_MEMORY = "GPU_MEMORY"
    MODEL = "MODEL"
    SILENT_WORKERS = "SILENT_WORKERS"
    NO_LEADER = "NO_LEADER"
    NO_CYCLE = "NO_CYCLE"
    """There is a leader, and it finishes no cycle."""
    NOBODY_KEEPS = "NOBODY_KEEPS"
    STARTING = "STARTING"
    BUSY = "BUSY"
    NO_WORKER = "NO_WORKER"
    """There is none, and the next cycle adds one."""
    NEXT = "NEXT"
    """It starts as soon as a free worker takes it."""


def utc(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextWorker:
    queued: int
    at_queued: int | None
    """The shortest queue for which a worker would be added; None when no queue is long enough."""
    blocked_by: ActionReason | None
    """What prevents it even then."""


def next_worker(snapshot: Snapshot, pool: PoolId) -> NextWorker:
    """Found by bisection: a longer queue never asks for fewer workers."""
    here = next(each for each in snapshot.pools if each.id == pool)
    # The same fleet with nothing but its size and its ceiling to count.
    bare = _with(snapshot, pool, wait_until=None, stopped_by=None, failures=0, starts=0, last_scaled_at=None)
    listed = bare.all_listed() if isinstance(snapshot.instances, ListingFailed) else bare
    free = replace(listed, spent={}, doubt="")
    policy = here.policy
    longest = here.queued + (policy.jobs_per_worker + 1) * (policy.max_workers + len(snapshot.workers) + 2)
    grows = _spawns(free, pool, longest)
    least = here.queued if grows else longest
    low = bisect_left(range(longest), x=True, lo=least, key=lambda queued: _spawns(free, pool, queued))
    actions = decide(_with(snapshot, pool, queued=low)).actions
    blocked_by = next((each.reason for each in actions if isinstance(each, Note) and each.about == pool), None)
    if blocked_by is None and not _spawns(snapshot, pool, low):
        blocked_by = ActionReason(
            Code.ENOUGH,
            "the fleet keeps its size for a while after a change",
            {"interval_s": policy.min_scaling_interval.total_seconds(), "alive": snapshot.alive(pool)},
        )
    return NextWorker(queued=here.queued, at_queued=low if grows else None, blocked_by=blocked_by)


def _spawns(snapshot: Snapshot, pool: PoolId, queued: int) -> bool:
    actions = decide(_with(snapshot, pool, queued=queued)).actions
    return any(isinstance(action, SpawnWorker) and action.pool == pool for action in actions)


def _with(snapshot: Snapshot, pool: PoolId, **changed: object) -> Snapshot:
    pools = tuple(replace(each, **changed) if each.id == pool else each for each in snapshot.pools)  # type: ignore[arg-type]
    return replace(snapshot, pools=pools)
