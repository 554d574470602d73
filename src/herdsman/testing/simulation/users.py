"""The users of the fleet: they submit, retry what was not answered, cancel, drain, and repair what only people can."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from herdsman.context import Services
from herdsman.errors import Conflict, InvalidRequest, NotFound, StaleWrite, StoreUnavailable
from herdsman.fleet.commands import drain_worker
from herdsman.ids import DEFAULT_POOL, JobId, PoolId, WorkerId
from herdsman.jobs.commands import cancel_job, requeue_job, submit_job
from herdsman.jobs.model import NewJob, Submitted
from herdsman.limits.commands import pause, resume
from herdsman.pools.commands import drain_pool, start_pool
from herdsman.pools.rules import NewPool
from herdsman.redis.bus import StreamBus
from herdsman.redis.streams import BusUnavailable
from herdsman.states import JOB, JobStatus
from herdsman.testing.simulation.checks.history import Cancel, Submission
from herdsman.testing.simulation.faults import Fault
from herdsman.testing.simulation.handlers import BATCH, REMOTE, SINGLE, result_of
from herdsman.testing.simulation.scheduler import Process
from herdsman.testing.simulation.sim_bus import NAMES, Wakeup, WorldStreams
from herdsman.testing.simulation.sim_database import WorldDatabase
from herdsman.testing.simulation.sim_redis import WorldRedis
from herdsman.testing.simulation.world import World

THROUGH_REDIS = 0.3
"""The share of jobs that somebody adds to the stream himself."""
CHECKS, CHECK_S = 4, 6.0
JOB_S = (0.5, 2, 5, 12, 25, 40)
"""How long jobs take."""


@dataclass
class SubmitApi:
    world: World
    server: WorldRedis
    wakeup: Wakeup
    buses: dict[Process, StreamBus] = field(default_factory=dict[Process, StreamBus])

    def choose(self) -> Process | None:
        """The replica that somebody speaks to; None when none is there."""
        there = [process for process in self.buses if process.alive]
        return self.world.random.choice(there) if there else None

    def announce(self, at: Process | None, new: NewJob, done: Submitted) -> None:
        """After the commit, by the replica that did it; nobody says anything when it has died since."""
        if at is not None and at.alive:
            self.wakeup.notify()
            self.buses[at].announce_jobs([new], [done])

    def control(self, event: str) -> None:
        at = self.choose()
        if at is not None:
            self.buses[at].announce_control(event, by="somebody")

    def add(self, new: NewJob) -> None:
        """As with redis-cli, and again whenever nobody acknowledged it for a while: it is the same job."""
        world, streams = self.world, WorldStreams(self.server, NAMES, "people")
        texts = {name: getattr(new, name) for name in ("type", "job_id", "pool", "concurrency_key")}
        others: dict[str, object] = {
            "payload": new.payload,
            "priority": new.priority,
            "timeout_seconds": new.timeout and new.timeout.total_seconds(),
            "delay_seconds": new.delay and new.delay.total_seconds(),
            "gpu_memory_mb": new.gpu_memory_mb,
        }
        fields = {name: text for name, text in texts.items() if text is not None}
        fields |= {name: json.dumps(value) for name, value in others.items() if value is not None}
        while True:
            while True:
                try:
                    streams.order(NAMES.ingest, fields)
                    break
                except BusUnavailable:  # it may be there all the same
                    world.note("added_without_an_answer")
                    world.scheduler.sleep(world.random.uniform(0.5, 3))
            for _ in range(CHECKS):
                world.scheduler.sleep(CHECK_S)
                if new.job_id in self.server.acknowledged:
                    world.note("added_by_hand")
                    return
            world.note("added_again")


T = TypeVar("T")
RUNNING = 0.7
REFUSED = (Conflict, InvalidRequest, NotFound, StaleWrite)
AGENTS = ("anna", "bert", "carl")
UNSERVED = "unserved"
"""A type that no worker can run."""
NAMED = PoolId("named")
PAUSE_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a seed wants of its people."""

    jobs: int
    cancels: int = 0
    drains: int = 0
    requeues: int = 0
    pauses: int = 0
    unserved: int = 0
    """Jobs of a type that no worker can run; they are cancelled once all others have ended."""
    named_pool: bool = False
    """Some of the jobs are for a pool that a person asks for."""


