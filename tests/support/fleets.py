"""Fleets with everything that a test does not name filled in, and strategies that make any fleet."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from herdsman.fleet.model import FleetPolicy, Instance, InstanceRef, InstanceStatus, Promotion, Stamp
from herdsman.fleet.snapshot import (
    ClaimedJob,
    ListingFailed,
    PoolLife,
    PoolSnapshot,
    Snapshot,
    WorkerSnapshot,
)
from herdsman.ids import JobId, PoolId, WorkerId
from herdsman.jobs.model import ClaimKey
from herdsman.states import PoolStatus, WorkerStatus

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
POOL = PoolId("default")
INSTALLATION = "abcdef012345"


def a_name(worker: str, installation: str = INSTALLATION, number: int = 1) -> str:
    return f"gpu--test--{Stamp(installation, number).own_part(worker)}"


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def a_job(name: str = "j1", *, age: timedelta = timedelta(0), timeout: timedelta | None = None) -> ClaimedJob:
    return ClaimedJob(key=ClaimKey(JobId(name), 1), since=NOW - age, timeout=timeout)


def a_worker(
    name: str = "w1",
    status: WorkerStatus = WorkerStatus.ACTIVE,
    *,
    age: timedelta = timedelta(hours=1),
    beat_age: timedelta | None = timedelta(seconds=5),
    **values: Any,
) -> WorkerSnapshot:
    usual: dict[str, Any] = {
        "id": WorkerId(name),
        "pool": POOL,
        "status": status,
        "created_at": NOW - age,
        "entered_state_at": NOW - age,
        "instance_name": a_name(name),
        "instance_ref": InstanceRef(f"pod-{name}"),
        "last_heartbeat": None if beat_age is None else NOW - beat_age,
        "ready": True,
        "gpu_seen": True,
        "idle_since": NOW,
    }
    return WorkerSnapshot(**usual | values)


def an_instance(worker: WorkerSnapshot, state: InstanceStatus = InstanceStatus.RUNNING) -> Instance:
    ref = worker.instance_ref or InstanceRef(f"pod-{worker.id}")
    return Instance(ref=ref, name=worker.instance_name or "", status=state)


def a_snapshot(
    *workers: WorkerSnapshot,
    queued: int = 0,
    policy: FleetPolicy | None = None,
    instances: tuple[Instance, ...] | ListingFailed | None = None,
    orphans: tuple[str, ...] = (),
    **pool: Any,
) -> Snapshot:
    """Every living worker has its running instance, unless the test says otherwise; `orphans` are known as such."""
    running = tuple(an_instance(worker) for worker in workers if worker.alive and worker.absent_since is None)
    seen_pool = PoolSnapshot(id=POOL, policy=policy or FleetPolicy(min_workers=0), queued=queued, **pool)
    return Snapshot(
        now=NOW,
        pools=(seen_pool,),
        workers=workers,
        instances=running if instances is None else instances,
        installation=INSTALLATION,
        orphans=dict.fromkeys(orphans, NOW - minutes(1)),
    )


_AGES = st.integers(0, 10_000).map(seconds)


@st.composite
def workers(draw: st.DrawFn, number: int) -> WorkerSnapshot:
    state = draw(st.sampled_from(WorkerStatus))
    age = draw(_AGES)
    absent = draw(st.booleans())
    return a_worker(
        f"w{number}",
        state,
        age=age,
        beat_age=draw(st.none() | _AGES),
        ready=draw(st.booleans()),
        gpu_seen=draw(st.none() | st.booleans()),
        gpu_fault=draw(st.none() | st.just("Xid 79")),
        instance_ref=draw(st.none() | st.just(InstanceRef(f"pod-w{number}"))),
        job=draw(st.none() | _AGES.map(lambda old: a_job(f"j{number}", age=old))),
        idle_since=draw(st.none() | _AGES.map(lambda old: NOW - old)),
        end_asked_at=draw(st.none() | _AGES.map(lambda old: NOW - old)),
        absent_since=NOW - draw(_AGES) if absent else None,
        listed_at=draw(st.none() | _AGES.map(lambda old: NOW - old)),
        registered_at=draw(st.none() | _AGES.map(lambda old: NOW - old)),
        vram_at=draw(st.none() | _AGES.map(lambda old: NOW - old)),
        revision=draw(st.integers(0, 2)),
        wanted_revision=draw(st.integers(0, 2)),
    )


@st.composite
def lives(draw: st.DrawFn) -> PoolLife:
    return PoolLife(
        status=draw(st.sampled_from(PoolStatus)),
        revision=draw(st.integers(1, 3)),
        hold_ends_at=draw(st.none() | st.integers(-300, 300).map(lambda left: NOW + seconds(left))),
        waiting=draw(st.booleans()),
        ended_by_hold=draw(st.booleans()),
        max_lifetime=draw(st.none() | _AGES.filter(bool)),
        by_hand=draw(st.booleans()),
    )


@st.composite
def policies(draw: st.DrawFn) -> FleetPolicy:
    floor = draw(st.integers(0, 4))
    ceiling = draw(st.just(0) | st.integers(floor, 8))
    return FleetPolicy(
        min_workers=floor,
        max_workers=ceiling,
        jobs_per_worker=draw(st.integers(1, 5)),
        scaling=draw(st.sampled_from(["threshold", "workload"])),
        promotion=draw(st.sampled_from(Promotion)),
        idle_workers=draw(st.integers(0, 3)),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    fleet = tuple(draw(workers(number)) for number in range(draw(st.integers(0, 8))))
    states = st.sampled_from(InstanceStatus)
    there = tuple(
        an_instance(each, draw(states)) for each in fleet if each.absent_since is None and draw(st.booleans())
    )
    strays = tuple(
        Instance(ref=InstanceRef(f"stray-{number}"), name=a_name(f"stray-{number}"), status=draw(states))
        for number in range(draw(st.integers(0, 2)))
    )
    unseen = draw(st.booleans()) and draw(st.booleans())
    pool = PoolSnapshot(
        id=POOL,
        policy=draw(policies()),
        queued=draw(st.integers(0, 60)),
        failures=draw(st.integers(0, 6)),
        starts=draw(st.integers(0, 8)),
        last_scaled_at=draw(st.none() | _AGES.map(lambda old: NOW - old)),
        wait_until=draw(st.none() | st.just(NOW + minutes(1)) | st.just(NOW - minutes(1))),
        life=draw(st.none() | lives()),
        shares=draw(st.booleans()),
    )
    return Snapshot(
        now=NOW,
        pools=(pool,),
        workers=fleet,
        instances=ListingFailed("it is away") if unseen else (*there, *strays),
        most_together=draw(st.none() | st.integers(0, 8)),
        installation=INSTALLATION,
        orphans={each.ref: NOW - minutes(1) for each in strays},
        doubt=draw(st.sampled_from(("", "", "", "it may be a copy"))),
        beats_since=draw(st.none() | st.integers(-600, 600).map(lambda old: NOW - seconds(old))),
    )
