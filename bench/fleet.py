"""A large fleet as the control loop finds it: every worker is active, beats, and has its instance at the provider."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from sqlalchemy import insert, select, update

from bench.backlog import settle
from herdsman.context import Services
from herdsman.db.schema import instances, jobs, past_attempts, workers
from herdsman.fleet.leader import LeaderPolicy, Leadership
from herdsman.fleet.model import FleetPolicy, Instance, InstanceRef, InstanceStatus, SpawnRequest
from herdsman.fleet.observe import Observer
from herdsman.fleet.scaling import OURS
from herdsman.fleet.snapshot import Snapshot
from herdsman.ids import DEFAULT_POOL, WorkerId
from herdsman.jobs.assign import claim_for
from herdsman.jobs.protocol import ClaimRequest
from herdsman.ports import SystemClock

AT_ONCE = 100


class Listed:
    """A provider that has its list at hand."""

    name = "listed"

    def __init__(self, listed: Sequence[Instance]) -> None:
        self._listed = listed

    def list_instances(self) -> Sequence[Instance]:
        return self._listed

    def spawn(self, request: SpawnRequest) -> Instance:
        raise NotImplementedError

    def find(self, ref: InstanceRef) -> Instance | None:
        raise NotImplementedError

    def terminate(self, ref: InstanceRef) -> None:
        raise NotImplementedError

    def logs(self, ref: InstanceRef, lines: int) -> Sequence[str]:
        raise NotImplementedError


@dataclass(frozen=True)
class Herd:
    observer: Observer
    epoch: int
    ATTEMPTS: ClassVar[int] = 5

    def look(self) -> Snapshot:
        return self.observer.observe(self.epoch)


def populate(services: Services, count: int) -> Herd:
    ids = [WorkerId(f"gpu-{number:06}") for number in range(count)]
    _enlist(services, ids)
    _give_history(services, ids)
    for start in range(0, count // 2, AT_ONCE):
        claim_for(services, dict.fromkeys(ids[start : min(start + AT_ONCE, count // 2)], ClaimRequest()))
    settle(services)
    leadership = Leadership(services.database, SystemClock(), "bench", LeaderPolicy(ttl=timedelta(hours=1)))
    term = leadership.campaign()
    assert term is not None
    observer = Observer(
        database=services.database,
        provider=Listed([_instance(worker_id) for worker_id in ids]),
        leadership=leadership,
        pools={DEFAULT_POOL: FleetPolicy(min_workers=count, max_workers=count)},
        scaling=OURS,
    )
    return Herd(observer, term.epoch)


def _enlist(services: Services, ids: Sequence[WorkerId]) -> None:
    now = services.database.read(lambda tx: tx.now())
    begin: dict[str, object] = {
        "status": "spawning",
        "reason": "registered",
        "actor": "leader",
        "version": 1,
        "metadata": {},
    }
    instants = dict.fromkeys(("created_at", "updated_at", "entered_state_at"), now)
    active = {"status": "active", "reason": "ready", "version": workers.c.version + 1}
    beating = {"last_heartbeat": now, "promoted_at": now, "ready": 1, "gpu_seen": 1, "vram_at": now}
    rows = [{**begin, **instants, "id": each, "pool": DEFAULT_POOL, **_named(each)} for each in ids]
    rents = [
        {
            "name": _instance(each).name, "worker_id": each, "pool": DEFAULT_POOL, "provider": "listed",
            "cost_per_hour": 0.5, "asked_at": now, "started_at": now,
        }
        for each in ids
    ]  # fmt: skip
    with services.database.engine.begin() as connection:
        connection.execute(insert(workers), rows)
        connection.execute(update(workers).values(**active, **beating))
        connection.execute(insert(instances), rents)


def _give_history(services: Services, ids: Sequence[WorkerId]) -> None:
    """The audit is not asked: it would refuse a past that it has not seen."""
    now = services.database.read(lambda tx: tx.now())
    with services.database.engine.begin() as connection:
        known = [row[0] for row in connection.execute(select(jobs.c.job_id).limit(len(ids)))]
        rows = [
            {
                "job_id": known[index % len(known)], "claim_token": 1000 + Herd.ATTEMPTS * index + number,
                "attempt": 1, "worker_id": each, "pool": DEFAULT_POOL,
                "claimed_at": now - timedelta(minutes=2), "ended_at": now - timedelta(minutes=1),
                "outcome": "done", "reason": "completed",
            }
            for index, each in enumerate(ids)
            for number in range(Herd.ATTEMPTS)
        ]  # fmt: skip
        connection.execute(insert(past_attempts), rows)


def _named(worker_id: WorkerId) -> dict[str, object]:
    instance = _instance(worker_id)
    return {"provider": "listed", "instance_name": instance.name, "instance_ref": instance.ref}


def _instance(worker_id: WorkerId) -> Instance:
    ref = InstanceRef(f"pod-{worker_id}")
    return Instance(ref=ref, name=f"herd--bench--{worker_id}", status=InstanceStatus.RUNNING)
