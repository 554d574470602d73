"""Rules of GPU leases, on plain values: which GPU a request gets, why it gets none, whose memory is in use."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from herdsman.errors import InvalidRequest
from herdsman.fleet.model import GpuDevice
from herdsman.ids import LARGEST_MEMORY_MB, LONGEST, WorkerId, check_name
from herdsman.states import LeaseStatus


class LeaseMode(StrEnum):
    OFF = "off"
    """No leases are granted, and jobs run without one."""
    SHADOW = "shadow"
    """Leases are recorded and never refused; what would have been refused is counted."""
    ON = "on"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePolicy:
    mode: LeaseMode = LeaseMode.ON
    ttl: timedelta = timedelta(seconds=60)
    """For requests that name none."""
    longest_ttl: timedelta = timedelta(hours=1)
    margin: timedelta = timedelta(seconds=5)
    """A holder stops this long before the lease ends."""
    reserve_mb: int = 0
    """Memory of every GPU that is never given out."""
    tolerance_mb: int = 512
    """What may be in use on a GPU that counts as empty: the driver's own share of a process."""
    silent_after: timedelta = timedelta(seconds=60)
    """A GPU that was not measured for this long is not granted."""
    empty_within: timedelta = timedelta(seconds=10)
    """How long the memory of an ended lease may stay in use before the GPU is quarantined."""

    def margin_of(self, ttl: timedelta) -> timedelta:
        """No more than a quarter of a short lease."""
        return min(self.margin, ttl / 4)


class RefusalReason(StrEnum):
    """Why no lease is granted. Stable codes, ordered by how soon the reason usually goes away."""

    UNPROVEN = "unproven"
    NOT_EMPTY = "not_empty"
    MEMORY_IN_USE = "memory_in_use"
    LEASED = "leased"
    HELD_ALONE = "held_alone"
    SHARED = "shared"
    WAITS_BEHIND = "waits_behind"
    AGENT_LIMIT = "agent_limit"
    OUTSIDERS = "outsiders"
    GPU_SILENT = "gpu_silent"
    QUARANTINED = "quarantined"
    NO_GPU = "no_gpu"
    TOO_LARGE = "too_large"

    @property
    def final(self) -> bool:
        """Waiting does not help."""
        return self is RefusalReason.TOO_LARGE


