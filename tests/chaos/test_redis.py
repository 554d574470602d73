"""Redis is flushed, killed, robbed and taken away under load: no job is lost, none is done twice, all begin in time."""

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import median
from threading import Event

import pytest

from herdsman.context import Services
from herdsman.jobs.assign import claim_for
from herdsman.jobs.commands import find_job, submit_jobs
from herdsman.jobs.model import JobPolicy, NewJob
from herdsman.jobs.protocol import ClaimRequest
from herdsman.jobs.worker_commands import complete_job
from herdsman.redis.streams import Count
from herdsman.states import JobStatus
from herdsman.wire import new_job_id
from tests.chaos.redis_site import RedisCluster, cluster, until
from tests.chaos.site import check_jobs
from tests.chaos.waiting import percentile
from tests.support.amounts import SLACK, amount
from tests.support.builders import a_worker, claimed, replayed
from tests.support.databases import Backend, ServerDatabases, opened
from tests.support.redis_streams import NAMES, QUICK, Replica, client, replica
from tests.support.servers.redis import RedisServer
from tests.support.worker_calls import complete_jobs

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

FLUSHES = amount("FLUSHES", 5)
KILLS = amount("REDIS_KILLS", 3)
THEFTS = amount("STREAM_THEFTS", 4)
OUTAGE_S = amount("REDIS_OUTAGE_S", 4)
JOBS = amount("STREAM_JOBS", 1000, soak=10_000)
LONG_S = amount("LONG_JOB_S", 3)
MOST_AT_ONCE = 1000
BACK_S = 10.0
"""Within so long after its return Redis is used again as before."""


