"""kill -9 of workers, handlers, API, leader and database: nothing is lost, done twice or thrown away (J1, J3, J11, J12)."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import func, or_, select

from herdsman.db.schema import job_attempts
from herdsman.fleet import leader_sql
from herdsman.jobs.commands import count_jobs
from herdsman.states import JobStatus
from tests.chaos.holding_proxy import Gate
from tests.chaos.site import PATIENCE_S, Site, free_port, site
from tests.chaos.worker_at_step import IDLE, Lane, Step, Victim
from tests.support.amounts import SOAK, amount
from tests.support.databases import DATABASES, Backend, ServerDatabases

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600 + amount("JOBS", 0, soak=10_000))]

WORKERS = 3
BATCH = 200


@pytest.fixture
def cluster(url: str, tmp_path: Path) -> Iterator[Site]:
    with site(url, tmp_path) as here:
        yield here


@pytest.fixture
def lanes(cluster: Site) -> Iterator[list[Lane]]:
    opened = [Lane(cluster, step, Gate(cluster.port)) for step in Step]
    yield opened
    for lane in opened:
        lane.gate.close()


def test_a_kill_at_any_step_loses_no_job_and_completes_none_twice(cluster: Site, lanes: list[Lane]) -> None:
    """At each step stands a worker with a job; then the same victim is killed at all of them."""
    for _ in range(amount("ROUNDS", 1, soak=5)):
        for victim in Victim:
            strike_everywhere(cluster, lanes, victim)
    cluster.check()


def strike_everywhere(cluster: Site, lanes: list[Lane], victim: Victim) -> None:
    for lane in lanes:
        lane.approach(victim)
    for lane in lanes:
        lane.arrive(victim)
    for lane in lanes:
        lane.strike(victim)
    if victim is Victim.API:
        cluster.kill_api()
        cluster.open()
    for lane in lanes:
        lane.go_on(victim)
    cluster.until_done(meanwhile=lambda: [lane.mend() for lane in lanes])
    check_attempts(lanes, victim)


def check_attempts(lanes: list[Lane], victim: Victim) -> None:
    """That a victim died at its step shows in what had to be done again."""
    for lane in lanes:
        assert lane.job is not None
        started = lane.site.did("started", lane.job)
        if victim is Victim.API or lane.step in (*IDLE, Step.CLAIMED, Step.REPORTED):
            assert started >= 1
        elif victim is Victim.SUPERVISOR or lane.step is not Step.FINISHED:
            assert started >= 2, f"{lane.step} was not interrupted"
        if lane.step is Step.CHECKPOINT and victim is not Victim.API:
            assert lane.site.did("resumed", lane.job) >= 1


class Strike(Enum):
    """Whom a kill at any time may meet."""

    WORKER = "worker"
    HANDLER = "handler"
    API = "api"
    LEADER = "leader"
    DATABASE = "database"


PATIENT = {"HEARTBEAT_INTERVAL_SEC": "0.5", "CLAIM_TTL_SEC": "15", "SELF_FENCE_SEC": "2"}
"""A restart of a database is longer than a worker lets its job run on without a beat, and shorter than a claim."""
SPARE = "spare"


@pytest.mark.parametrize("backend", DATABASES if SOAK else ["sqlite", "postgresql"], indirect=True)
def test_kills_at_any_time_lose_nothing_and_throw_no_finished_work_away(
    url: str, backend: Backend, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """`make soak` does it with 10,000 jobs and 50 kills."""
    random, jobs, kills = (
        Random(amount("SEED", 7)),
        amount("JOBS", 30, soak=10_000),
        amount("KILLS", len(Strike), soak=50),
    )
    with site(url, tmp_path, **PATIENT) as cluster:
        scene = Scene(cluster, backend, random)
        began = time.monotonic()
        for start in range(0, jobs, BATCH):
            cluster.submit_many("short", [random.uniform(0, 0.3) for _ in range(start, min(jobs, start + BATCH))])
        strikes = [*Strike, *random.choices(list(Strike), k=max(0, kills - len(Strike)))][:kills]
        for number, strike in enumerate(strikes, start=1):
            # Spread over the whole run, whatever the speed of the machine.
            scene.until_share_done(number / (len(strikes) + 1))
            scene.strike(strike)
        cluster.until_done(meanwhile=scene.replace, patience_s=PATIENCE_S + jobs)
        figures = asdict(cluster.check()) | {
            "again": scene.executions_again(),
            "seconds": round(time.monotonic() - began),
            "kills": {each.value: strikes.count(each) for each in Strike},
            "ended_by_themselves": scene.ended_by_themselves,
        }
    for name, value in figures.items():
        record_property(name, value)
    print(f"\n{backend.product}: {figures}")


AHEAD = (Strike.WORKER, Strike.HANDLER, Strike.API)


@pytest.mark.parametrize("backend", DATABASES if SOAK else ["sqlite"], indirect=True)
def test_kills_while_jobs_are_taken_ahead_charge_none_that_had_not_begun(
    url: str, backend: Backend, tmp_path: Path
) -> None:
    """J14: short jobs, of which each worker holds many. Their history says that each attempt was one that began."""
    random, jobs, kills = Random(amount("SEED", 7)), amount("JOBS", 600, soak=10_000), amount("KILLS", 4, soak=50)
    with site(url, tmp_path, **PATIENT) as cluster:
        scene = Scene(cluster, backend, random)
        for start in range(0, jobs, BATCH):
            cluster.submit_many("short", [random.uniform(0, 0.01) for _ in range(start, min(jobs, start + BATCH))])
        for number in range(kills):
            scene.until_share_done((number + 0.5) / (kills + 1))
            scene.strike(AHEAD[number % len(AHEAD)])
        cluster.until_done(meanwhile=scene.replace, patience_s=PATIENCE_S + jobs)
        figures, ahead = cluster.check(), taken_ahead(cluster)
        print(f"\n{backend.product}: {figures}; {ahead} claims were taken ahead")
        assert ahead > jobs / 4


def taken_ahead(cluster: Site) -> int:
    """Claims that did not begin in the transaction that made them."""
    later = or_(job_attempts.c.started_at.is_(None), job_attempts.c.started_at > job_attempts.c.claimed_at)
    return cluster.services.database.read(
        lambda tx: tx.execute(select(func.count()).select_from(job_attempts).where(later)).scalar_one()
    )


@dataclass
class Scene:
    cluster: Site
    backend: Backend
    random: Random
    ended_by_themselves: int = 0
    """Replicas and workers that nobody had killed."""

    def __post_init__(self) -> None:
        self.ports = {"api": self.cluster.port}
        if isinstance(self.backend, ServerDatabases):  # on SQLite there is one replica, and it leads
            self.ports[SPARE] = free_port()
            self._serve(SPARE)
        self.workers = [self._work() for _ in range(WORKERS)]

    def strike(self, strike: Strike) -> None:
        match strike:
            case Strike.WORKER:
                self.cluster.pack.kill(self.random.choice(self.workers))
            case Strike.HANDLER:
                self.cluster.kill_handlers(self.random.choice(self.workers))
            case Strike.API:
                self._kill_replica(self.random.choice(list(self.ports)))
            case Strike.LEADER:
                self._kill_replica(self._leader())
            case Strike.DATABASE:
                self._take_database_away()
        self.replace(struck=strike in (Strike.WORKER, Strike.HANDLER))

    def until_share_done(self, share: float) -> None:
        wanted = int(share * len(self.cluster.numbers))
        self.cluster.until(
            lambda: (self.replace(), count_jobs(self.cluster.services)[JobStatus.DONE] >= wanted)[1],
            PATIENCE_S + len(self.cluster.numbers),
        )

    def replace(self, *, struck: bool = False) -> None:
        dead = [name for name in self.workers if not self.cluster.pack.alive(name)]
        for name in [name for name in self.ports if not self.cluster.pack.alive(name)]:
            self.ended_by_themselves += 1
            self._serve(name)
        self.ended_by_themselves += 0 if struck else len(dead)
        self.workers = [name for name in self.workers if name not in dead] + [self._work() for _ in dead]

    def executions_again(self) -> int:
        started = sum(1 for line in self.cluster.lines() if line.word == "started")
        return started - len(self.cluster.numbers)

    def _work(self) -> str:
        port = self.random.choice(list(self.ports.values()))
        return self.cluster.work("short", f"http://127.0.0.1:{port}")

    def _serve(self, name: str) -> None:
        if name == SPARE:
            state = self.cluster.directory / SPARE
            self.cluster.serve(name, self.ports[name], LOCAL_STATE_DIR=str(state))
        else:
            self.cluster.open()

    def _kill_replica(self, name: str) -> None:
        self.cluster.pack.kill(name)
        time.sleep(self.random.uniform(0, 1))
        self._serve(name)

    def _leader(self) -> str:
        """The one that leads by the database's own word; while nobody does, whoever comes first."""
        term = self.cluster.services.database.read(leader_sql.find_leader)
        leads = [name for name in self.ports if term and term.holder.endswith(f":{self.cluster.pack.pid(name)}")]
        return (leads or list(self.ports))[0]

    def _take_database_away(self) -> None:
        """For a moment; a file that nobody may touch stands for a server that is gone."""
        away = self.random.uniform(0.2, 5)
        if isinstance(self.backend, ServerDatabases):
            self.backend.server.kill()
            time.sleep(away)
            self.backend.server.start()
            return
        with closing(sqlite3.connect(self.cluster.database_url.removeprefix("sqlite:///"), timeout=30)) as file:
            file.execute("BEGIN EXCLUSIVE")
            time.sleep(away)
            file.rollback()