_SENTENCES: dict[RefusalReason, str] = {
    RefusalReason.UNPROVEN: "a lease has just ended there, and the GPU was not measured since",
    RefusalReason.NOT_EMPTY: "a lease has ended there, and its memory is still in use",
    RefusalReason.MEMORY_IN_USE: "its memory is in use now",
    RefusalReason.LEASED: "its memory is leased",
    RefusalReason.HELD_ALONE: "an exclusive lease has all of it",
    RefusalReason.SHARED: "it has other leases",
    RefusalReason.WAITS_BEHIND: "an earlier request waits for it",
    RefusalReason.OUTSIDERS: "processes without a lease use its memory",
    RefusalReason.GPU_SILENT: "it was not measured lately",
    RefusalReason.QUARANTINED: "it is quarantined",
}
_RETRY_AFTER_S: dict[RefusalReason, int] = {
    RefusalReason.UNPROVEN: 2,
    RefusalReason.GPU_SILENT: 30,
    RefusalReason.QUARANTINED: 30,
    RefusalReason.NO_GPU: 30,
    RefusalReason.TOO_LARGE: 300,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    reason: RefusalReason
    detail: str
    """A sentence with the numbers."""
    could_hold: frozenset[str] = frozenset()
    """The GPUs that could be granted once they are free."""

    @property
    def retry_after(self) -> timedelta:
        return timedelta(seconds=_RETRY_AFTER_S.get(self.reason, 5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One card, as it was measured last."""

    uuid: str
    node_id: str
    index: int
    name: str = ""
    worker_id: WorkerId | None = None
    """The worker that reports it; None when its node does."""
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
class LiveLease:
    memory_mb: int
    exclusive: bool = False
    worker_id: WorkerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsage:
    """A GPU with its leases: all that decides whether it can be granted."""

    gpu: Gpu
    live: tuple[LiveLease, ...] = ()
    ends: tuple[tuple[datetime, WorkerId | None], ...] = ()
    """Leases that ended since the GPU was proven: when, and whose worker's they were."""

    def leased_mb(self, worker_id: WorkerId | None = None) -> int:
        """A worker's own leases do not count against it."""
        return sum(each.memory_mb for each in self.live if worker_id is None or each.worker_id != worker_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSpec:
    memory_mb: int
    exclusive: bool = False
    node: str | None = None
    gpu_index: int | None = None
    worker_id: WorkerId | None = None
    """Set when a worker takes one of its own GPUs."""

    def could_be(self, gpu: Gpu, policy: LeasePolicy) -> bool:
        """Whether it would fit on the empty GPU."""
        named = self.node in (None, gpu.node_id) and self.gpu_index in (None, gpu.index)
        return named and self.memory_mb <= gpu.total_mb - policy.reserve_mb

    def as_hard_as(self, refused: "LeaseSpec") -> bool:
        """Whether it is at least as hard to grant as one that was refused a moment ago."""
        same = self.node == refused.node and self.gpu_index == refused.gpu_index
        return same and self.memory_mb >= refused.memory_mb and (self.exclusive or not refused.exclusive)


def refusal_reason(usage: GpuUsage, spec: LeaseSpec, now: datetime, policy: LeasePolicy) -> RefusalReason | None:
    """Why the spec cannot be granted on this GPU; None when it can (L1, L3)."""
    gpu, mine = usage.gpu, spec.worker_id
    others = [each for each in usage.live if mine is None or each.worker_id != mine]
    usable = gpu.total_mb - policy.reserve_mb - gpu.outside_mb
    if gpu.quarantined_at is not None:
        return RefusalReason.QUARANTINED
    # A worker's old measurements are a warning for people; its supervisor knows that its own jobs are gone.
    if mine is None and now - gpu.measured_at > policy.silent_after:
        return RefusalReason.GPU_SILENT
    ends = [at for at, worker in usage.ends if worker is None or worker != mine]
    if unproven := [at for at in ends if at >= gpu.proven_at]:
        return RefusalReason.NOT_EMPTY if gpu.measured_at > max(unproven) else RefusalReason.UNPROVEN
    if any(each.exclusive for each in others):
        return RefusalReason.HELD_ALONE
    if spec.exclusive and others:
        return RefusalReason.SHARED
    if spec.memory_mb > usable or (spec.exclusive and gpu.outside_mb > policy.tolerance_mb):
        return RefusalReason.OUTSIDERS
    if spec.memory_mb > usable - usage.leased_mb(mine):
        return RefusalReason.LEASED
    return RefusalReason.MEMORY_IN_USE if spec.memory_mb > free_mb(usage, policy, mine) else None


def free_mb(usage: GpuUsage, policy: LeasePolicy, worker_id: WorkerId | None = None) -> int:
    """What a lease may have at most; a worker's own memory is free for the worker itself."""
    given = usage.gpu.total_mb - policy.reserve_mb
    room = given - usage.gpu.outside_mb - usage.leased_mb(worker_id)
    return max(0, room if worker_id is not None else min(room, given - usage.gpu.used_mb))


def choose(
    usages: Sequence[GpuUsage],
    spec: LeaseSpec,
    now: datetime,
    policy: LeasePolicy,
    reserved: frozenset[str] = frozenset(),
) -> Sequence[str] | Refusal:
    """The GPUs that can be granted, best fit first, so that free memory stays in few large pieces; or why none can.

    `reserved` GPUs are promised to others.
    """
    could = [each for each in usages if spec.could_be(each.gpu, policy)]
    if not could:
        anywhere = replace(spec, memory_mb=0)
        named = [each.gpu for each in usages if anywhere.could_be(each.gpu, policy)]
        if not named:
            where = "" if spec.node is None else f" of node {spec.node}"
            which = "" if spec.gpu_index is None else f" with index {spec.gpu_index}"
            said = f"no GPU{where}{which} is known here: nodes report theirs with their workers' heartbeats"
            return Refusal(reason=RefusalReason.NO_GPU, detail=said)
        largest = max(gpu.total_mb - policy.reserve_mb for gpu in named)
        said = f"{spec.memory_mb} MB were requested, and the largest known GPU has {largest} MB to give"
        return Refusal(reason=RefusalReason.TOO_LARGE, detail=said)
    reasons = {
        each.gpu.uuid: (
            RefusalReason.WAITS_BEHIND if each.gpu.uuid in reserved else refusal_reason(each, spec, now, policy)
        )
        for each in could
    }
    fitting = [each for each in could if reasons[each.gpu.uuid] is None]
    if fitting:
        ordered = sorted(fitting, key=lambda each: (free_mb(each, policy, spec.worker_id), each.gpu.uuid))
        return [each.gpu.uuid for each in ordered]
    reason = min((each for each in reasons.values() if each is not None), key=list(RefusalReason).index)
    nearest = [each for each in could if reasons[each.gpu.uuid] is reason]
    best = max(nearest, key=lambda each: free_mb(each, policy))
    gpu = best.gpu
    said = (
        f"{spec.memory_mb} MB were requested{' on a GPU of its own' if spec.exclusive else ''}; of {len(could)} GPUs"
        f" that could hold them the nearest is {gpu.node_id}/{gpu.index} ({_SENTENCES[reason]}): {gpu.total_mb} MB"
        f" in all, {best.leased_mb()} leased, {gpu.outside_mb} of outsiders, {gpu.used_mb} in use"
    )
    return Refusal(reason=reason, detail=said, could_hold=frozenset(each.gpu.uuid for each in could))


SHORTEST_TTL_S = 1
LONGEST_TTL_S = 3600
LONGEST_WAIT_S = 60
SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    agent: str
    spec: LeaseSpec
    ttl: timedelta
    allow_cpu: bool = False
    token: str | None = None
    """Chosen by the caller, so that the same request may be sent twice."""
    metadata: dict[str, object] = field(default_factory=dict[str, object])


def check_request(asked: LeaseRequest) -> None:
    """Every refusal names the field, the value and the rule."""
    check_name("agent", asked.agent)
    if not 1 <= asked.spec.memory_mb <= LARGEST_MEMORY_MB:
        raise InvalidRequest(
            f"min_memory_mb is {shown(asked.spec.memory_mb)}: it must be from 1 to {LARGEST_MEMORY_MB}"
        )
    if asked.spec.node is not None:
        check_name("node", asked.spec.node)
    if asked.spec.gpu_index is not None and not 0 <= asked.spec.gpu_index < 2**31:
        raise InvalidRequest(f"gpu_index is {shown(asked.spec.gpu_index)}: it must be 0 or more")
    if asked.token is not None:
        check_name("token", asked.token)
        if len(asked.token) < SHORTEST_TOKEN:
            longest = LONGEST["token"]
            raise InvalidRequest(
                f"token has {len(asked.token)} characters: it must have from {SHORTEST_TOKEN} to {longest}"
            )


def check_ttl(seconds: float | None, policy: LeasePolicy) -> timedelta:
    if seconds is None:
        return policy.ttl
    longest = policy.longest_ttl.total_seconds()
    if not SHORTEST_TTL_S <= seconds <= longest:
        raise InvalidRequest(
            f"ttl_seconds is {shown(seconds)}: it must be from {SHORTEST_TTL_S} to {longest:g}"
            " (GPU_ORCHESTRATOR_LEASE_TTL)"
        )
    return timedelta(seconds=seconds)


def check_wait(seconds: float) -> timedelta:
    if not 0 <= seconds <= LONGEST_WAIT_S:
        raise InvalidRequest(f"wait_seconds is {shown(seconds)}: it must be from 0 to {LONGEST_WAIT_S}")
    return timedelta(seconds=seconds)


def shown(number: float) -> str:
    """A number from a request, cut short when it is huge."""
    try:
        return str(number)[:40]
    except ValueError:  # an integer with thousands of digits
        return "a number with thousands of digits"


OVERTAKEN = timedelta(seconds=10)
"""How long smaller requests may overtake one that does not fit."""


def reserved_by(waiting: Iterable[tuple[float, Refusal]], now: float) -> frozenset[str]:
    """The GPUs that nobody behind these requests may have, since one of them was overtaken for long enough.

    Each comes with the monotonic second at which it began to wait, and its last refusal.
    """
    overtaken = [refusal for since, refusal in waiting if now - since >= OVERTAKEN.total_seconds()]
    return frozenset(uuid for each in overtaken for uuid in each.could_hold)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    token: str
    agent: str
    status: LeaseStatus
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
        """By its state, or by its time where the row is not marked yet."""
        late = self.worker_id is None and self.expires_at <= now
        return self.status is not LeaseStatus.ACTIVE or late


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    outside_mb: int
    proven_at: datetime
    quarantine: str | None = None
    """Why the GPU must not be granted, though it has no lease."""


def account(
    usage: GpuUsage,
    device: GpuDevice,
    at: datetime,
    policy: LeasePolicy,
    *,
    reporter: WorkerId | None = None,
    last: tuple[datetime, str] | None = None,
) -> Account:
    """Whose the memory in use is, as a node or the worker `reporter` measured it `at` that time.

    What the `last` lease to end, and its agent, left behind belongs to nobody, and is waited for (L3).
    """
    used, covered = device.used_mb, device.used_mb
    # A worker may not be able to tell its own memory from others'; a node has none.
    own_known = device.own_mb is not None or reporter is None
    if own_known:
        theirs = usage.leased_mb(reporter)
        covered = theirs + max(usage.leased_mb() - theirs, device.own_mb or 0)
    known = min(usage.gpu.outside_mb, used)
    if last is None or last[0] < usage.gpu.proven_at:
        # A holder may not have taken its memory yet, so known outsiders stay known while the GPU has a lease.
        floor = known if usage.live and own_known else 0
        return Account(outside_mb=max(floor, used - covered, 0), proven_at=at)
    (ended_at, agent), left = last, used - covered - known
    if at > ended_at and left <= policy.tolerance_mb:
        return Account(outside_mb=known, proven_at=at)
    quarantine = None
    if at - ended_at > policy.empty_within:
        pids = ", ".join(str(pid) for pid, _ in device.processes[:8]) or "not named by the driver"
        quarantine = f"{left} MB are still in use after the lease of {agent[:80]} ended; processes: {pids}"[:255]
    return Account(outside_mb=known, proven_at=usage.gpu.proven_at, quarantine=quarantine)
