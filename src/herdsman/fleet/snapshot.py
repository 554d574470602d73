"""What the control loop decides on, as one frozen value with the time inside."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from itertools import chain

from herdsman.fleet.model import FleetPolicy, Instance, InstanceRef, InstanceStatus
from herdsman.fleet.scaling import OURS, Demand, ScalingPolicy
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs.model import ClaimKey
from herdsman.states import PoolStatus, WorkerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    key: ClaimKey
    since: datetime
    """Its last progress, or its start, or its claim: the last sign that it gets on."""
    timeout: timedelta | None = None
    begun: datetime | None = None
    """When the worker took it; None where only the last sign of it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSnapshot:
    id: WorkerId
    pool: PoolId
    status: WorkerStatus
    created_at: datetime
    entered_state_at: datetime
    instance_name: str | None
    """None for a worker that somebody started manually: there is nothing of ours to end."""
    instance_ref: InstanceRef | None = None
    last_heartbeat: datetime | None = None
    ready: bool | None = None
    """Whether its heartbeats say that jobs may come; None when they said nothing, as those of the tasks face do."""
    gpu_seen: bool | None = None
    """What its heartbeats say of its GPU; None when they said nothing."""
    gpu_fault: str | None = None
    vram_at: datetime | None = None
    disk_total_gb: float | None = None
    disk_free_gb: float | None = None
    """Of the disk that it was started on; None where nobody said."""
    job: ClaimedJob | None = None
    """The job that it holds; of a batch, the one that moved last."""
    batch: tuple[ClaimedJob, ...] = ()
    """The others of a batch."""
    failed_in_a_row: int = 0
    """Jobs that failed here one after the other, without one that was done in between."""
    idle_since: datetime | None = None
    """The end of its last job, or its promotion."""
    jobs_done: int = 0
    end_asked_at: datetime | None = None
    """When the provider was last asked to end its instance."""
    absent_since: datetime | None = None
    """Since when complete listings lack its instance."""
    error_code: str | None = None
    """Why it failed; None for one that did not."""
    listed_at: datetime | None = None
    """When a listing first had it."""
    registered_at: datetime | None = None
    """When its process last registered; heartbeats are due from then on."""
    cost_per_hour: Decimal = Decimal(0)
    revision: int = 0
    """The edition of its pool's model that it serves."""
    wanted_revision: int = 0
    """The one that it was assigned."""

    @property
    def alive(self) -> bool:
        """It may cost money: everything but what is confirmed to be gone."""
        return self.status is not WorkerStatus.TERMINATED


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLife:
    """What is to be known of a pool that was asked for by name, beside its fleet."""

    status: PoolStatus
    revision: int = 1
    hold_ends_at: datetime | None = None
    """When nobody will have used it for as long as it is held; None while something keeps it."""
    waiting: bool = False
    """Jobs wait for it, now or later."""
    ended_by_hold: bool = False
    """It drains because nobody used it, and not because somebody wants it gone."""
    max_lifetime: timedelta | None = None
    by_hand: bool = False
    """Its workers are started by somebody else: none are spawned, and their machines are not ours."""
    declared: bool = True
    """False for a pool that only its workers name: it is neither in the settings nor asked for."""

    @property
    def open(self) -> bool:
        return self.status in (PoolStatus.STARTING, PoolStatus.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    id: PoolId
    policy: FleetPolicy
    queued: int = 0
    failures: int = 0
    """Workers that turned out broken within the failure window, by the time they failed."""
    starts: int = 0
    """Workers that ended their start, well or badly, within the same window."""
    last_scaled_at: datetime | None = None
    wait_until: datetime | None = None
    """The provider had nothing to give, or asked us to wait; no spawn before then."""
    stopped_by: str | None = None
    """The provider said something that only a person can repair; no spawn until then."""
    life: PoolLife | None = None
    """None for a pool of the settings, which is always there."""
    shares: bool = False
    """Its workers count against the ceiling that several pools have together."""
    drained: str | None = None
    """Why a person lets all workers go; no spawn until it is resumed."""
    demand: Demand | None = None
    """Read only for a policy that forecasts: it costs some counting."""


@dataclass(frozen=True, slots=True)
class ListingFailed:
    """The provider could not list its instances. Nothing is ended on a partial snapshot."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    now: datetime
    pools: tuple[PoolSnapshot, ...] = ()
    workers: tuple[WorkerSnapshot, ...] = ()
    instances: tuple[Instance, ...] | ListingFailed = ()
    spent: Mapping[str, Decimal] = field(default_factory=dict[str, Decimal])
    """Money of the current `hour` and `day`."""
    most_together: int | None = None
    """Most workers of ours in all pools that share a ceiling."""
    policies: Mapping[str, ScalingPolicy] = field(default_factory=lambda: OURS)
    installation: str | None = None
    """The identity of the database; None before its first use."""
    orphans: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    """By their refs: since when every listing has had an instance that is ours and that no worker owns."""
    doubt: str = ""
    """Why the database may not be the one that the fleet belongs to; nothing is done then."""
    beats_since: datetime | None = None
    """Since when heartbeats could be written without a break, which may lie ahead; None where there was no break."""

    def since(self, instant: datetime) -> datetime:
        """From when the time since `instant` counts against a worker: not while nobody could be heard (P10)."""
        return instant if self.beats_since is None else max(instant, self.beats_since)

    @cached_property
    def instance_states(self) -> Mapping[InstanceRef, InstanceStatus]:
        """Empty when the provider could not be listed."""
        seen = () if isinstance(self.instances, ListingFailed) else self.instances
        return {each.ref: each.status for each in seen}

    def all_listed(self) -> "Snapshot":
        """As if the provider had listed the instance of every living worker as running."""
        named = ((each.instance_ref, each.instance_name) for each in self.workers if each.alive)
        running = InstanceStatus.RUNNING
        listed = tuple(Instance(ref=ref, name=name, status=running) for ref, name in named if ref and name)
        return replace(self, instances=listed)

    def runs(self, worker: WorkerSnapshot) -> bool:
        ref = worker.instance_ref
        return ref is not None and self.instance_states.get(ref) is InstanceStatus.RUNNING

    def of(self, pool: PoolId, *statuses: WorkerStatus) -> Iterator[WorkerSnapshot]:
        return chain.from_iterable(self._grouped.get((pool, status), ()) for status in statuses)

    def alive(self, pool: PoolId) -> int:
        return sum(len(self._grouped.get((pool, status), ())) for status in _ALIVE)

    def room_together(self) -> int | None:
        """How many more workers the pools that share a ceiling may have; None where there is no such ceiling."""
        if self.most_together is None:
            return None
        sharing = {pool.id for pool in self.pools if pool.shares}
        ours = sum(1 for each in self.workers if each.alive and each.instance_name and each.pool in sharing)
        return self.most_together - ours

    @cached_property
    def _grouped(self) -> Mapping[tuple[PoolId, WorkerStatus], Sequence[WorkerSnapshot]]:
        groups: dict[tuple[PoolId, WorkerStatus], list[WorkerSnapshot]] = {}
        for worker in self.workers:
            groups.setdefault((worker.pool, worker.status), []).append(worker)
        return groups


_ALIVE = tuple(status for status in WorkerStatus if status is not WorkerStatus.TERMINATED)
