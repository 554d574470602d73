"""Who may use a GPU: the rules of leases, on plain values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from herdsman.errors import InvalidRequest
from herdsman.ids import WorkerId
from herdsman.jobs.rules import LARGEST_MEMORY_MB, check_name
from herdsman.states import LeaseState

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
    found = {
        each.gpu.uuid: (
            Obstacle.WAITS_BEHIND if each.gpu.uuid in barred else obstacle(each, wish, now, policy)
        )
        for each in could
    }
    fitting = [each for each in could if found[each.gpu.uuid] is None]
    if fitting:
        ordered = sorted(fitting, key=lambda each: (free_mb(each, policy, wish.worker_id), each.gpu.uuid))
        return Choice(fits=tuple(each.gpu.uuid for each in ordered))
    return Choice(refusal=_refusal(could, found, wish, policy))


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


SHORTEST_TTL = timedelta(seconds=1)
LONGEST_WAIT = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """What somebody asks for."""

    agent: str
    wish: Wish
    ttl: timedelta
    allow_cpu: bool = False
    token: str | None = None
    """Chosen by the caller, so that the same words may be sent twice."""
    metadata: dict[str, object] = field(default_factory=dict[str, object])


def check_request(asked: LeaseRequest) -> None:
    """Every refusal names the field, the value and the rule."""
    check_name("agent", asked.agent)
    if not 1 <= asked.wish.memory_mb <= LARGEST_MEMORY_MB:
        raise InvalidRequest(
            f"min_memory_mb is {shown(asked.wish.memory_mb)}: it must be from 1 to {LARGEST_MEMORY_MB}"
        )
    if asked.wish.node is not None:
        check_name("node", asked.wish.node)
    if asked.wish.gpu_index is not None and not 0 <= asked.wish.gpu_index < 2**31:
        raise InvalidRequest(f"gpu_index is {shown(asked.wish.gpu_index)}: it must be 0 or more")
    if asked.token is not None:
        check_name("token", asked.token)
        if len(asked.token) < 16:
            raise InvalidRequest(f"token has {len(asked.token)} characters: it must have from 16 to 64")


def check_ttl(seconds: float | None, policy: LeasePolicy) -> timedelta:
    if seconds is None:
        return policy.ttl
    shortest, longest = SHORTEST_TTL.total_seconds(), policy.longest_ttl.total_seconds()
    if not shortest <= seconds <= longest:
        raise InvalidRequest(
            f"ttl_seconds is {shown(seconds)}: it must be from {shortest:g} to {longest:g}"
            " (GPU_ORCHESTRATOR_LEASE_TTL)"
        )
    return timedelta(seconds=seconds)


def check_wait(seconds: float) -> timedelta:
    longest = LONGEST_WAIT.total_seconds()
    if not 0 <= seconds <= longest:
        raise InvalidRequest(f"wait_seconds is {shown(seconds)}: it must be from 0 to {longest:g}")
    return timedelta(seconds=seconds)


def shown(number: float) -> str:
    """A number that somebody sent; a huge one is cut short."""
    try:
        return str(number)[:40]
    except ValueError:  # an integer with thousands of digits
        return "a number with thousands of digits"


OVERTAKEN = timedelta(seconds=10)
"""So long a request that does not fit may be overtaken by smaller ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One that waits, as those behind it see it."""

    wish: Wish
    agent: str
    since: float
    """By a clock that only rises, in seconds."""
    could_hold: frozenset[str] = frozenset()


def barred_by(before: Iterable[Waiting], now: float) -> frozenset[str]:
    """The GPUs on which nobody behind these is served: one of them has been overtaken for long enough."""
    patient = [each for each in before if now - each.since >= OVERTAKEN.total_seconds()]
    return frozenset(uuid for each in patient for uuid in each.could_hold)


def as_hopeless(wish: Wish, refused: Wish) -> bool:
    """Whether a wish is at least as hard to grant as one that was refused a moment ago."""
    same = wish.node == refused.node and wish.gpu_index == refused.gpu_index
    return same and wish.memory_mb >= refused.memory_mb and (wish.exclusive or not refused.exclusive)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    token: str
    agent: str
    state: LeaseState
    reason: str
    mode: str
    node_id: str | None
    gpu_uuid: str | None
    gpu_index: int | None
    memory_mb: int
    exclusive: bool
    ttl: timedelta | None
    """None when it lives as long as a worker's claim."""
    seq: int
    worker_id: WorkerId | None
    created_at: datetime
    expires_at: datetime
    last_heartbeat: datetime | None
    ended_at: datetime | None
    overruled: str | None
    metadata: Mapping[str, object]

    def over(self, now: datetime) -> bool:
        """By its state, or by its time although nobody has marked it yet."""
        late = self.worker_id is None and self.expires_at <= now
        return self.state is not LeaseState.ACTIVE or late


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What somebody saw on a GPU."""

    at: datetime
    total_mb: int
    used_mb: int
    own_mb: int | None = 0
    """Memory of the worker that reports; None when it cannot tell its own from others'."""
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LastEnd:
    at: datetime
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What follows from a measurement."""

    outside_mb: int
    proven_at: datetime
    quarantine: str | None = None
    """Why the GPU must not be given out, though nobody holds it."""


def account(
    seen: Standing,
    found: Measurement,
    policy: LeasePolicy,
    *,
    reporter: WorkerId | None = None,
    last: LastEnd | None = None,
) -> Account:
    """Whose the memory is that was found in use. What is left of an ended lease is nobody's, and is waited for (L3)."""
    covered = _covered(seen, found, reporter)
    known = min(seen.gpu.outside_mb, found.used_mb)
    ended = last is not None and last.at >= seen.gpu.proven_at
    if not ended:
        # A holder may not have taken its memory yet, so while somebody holds the GPU what is known stays known.
        floor = known if seen.live and found.own_mb is not None else 0
        return Account(outside_mb=max(floor, found.used_mb - covered, 0), proven_at=found.at)
    assert last is not None
    left = found.used_mb - covered - known
    if found.at <= last.at:
        return Account(outside_mb=known, proven_at=seen.gpu.proven_at)
    if left <= policy.tolerance_mb:
        return Account(outside_mb=known, proven_at=found.at)
    if found.at - last.at <= policy.empty_within:
        return Account(outside_mb=known, proven_at=seen.gpu.proven_at)
    pids = ", ".join(map(str, found.pids[:8])) or "not named by the driver"
    left_behind = f"{left} MB are still in use after the lease of {last.agent[:80]} ended; processes: {pids}"[
        :255
    ]
    return Account(outside_mb=known, proven_at=seen.gpu.proven_at, quarantine=left_behind)


def _covered(seen: Standing, found: Measurement, reporter: WorkerId | None) -> int:
    """The memory that leases and the reporting worker itself explain."""
    if found.own_mb is None:
        return found.used_mb
    leased = sum(each.memory_mb for each in seen.live)
    theirs = sum(each.memory_mb for each in seen.others(reporter))
    return theirs + max(leased - theirs, found.own_mb)
