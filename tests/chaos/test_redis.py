"""Redis is flushed, killed, robbed and taken away under load: no job is lost, none is done twice, all begin in time."""

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from threading import Event

import pytest

from herdsman.testing.servers.redis import RedisServer
from tests.chaos.effort import effort
from tests.chaos.measuring import percentile
from tests.chaos.redis_yard import Yard, until, yard
from tests.databases import ServerDatabases
from tests.streams import NAMES, client

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

FLUSHES = effort("FLUSHES", 8)
KILLS = effort("REDIS_KILLS", 3)
THEFTS = effort("STREAM_THEFTS", 4)
OUTAGE_S = effort("REDIS_OUTAGE_S", 4)
BACK_S = 10.0
"""Within so long after its return Redis is used again as before."""


@pytest.fixture(scope="module")
def opened(mariadb: ServerDatabases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """On MariaDB, where replicas have no other way to tell each other."""
    with (
        RedisServer(tmp_path_factory.mktemp("redis")) as server,
        yard(mariadb.fresh(), server, tmp_path_factory.mktemp("yard")) as running,
    ):
        yield running


@pytest.fixture
def here(opened: Yard) -> Yard:
    return replace(opened, closed=Event(), stopping=Event(), refused=[])


def flush(here: Yard) -> None:
    with client(here.server) as raw:
        raw.flushall()


def kill(here: Yard) -> None:
    here.server.kill()
    time.sleep(random.uniform(0, 0.5))  # as long as it takes somebody to start it again
    here.server.start()


def steal(here: Yard) -> None:
    with client(here.server) as raw:
        if random.random() < 0.5:
            raw.delete(NAMES.jobs.name)
        elif raw.exists(NAMES.jobs.name):
            raw.xgroup_destroy(NAMES.jobs.name, NAMES.jobs.group)


def test_nothing_is_lost_or_done_twice_whatever_happens_to_redis(
    here: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    """S1, S2-21: and nobody who submits or works ever hears of it."""
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
    assert late < 2.0


def test_jobs_begin_in_time_while_redis_is_away_and_at_once_when_it_is_back(
    here: Yard, capsys: pytest.CaptureFixture[str]
) -> None:
    """S3: without hints the database is polled."""
    with here.busy():
        until(lambda: here.says(0) == here.says(1) == "ok")
        began = here.now()
        time.sleep(2)
        gone = here.now()
        here.server.kill()
        time.sleep(OUTAGE_S)
        assert "degraded" in here.says(0)
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
    assert percentile(99, away) < 2.0
    assert median(after) < 0.3, "hints are heard again"


def check(here: Yard) -> None:
    assert not here.refused
    assert here.count("done") == len(here.submitted) > 0
    assert not here.done_twice()
    with client(here.server) as raw:
        until(lambda: raw.xlen(NAMES.jobs.name) == 0)
        assert raw.xpending(NAMES.jobs.name, NAMES.jobs.group)["pending"] == 0
