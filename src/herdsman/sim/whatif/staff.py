"""Machines as the rows and listings that the judgement is shown. Only what has changed is made anew."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from herdsman.core.fleet import HeldJob, SeenWorker
from herdsman.core.instances import Instance, InstanceRef, InstanceState
from herdsman.core.model import DEFAULT_POOL, ClaimKey, JobId, WorkerId
from herdsman.core.states import WorkerState
from herdsman.sim.whatif.world import NO_JOB, Machine

BEYOND = timedelta(days=365 * 100)
"""A pretended worker is never silent and its job never stuck: their last sign of life is always in the future."""

_Face = tuple[WorkerState, int, bool, float | None, float | None, float | None]


@dataclass(slots=True, eq=False)
class Worker:
    machine: Machine
    state: WorkerState
    entered: float
    instance: Instance
    end_asked_at: float | None = None
    absent_since: float | None = None
    seen: SeenWorker | None = None
    face: _Face | None = None
    """What `seen` was made from."""


class Staff:
    def __init__(self, start: datetime, price: Decimal) -> None:
        self.workers: dict[WorkerId, Worker] = {}
        self._start = start
        self._price = price

    def add(self, machine: Machine) -> None:
        name = f"w{machine.number}"
        state = InstanceState.STARTING if machine.hopeless else InstanceState.RUNNING
        instance = Instance(ref=InstanceRef(name), name=name, state=state)
        self.workers[WorkerId(name)] = Worker(machine, WorkerState.SPAWNING, machine.created, instance)

    def move(self, worker_id: WorkerId, state: WorkerState, now: float) -> None:
        worker = self.workers[worker_id]
        worker.state, worker.entered = state, now

    def look(self, now: float) -> tuple[tuple[SeenWorker, ...], tuple[Instance, ...]]:
        seen: list[SeenWorker] = []
        listed: list[Instance] = []
        for name, worker in self.workers.items():
            if worker.machine.ended is None:
                listed.append(worker.instance)
            elif worker.absent_since is None:
                worker.absent_since = now
            seen.append(self._seen(name, worker))
        return tuple(seen), tuple(listed)

    def _seen(self, name: WorkerId, worker: Worker) -> SeenWorker:
        machine = worker.machine
        face = (
            worker.state,
            machine.job,
            machine.ready,
            machine.free_since,
            worker.absent_since,
            worker.end_asked_at,
        )
        if worker.seen is None or worker.face != face:
            worker.seen, worker.face = self._made(name, worker), face
        return worker.seen

    def _made(self, name: WorkerId, worker: Worker) -> SeenWorker:
        machine = worker.machine
        old = worker.seen
        if old is not None and old.state is worker.state and worker.state is WorkerState.ACTIVE:
            return replace(old, job=self._held(machine), idle_since=self._at(machine.free_since))
        return SeenWorker(
            id=name,
            pool=DEFAULT_POOL,
            state=worker.state,
            created_at=self._start + timedelta(seconds=machine.created),
            entered_state_at=self._start + timedelta(seconds=worker.entered),
            instance_name=worker.instance.name,
            instance_ref=worker.instance.ref,
            last_heartbeat=self._start + BEYOND if machine.ready else None,
            ready=machine.ready,
            gpu_seen=machine.ready or None,
            job=self._held(machine),
            idle_since=self._at(machine.free_since),
            jobs_done=machine.done,
            end_asked_at=self._at(worker.end_asked_at),
            absent_since=self._at(worker.absent_since),
            cost_per_hour=self._price,
        )

    def _held(self, machine: Machine) -> HeldJob | None:
        if machine.job == NO_JOB:
            return None
        key = ClaimKey(JobId(str(machine.job)), 1)
        return HeldJob(
            key=key, since=self._start + BEYOND, begun=self._start + timedelta(seconds=machine.began)
        )

    def _at(self, seconds: float | None) -> datetime | None:
        return None if seconds is None else self._start + timedelta(seconds=seconds)
