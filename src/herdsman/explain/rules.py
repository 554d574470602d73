"""What a waiting job waits for: a stable code, a sentence, since when, and what would start it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from statistics import fmean, pstdev

from herdsman.fleet.actions import ActionReason, Code, Note, SpawnWorker
from herdsman.fleet.decide import decide
from herdsman.fleet.model import Instance, InstanceState
from herdsman.fleet.snapshot import ListingFailed, PoolSnapshot, Snapshot
from herdsman.ids import PoolId


class Block(StrEnum):
    DELAYED = "DELAYED"
    PUT_OFF = "PUT_OFF"
    """A limit at the door put it off."""
    BACKOFF = "BACKOFF"
    NOT_STAGED = "NOT_STAGED"
    """Its time has come, and nobody has queued it: no control plane is there."""
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
    """Somebody leads, and does nothing."""
    NOBODY_KEEPS = "NOBODY_KEEPS"
    STARTING = "STARTING"
    BUSY = "BUSY"
    NO_WORKER = "NO_WORKER"
    """None is there, and the next cycle makes one."""
    NEXT = "NEXT"
    """Nothing is in its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    code: str
    """A `Block`, or the code of a finding where a finding keeps the fleet from growing."""
    text: str
    since: datetime | None = None
    """None where nobody has written it down."""
    ends: str = ""
    """What would start the job."""

    @property
    def sentence(self) -> str:
        since = f", since {told(self.since)}" if self.since else ""
        return f"{self.text}{since}{self._then}"

    @property
    def short(self) -> str:
        """Without the moment since when it is so."""
        return f"{self.text}{self._then}"

    @property
    def _then(self) -> str:
        return f"; {self.ends}" if self.ends else ""


def told(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


NORMAL_80 = 0.8416
"""Four out of five values of a normal distribution lie below its mean plus so many deviations."""
LEAST_PROGRESS = 0.02
"""What a job says before it has begun in earnest is no measure of its speed."""


@dataclass(frozen=True, slots=True)
class Guess:
    """Seconds from now."""

    p50: float
    p80: float

    def after(self, earlier: "Guess") -> "Guess":
        return Guess(self.p50 + earlier.p50, self.p80 + earlier.p80)


NOW = Guess(0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a waiting job stands behind."""

    ahead: int
    """Jobs that go before it."""
    workers: int
    """Active ones, busy or not."""
    free: int = 0
    """Those that hold no job."""
    coming: int = 0
    """Workers that are starting."""
    delay: float = 0.0
    """Seconds until it may be given out at all."""


def quantile(sample: Sequence[float], share: float) -> float:
    """The value below which this share of the sample lies; between two of them, in proportion."""
    assert sample, "a quantile of nothing"
    ordered = sorted(sample)
    place = share * (len(ordered) - 1)
    low, high = math.floor(place), math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(sample: Sequence[float]) -> Guess:
    return Guess(quantile(sample, 0.5), quantile(sample, 0.8))


def start_of(line: Line, took: Sequence[float], boots: Sequence[float]) -> Guess | None:
    """When a waiting job starts; None when nothing is known that it could be told from."""
    workers, free, before = line.workers, line.free, NOW
    if workers == 0:
        if not boots:
            return None
        before = spread(boots)
        workers = free = max(1, line.coming)
    behind = line.ahead - free + 1
    waiting = NOW if behind <= 0 else shared(behind, workers, took)
    if waiting is None:
        return None
    # What has to wait for its time joins the line only then; meanwhile the line gets shorter.
    guess = waiting.after(before)
    return Guess(max(guess.p50, line.delay), max(guess.p80, line.delay))


def shared(jobs: int, workers: int, took: Sequence[float]) -> Guess | None:
    """How long until so many jobs have ended, when so many workers have their hands full."""
    if not took:
        return None
    mean, deviation = jobs * fmean(took), math.sqrt(jobs) * pstdev(took)
    return Guess(mean / workers, (mean + NORMAL_80 * deviation) / workers)


def finish_of(start: Guess | None, took: Sequence[float]) -> Guess | None:
    return None if start is None or not took else spread(took).after(start)


def rest_of(elapsed: float, progress: float | None, took: Sequence[float]) -> Guess | None:
    """Of a job that runs: by its own progress, or by those of the others that took longer than it has so far."""
    if progress is not None and progress >= LEAST_PROGRESS:
        rest = elapsed * (1 - progress) / progress
        return Guess(rest, rest * _wideness(took))
    longer = [each - elapsed for each in took if each > elapsed]
    return spread(longer) if longer else None


def _wideness(took: Sequence[float]) -> float:
    """How much longer than usual a slow one takes; half as long again where there is nothing to tell it from."""
    if not took:
        return 1.5
    usual = spread(took)
    return min(3.0, usual.p80 / usual.p50) if usual.p50 > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NextWorker:
    queued: int
    at_queued: int | None
    """The shortest queue for which a worker would be added; None when no queue is long enough."""
    blocked_by: ActionReason | None
    """What would stand in the way even then."""


def next_worker(seen: Snapshot, pool: PoolId) -> NextWorker:
    """A longer queue never asks for fewer workers, so the shortest one that asks for more can be halved in on."""
    here = _pool(seen, pool)
    # The same fleet where only its size and its ceiling count.
    open_pool = _with(seen, pool, wait_until=None, stopped_by=None, failures=0, starts=0, last_scaled_at=None)
    listed = _as_if_listed(seen) if isinstance(seen.instances, ListingFailed) else seen.instances
    free = replace(open_pool, spent={}, instances=listed, doubt="")
    policy = here.policy
    longest = here.queued + (policy.jobs_per_worker + 1) * (policy.max_workers + len(seen.workers) + 2)
    grows = _spawns(free, pool, longest)
    asks = _shortest(free, pool, here.queued, longest) if grows else longest
    return NextWorker(
        queued=here.queued, at_queued=asks if grows else None, blocked_by=_obstacle(seen, pool, asks)
    )


def _shortest(free: Snapshot, pool: PoolId, low: int, high: int) -> int:
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _spawns(free, pool, middle) else (middle + 1, high)
    return low


def _spawns(seen: Snapshot, pool: PoolId, queued: int) -> bool:
    actions = decide(_with(seen, pool, queued=queued)).actions
    return any(isinstance(action, SpawnWorker) and action.pool == pool for action in actions)


def _obstacle(seen: Snapshot, pool: PoolId, queued: int) -> ActionReason | None:
    actions = decide(_with(seen, pool, queued=queued)).actions
    said = next((each.why for each in actions if isinstance(each, Note) and each.about == pool), None)
    if said is not None or _spawns(seen, pool, queued):
        return said
    policy = _pool(seen, pool).policy
    return ActionReason(
        Code.ENOUGH,
        "the fleet keeps its size for a while after a change",
        {"interval_s": policy.min_scaling_interval.total_seconds(), "alive": seen.alive(pool)},
    )


def _as_if_listed(seen: Snapshot) -> tuple[Instance, ...]:
    return tuple(
        Instance(ref=worker.instance_ref, name=worker.instance_name, state=InstanceState.RUNNING)
        for worker in seen.workers
        if worker.alive and worker.instance_ref is not None and worker.instance_name is not None
    )


def _with(seen: Snapshot, pool: PoolId, **changed: object) -> Snapshot:
    pools = tuple(replace(each, **changed) if each.id == pool else each for each in seen.pools)  # type: ignore[arg-type]
    return replace(seen, pools=pools)


def _pool(seen: Snapshot, pool: PoolId) -> PoolSnapshot:
    return next(each for each in seen.pools if each.id == pool)