@pytest.fixture(scope="module")
def running(mariadb: ServerDatabases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """On MariaDB, where replicas have no other way to tell each other."""
    with (
        RedisServer(tmp_path_factory.mktemp("redis")) as server,
        cluster(mariadb.fresh(), server, tmp_path_factory.mktemp("cluster")) as both,
    ):
        yield both


@pytest.fixture
def here(running: RedisCluster) -> RedisCluster:
    return replace(running, closed=Event(), stopping=Event(), refused=[])


def flush(here: RedisCluster) -> None:
    with client(here.server) as raw:
        raw.flushall()


def kill(here: RedisCluster) -> None:
    here.server.kill()
    time.sleep(random.uniform(0, 0.5))  # as long as it takes somebody to start it again
    here.server.start()


def steal(here: RedisCluster) -> None:
    with client(here.server) as raw:
        if random.random() < 0.5:
            raw.delete(NAMES.jobs.name)
        elif raw.exists(NAMES.jobs.name):
            raw.xgroup_destroy(NAMES.jobs.name, NAMES.jobs.group)


def test_nothing_is_lost_or_done_twice_whatever_happens_to_redis(
    here: RedisCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """S1: and nobody who submits or works ever hears of it."""
    faults = [*[flush] * FLUSHES, *[kill] * KILLS, *[steal] * THEFTS]
    random.shuffle(faults)
    began = here.now()
    with here.busy():
        for fault in faults:
            time.sleep(random.uniform(0.1, 0.5))
            fault(here)
        ended = here.now()
        until(lambda: here.says(0) == here.says(1) == "ok", BACK_S)
    check(here)
    late = percentile(99, here.delays(began, ended))
    with capsys.disabled():
        print(f"\n{len(faults)} faults, {len(here.submitted)} jobs, p99 of the start {late:.3f} s")
    assert late < 2.0 * SLACK


def test_jobs_begin_in_time_while_redis_is_away_and_at_once_when_it_is_back(
    here: RedisCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """S3: without hints the database is polled."""
    with here.busy():
        until(lambda: here.says(0) == here.says(1) == "ok")
        began = here.now()
        time.sleep(2)
        gone = here.now()
        here.server.kill()
        time.sleep(OUTAGE_S)
        until(lambda: "degraded" in here.says(0))
        back = here.now()
        here.server.start()
        until(lambda: here.says(0) == here.says(1) == "ok", BACK_S)
        well = here.now()
        time.sleep(2)
        end = here.now()
    check(here)
    before, away, after = here.delays(began, gone), here.delays(gone, back), here.delays(well, end)
    with capsys.disabled():
        print(
            f"\nstart: before median {median(before):.3f} s; away p99 {percentile(99, away):.3f} s"
            f" of {len(away)}; back {(well - back).total_seconds():.1f} s later, median {median(after):.3f} s"
        )
    assert percentile(99, away) < 2.0 * SLACK
    assert median(after) < 0.3, "hints are heard again"


def check(here: RedisCluster) -> None:
    assert not here.refused
    assert here.count("done") == len(here.submitted) > 0
    check_jobs(here.database, {job_id: {"ok": True} for job_id in here.submitted})
    with client(here.server) as raw:
        until(lambda: raw.xlen(NAMES.jobs.name) == 0)
        assert raw.xpending(NAMES.jobs.name, NAMES.jobs.group)["pending"] == 0


def test_streams_stay_short_however_many_jobs_go_through(
    sqlite: Backend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S4: as XINFO shows it while jobs go through and afterwards."""
    with (
        RedisServer(tmp_path) as server,
        opened(sqlite.fresh()) as database,
        replica(server, Services(database, JobPolicy(), new_job_id)) as one,
    ):
        longest, keys = _through(one)
        until(lambda: one.raw.xlen(NAMES.jobs.name) == 0)
        seen = one.raw.xinfo_stream(NAMES.jobs.name)
        one.bus.stop()
    with capsys.disabled():
        print(f"\n{JOBS} jobs: longest stream {longest}, at the end {seen['length']}; {keys} keys")
    assert seen["entries-added"] >= JOBS
    assert longest <= MOST_AT_ONCE * 4
    assert seen["radix-tree-nodes"] < 100


def _through(one: Replica) -> tuple[int, int]:
    """Submitted and done a thousand at a time; the longest that the stream was, and the keys at the end."""
    workers = {a_worker(one.services, f"w{number}"): ClaimRequest(most={"demo": 100}) for number in range(10)}
    one.bus.start()
    longest = 0
    for _ in range(0, JOBS, MOST_AT_ONCE):
        news = [NewJob(type="demo") for _ in range(MOST_AT_ONCE)]
        before = one.count(Count.PUBLISHED)
        one.bus.announce_jobs(news, submit_jobs(one.services, news))
        until(lambda before=before: one.count(Count.PUBLISHED) >= before + MOST_AT_ONCE)
        while claims := claim_for(one.services, workers):
            complete_jobs(one.services, {claim.key: {"ok": True} for claim in claims})
        longest = max(longest, one.raw.xlen(NAMES.jobs.name))
    return longest, one.raw.dbsize()


def test_a_job_that_takes_long_is_never_taken_from_its_worker(
    sqlite: Backend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Many times `ORCH_CLAIM_IDLE_MS`, and the replica that looked after its entry dies on the way."""
    rhythm = replace(QUICK, claim_idle=timedelta(milliseconds=200), reclaim=timedelta(milliseconds=100))
    with RedisServer(tmp_path) as server, opened(sqlite.fresh()) as database:
        services = Services(database, JobPolicy(), new_job_id)
        with (
            replica(server, services, "one", leads=False, rhythm=rhythm) as one,
            replica(server, services, "two", rhythm=rhythm) as two,
        ):
            one.bus.start()
            until(lambda: one.raw.exists(NAMES.jobs.name))
            job_id = one.submit()
            until(lambda: [each["consumer"] for each in one.pending()] == ["one"])
            claim = claimed(services, a_worker(services))
            two.bus.start()
            time.sleep(LONG_S / 2)
            assert two.count(Count.RECLAIMED) == two.count(Count.KEPT) == 0
            one.bus.stop()
            until(lambda: two.count(Count.KEPT) == 1)
            time.sleep(LONG_S / 2)
            assert two.count(Count.RECLAIMED) == 0
            assert find_job(services, job_id).attempts == 1
            complete_job(services, claim.key, {})
            until(lambda: not two.pending())
            two.bus.stop()
        assert replayed(services, job_id) == JobStatus.DONE
        assert find_job(services, job_id).attempts == 1
    with capsys.disabled():
        print(f"\na job of {LONG_S} s with entries that look idle after 0.2 s: one attempt")