@dataclass
class Users:
    _world: World
    _services: Services
    _database: WorldDatabase
    _demand: Demand
    _submit_api: SubmitApi | None = None
    """None where there are no streams."""
    _poisoned: bool = False
    """Each such job costs two workers, and their time: one in a world is enough."""
    _ids: list[JobId] = field(default_factory=list[JobId])
    _unserved: list[JobId] = field(default_factory=list[JobId])

    @property
    def content(self) -> bool:
        """All have been told that their jobs are accepted."""
        return len(self._world.books.submissions) == self._demand.jobs + self._demand.unserved

    def start(self) -> None:
        world, chance = self._world, self._world.random
        until = world.faults_until
        for number in range(self._demand.jobs):
            at = chance.uniform(0, until * 0.8)
            self._at(at, "submitter", lambda number=number: self._submit(number))
        for number in range(self._demand.jobs, self._demand.jobs + self._demand.unserved):
            at = chance.uniform(0, until * 0.4)
            self._at(at, "submitter", lambda number=number: self._submit(number, unserved=True))
        if self._demand.named_pool:
            new = NewPool(pool_id=NAMED)
            self._at(0.0, "pool", lambda: self._until_answered(lambda: start_pool(self._services, new)))
        self._tidy_up_from(until)
        for work, times in (
            (self._cancel, self._demand.cancels),
            (self._drain, self._demand.drains),
            (self._requeue, self._demand.requeues),
            (self._pause, self._demand.pauses),
        ):
            for _ in range(times):
                self._at(chance.uniform(5, until), work.__name__.strip("_"), work)

    def repair(self) -> None:
        """What only a person can: the provider's key is a good one again."""
        self._at(self._world.now, "operator", lambda: self._until_answered(lambda: resume(self._services, "all")))

    def repeat(self) -> None:
        """A backup took the place of the database: it holds the provider's refusal, the jobs and the pool of before."""
        self.repair()
        self._tidy_up_from(self._world.now)

    def _tidy_up_from(self, at: float) -> None:
        if self._demand.named_pool or self._demand.unserved:
            self._at(at, "tidier", self._tidy_up)

    def _at(self, at: float, name: str, work: Callable[[], object]) -> None:
        world = self._world
        person = world.process(name)
        # Who is gone before the answer comes has no promise from anybody.
        person.danger = 0.0

        def act() -> None:
            world.scheduler.sleep(at - world.now)
            work()

        world.start(person, name, act)

    def _submit(self, number: int, *, unserved: bool = False) -> None:
        world, submit_api = self._world, self._submit_api
        job_id = JobId(f"job-{number}")
        fields = self._job_fields(number)
        if unserved:
            fields |= {"type": UNSERVED, "delay": None, "concurrency_key": None, "pool": DEFAULT_POOL}
            self._unserved.append(job_id)
        else:
            self._ids.append(job_id)
        new = NewJob(job_id=job_id, **fields)
        if submit_api is not None and world.random.random() < THROUGH_REDIS:
            submit_api.add(new)
        else:
            at = None if submit_api is None else submit_api.choose()
            done = self._until_answered(lambda: submit_job(self._services, new))
            if submit_api is not None and done is not None:
                submit_api.announce(at, new, done)
        payload: Any = new.payload
        world.books.submissions[job_id] = Submission(
            job_id=job_id,
            at=world.now,
            priority=new.priority,
            expected=result_of(job_id, payload),
            delay_s=0.0 if new.delay is None else new.delay.total_seconds(),
            concurrency_key=new.concurrency_key,
            unserved=unserved,
        )

    def _job_fields(self, number: int) -> dict[str, Any]:
        world, chance = self._world, self._world.random
        payload: dict[str, Any] = {"number": number, "seconds": round(chance.choice(JOB_S), 1)}
        fields: dict[str, Any] = {
            "type": chance.choice((SINGLE, SINGLE, SINGLE, BATCH, BATCH, REMOTE)),
            "payload": payload,
            "priority": chance.choice((0, 0, 0, 5, -5)),
            "timeout": timedelta(seconds=60),
            "agent": chance.choice(AGENTS),
        }
        if self._demand.named_pool and chance.random() < 0.4:
            fields["pool"] = NAMED
        if chance.random() < 0.15:
            fields["delay"] = timedelta(seconds=chance.uniform(1, 20))
        if chance.random() < 0.2:
            fields["concurrency_key"] = "alone"
        if chance.random() < 0.3:
            fields["gpu_memory_mb"] = 12_000
        if fields["type"] == REMOTE:
            return fields
        if chance.random() < 0.25:
            payload["saves"] = True
        payload["bad_attempts"] = chance.choice((1, 2, 9))
        if not self._poisoned and world.strikes(Fault.POISON):
            payload["poison"] = self._poisoned = True
        elif world.strikes(Fault.CRASHING_HANDLER):
            payload["crashes"] = True
        elif world.strikes(Fault.FAILING_HANDLER):
            payload["fails"] = chance.choice(("job_error", "infrastructure", "out_of_memory", "user_error"))
        elif world.strikes(Fault.HANGING_HANDLER):
            payload["hangs"], fields["timeout"] = chance.choice((1, 9)), timedelta(seconds=12)
            return fields
        if world.strikes(Fault.DEAF_HANDLER):
            payload["deaf"] = True
        return fields

    def _cancel(self) -> None:
        """Mostly one that runs: there it is a race with the end of the job."""
        running = [JobId(each.job_id) for each in self._world.books.runs if each.ended is None]
        chance = self._world.random
        job_id = chance.choice(running) if running and chance.random() < RUNNING else self._some_job()
        if job_id is None:
            return
        status = self._until_answered(lambda: cancel_job(self._services, job_id))
        if status is not None and status in (JobStatus.CANCELLED, JobStatus.CLAIMED, JobStatus.RUNNING):
            self._world.note(f"cancelled:{status}")
            self._world.books.cancels.append(Cancel(job_id=job_id, at=self._world.now))

    def _requeue(self) -> None:
        job_id = self._some_job()
        if job_id is not None:
            self._until_answered(lambda: requeue_job(self._services, job_id))

    def _drain(self) -> None:
        worker = WorkerId(f"w{self._world.random.randint(1, 4)}")
        self._until_answered(lambda: drain_worker(self._services, worker))
        if self._submit_api is not None:
            self._submit_api.control("drain")

    def _pause(self) -> None:
        """Jobs of one type wait; those of the other do not."""
        kind = self._world.random.choice((SINGLE, BATCH))
        self._until_answered(lambda: pause(self._services, f"type:{kind}", duration=timedelta(seconds=PAUSE_S)))
        self._world.note("type_paused")

    def _tidy_up(self) -> None:
        """J13: what nobody can run must not keep the others waiting, so it is cancelled only once they have ended."""
        world, ended = self._world, ", ".join(f"'{status}'" for status in sorted(JOB.terminal))
        query = f"SELECT count(*) FROM orchestrator_jobs WHERE status NOT IN ({ended}) AND type <> '{UNSERVED}'"

        def served() -> bool:
            with self._database.aside() as database:
                return database.read(lambda tx: tx.scalar(query)) == 0

        while not (self.content and served()):
            world.scheduler.sleep(5)
        if self._unserved:
            world.note("unserved_waited")
        for job_id in self._unserved:
            if self._until_answered(lambda job_id=job_id: cancel_job(self._services, job_id)) is not None:
                world.books.cancels.append(Cancel(job_id=job_id, at=world.now))
        if self._demand.named_pool:
            self._until_answered(lambda: drain_pool(self._services, NAMED))

    def _some_job(self) -> JobId | None:
        return self._world.random.choice(self._ids) if self._ids else None

    def _until_answered(self, word: Callable[[], T]) -> T | None:
        """None for what is refused."""
        world = self._world
        while True:
            try:
                return word()
            except REFUSED:
                return None
            except StoreUnavailable:
                world.note("repeated_by_a_person")
                world.scheduler.sleep(world.random.uniform(0.5, 3))
