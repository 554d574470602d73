"""Who may use a GPU: the rules of leases, on plain values."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from herdsman.core.model import WorkerId

MARGIN_SHARE = 4
"""Of a short lease the margin is no more than this part."""


class LeaseMode(StrEnum):
    OFF = "off"
    """Nobody is given a lease, and jobs run without one."""
    SHADOW = "shadow"
    """Leases are written down and never refused: what would have been is counted."""
    ON = "on"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePolicy:
    mode: LeaseMode = LeaseMode.ON
    ttl: timedelta = timedelta(seconds=60)
    """For who names none."""
    longest_ttl: timedelta = timedelta(hours=1)
    margin: timedelta = timedelta(seconds=5)
    """So long before its end a holder stops."""
    reserve_mb: int = 0
    """Memory of every GPU that is never given out."""
    tolerance_mb: int = 512
    """So much may be left in use on a GPU that counts as empty: the driver's own share of a process."""
    silent_after: timedelta = timedelta(seconds=60)
    """A GPU whose memory nobody has measured for so long is not given out."""
    empty_within: timedelta = timedelta(seconds=10)
    """So long after the end of a lease its memory may still be in use before the GPU is quarantined."""

    def margin_of(self, ttl: timedelta) -> timedelta:
        return min(self.margin, ttl / MARGIN_SHARE)


class Obstacle(StrEnum):
    """Why no lease is given. Stable codes, the one first that goes away soonest."""

    UNPROVEN = "unproven"
    """A lease has just ended, and nobody has looked since whether its memory is free."""
    NOT_EMPTY = "not_empty"
    """A lease has ended, and its memory is still in use."""
    MEMORY_IN_USE = "memory_in_use"
    """What is leased would leave room, but the memory is in use now."""
    LEASED = "leased"
    HELD_ALONE = "held_alone"
    """Somebody has all of the GPU."""
    SHARED = "shared"
    """All of it was asked for, and others are on it."""
    WAITS_BEHIND = "waits_behind"
    """Somebody who asked before waits for the same GPU."""
    AGENT_LIMIT = "agent_limit"
    OUTSIDERS = "outsiders"
    """Processes without a lease have the memory."""
    GPU_SILENT = "gpu_silent"
    QUARANTINED = "quarantined"
    NO_GPU = "no_gpu"
    TOO_LARGE = "too_large"

    @property
    def final(self) -> bool:
        """Waiting does not help."""
        return self is Obstacle.TOO_LARGE


RETRY_AFTER: dict[Obstacle, timedelta] = {
    Obstacle.UNPROVEN: timedelta(seconds=2),
    Obstacle.NOT_EMPTY: timedelta(seconds=5),
    Obstacle.GPU_SILENT: timedelta(seconds=30),
    Obstacle.QUARANTINED: timedelta(seconds=30),
    Obstacle.NO_GPU: timedelta(seconds=30),
    Obstacle.TOO_LARGE: timedelta(seconds=300),
}
USUAL_RETRY = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One card, as it was measured last."""

    uuid: str
    node_id: str
    index: int
    name: str = ""
    worker_id: WorkerId | None = None
    """Who reports it; None when its node does."""
    total_mb: int
    used_mb: int = 0
    outside_mb: int = 0
    """Memory of processes that hold no lease."""
    utilisation: int | None = None
    processes: Sequence[Sequence[int | None]] = ()
    measured_at: datetime
    proven_at: datetime
    """The last measurement that found nothing but what leases and known outsiders explain."""
    lease_seq: int = 0
    quarantined_at: datetime | None = None
    quarantine_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A live lease on a GPU."""

    memory_mb: int
    exclusive: bool = False
    worker_id: WorkerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A GPU with all that counts when it is given out."""

    gpu: Gpu
    live: tuple[Held, ...] = ()
    ends: tuple[tuple[datetime, WorkerId | None], ...] = ()
    """Leases that ended since the GPU was proven: when, and whose worker's they were."""

    def others(self, worker_id: WorkerId | None) -> tuple[Held, ...]:
        """Leases of one worker do not stand in its own way."""
        return tuple(each for each in self.live if worker_id is None or each.worker_id != worker_id)

    def leased_mb(self, worker_id: WorkerId | None = None) -> int:
        return sum(each.memory_mb for each in self.others(worker_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    memory_mb: int
    exclusive: bool = False
    node: str | None = None
    gpu_index: int | None = None
    worker_id: WorkerId | None = None
    """A worker that asks for a GPU of its own."""

    def could_be(self, gpu: Gpu, policy: LeasePolicy) -> bool:
        """Whether it could ever be given, were the GPU empty."""
        named = self.node in (None, gpu.node_id) and self.gpu_index in (None, gpu.index)
        return named and self.memory_mb <= gpu.total_mb - policy.reserve_mb


def obstacle(seen: Standing, wish: Wish, now: datetime, policy: LeasePolicy) -> Obstacle | None:
    """What keeps the wish from being granted on this GPU; None when nothing does (L1, L3)."""
    return _unusable(seen, wish, now, policy) or _no_room(seen, wish, policy)


def free_mb(seen: Standing, policy: LeasePolicy, worker_id: WorkerId | None = None) -> int:
    """What a lease may have at most: a worker's own memory is free for the worker itself."""
    room = usable_mb(seen.gpu, policy) - seen.leased_mb(worker_id)
    if worker_id is None:
        room = min(room, seen.gpu.total_mb - policy.reserve_mb - seen.gpu.used_mb)
    return max(0, room)


def usable_mb(gpu: Gpu, policy: LeasePolicy) -> int:
    return gpu.total_mb - policy.reserve_mb - gpu.outside_mb


def _unusable(seen: Standing, wish: Wish, now: datetime, policy: LeasePolicy) -> Obstacle | None:
    gpu = seen.gpu
    if gpu.quarantined_at is not None:
        return Obstacle.QUARANTINED
    # A worker's old measurements are a warning for people; its supervisor knows that its own jobs are gone.
    if wish.worker_id is None and now - gpu.measured_at > policy.silent_after:
        return Obstacle.GPU_SILENT
    ends = [at for at, worker in seen.ends if worker is None or worker != wish.worker_id]
    unproven = [at for at in ends if at >= gpu.proven_at]
    if not unproven:
        return None
    return Obstacle.NOT_EMPTY if gpu.measured_at > max(unproven) else Obstacle.UNPROVEN


def _no_room(seen: Standing, wish: Wish, policy: LeasePolicy) -> Obstacle | None:
    others = seen.others(wish.worker_id)
    if any(each.exclusive for each in others):
        return Obstacle.HELD_ALONE
    if wish.exclusive and others:
        return Obstacle.SHARED
    if wish.exclusive and seen.gpu.outside_mb > policy.tolerance_mb:
        return Obstacle.OUTSIDERS
    if wish.memory_mb > usable_mb(seen.gpu, policy):
        return Obstacle.OUTSIDERS
    if wish.memory_mb > usable_mb(seen.gpu, policy) - seen.leased_mb(wish.worker_id):
        return Obstacle.LEASED
    return Obstacle.MEMORY_IN_USE if wish.memory_mb > free_mb(seen, policy, wish.worker_id) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    reason: Obstacle
    detail: str
    """A sentence with the numbers."""
    retry_after: timedelta = USUAL_RETRY
    could_hold: frozenset[str] = frozenset()
    """The GPUs that could be given once they are free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Where a wish can be granted, the tightest fit first; or why nowhere."""

    fits: tuple[str, ...] = ()
    refusal: Refusal | None = None


def choose(
    seen: Sequence[Standing],
    wish: Wish,
    now: datetime,
    policy: LeasePolicy,
    barred: frozenset[str] = frozenset(),
) -> Choice:
    """Best fit: what is left over stays in as few large pieces as possible. `barred` GPUs are promised to others."""
    could = [each for each in seen if wish.could_be(each.gpu, policy)]
    if not could:
        return Choice(refusal=_never(seen, wish, policy))
    found = {each.gpu.uuid: _hindered(each, wish, now, policy, barred) for each in could}
    fitting = [each for each in could if found[each.gpu.uuid] is None]
    if fitting:
        ordered = sorted(fitting, key=lambda each: (free_mb(each, policy, wish.worker_id), each.gpu.uuid))
        return Choice(fits=tuple(each.gpu.uuid for each in ordered))
    return Choice(refusal=_refusal(could, found, wish, policy))


def _hindered(
    seen: Standing, wish: Wish, now: datetime, policy: LeasePolicy, barred: frozenset[str]
) -> Obstacle | None:
    return Obstacle.WAITS_BEHIND if seen.gpu.uuid in barred else obstacle(seen, wish, now, policy)


def _never(seen: Sequence[Standing], wish: Wish, policy: LeasePolicy) -> Refusal:
    anywhere = Wish(memory_mb=0, node=wish.node, gpu_index=wish.gpu_index)
    named = [each.gpu for each in seen if anywhere.could_be(each.gpu, policy)]
    if not named:
        where = "" if wish.node is None else f" of node {wish.node}"
        which = "" if wish.gpu_index is None else f" with index {wish.gpu_index}"
        said = f"no GPU{where}{which} is known here: nodes report theirs with their workers' heartbeats"
        return _because(Obstacle.NO_GPU, said)
    largest = max(gpu.total_mb - policy.reserve_mb for gpu in named)
    said = f"{wish.memory_mb} MB were asked for, the largest GPU that is known has {largest} MB to give"
    return _because(Obstacle.TOO_LARGE, said)


def _refusal(
    could: Sequence[Standing], found: dict[str, Obstacle | None], wish: Wish, policy: LeasePolicy
) -> Refusal:
    """Of all that stands in the way, what will be gone first; with the GPU that has the most to give."""
    order = list(Obstacle)
    reason = min((each for each in found.values() if each is not None), key=order.index)
    of_it = [each for each in could if found[each.gpu.uuid] is reason]
    best = max(of_it, key=lambda each: free_mb(each, policy))
    gpu, leased = best.gpu, best.leased_mb()
    said = (
        f"{wish.memory_mb} MB were asked for{' on a GPU of its own' if wish.exclusive else ''}; of {len(could)} GPUs"
        f" that could hold them the nearest is {gpu.node_id}/{gpu.index} ({_WORDS[reason]}): {gpu.total_mb} MB in all,"
        f" {leased} leased, {gpu.outside_mb} of outsiders, {gpu.used_mb} in use"
    )
    holding = frozenset(each.gpu.uuid for each in could)
    return _because(reason, said, holding)


_WORDS: dict[Obstacle, str] = {
    Obstacle.UNPROVEN: "a lease has just ended there, and nobody has measured since",
    Obstacle.NOT_EMPTY: "a lease has ended there, and its memory is still in use",
    Obstacle.MEMORY_IN_USE: "its memory is in use now",
    Obstacle.LEASED: "its memory is leased",
    Obstacle.HELD_ALONE: "somebody holds all of it",
    Obstacle.SHARED: "others are on it",
    Obstacle.WAITS_BEHIND: "somebody who asked before waits for it",
    Obstacle.OUTSIDERS: "processes without a lease have its memory",
    Obstacle.GPU_SILENT: "nobody has measured it lately",
    Obstacle.QUARANTINED: "it is quarantined",
}


def _because(reason: Obstacle, said: str, could_hold: frozenset[str] = frozenset()) -> Refusal:
    wait = RETRY_AFTER.get(reason, USUAL_RETRY)
    return Refusal(reason=reason, detail=said, retry_after=wait, could_hold=could_hold)
