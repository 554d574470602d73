"""kill -9 of supervisor, handler and API at every step of a job: none is lost, and none is done twice (J1, J3, A1)."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.chaos.effort import effort
from tests.chaos.gate import Gate
from tests.chaos.lane import IDLE, Lane, Step, Victim
from tests.chaos.site import Site, site

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

WORKERS = 3


@pytest.fixture
def yard(url: str, tmp_path: Path) -> Iterator[Site]:
    with site(url, tmp_path) as here:
        yield here


@pytest.fixture
def lanes(yard: Site) -> Iterator[list[Lane]]:
    opened = [Lane(yard, step, Gate(yard.port)) for step in Step]
    yield opened
    for lane in opened:
        lane.gate.close()


def test_a_kill_at_any_step_loses_no_job_and_completes_none_twice(yard: Site, lanes: list[Lane]) -> None:
    """At each step stands a worker with a job; then the same victim is killed at all of them."""
    for _ in range(effort("ROUNDS", 1)):
        for victim in Victim:
            strike_everywhere(yard, lanes, victim)
    yard.check()


def strike_everywhere(yard: Site, lanes: list[Lane], victim: Victim) -> None:
    for lane in lanes:
        lane.approach(victim)
    for lane in lanes:
        lane.arrive(victim)
    for lane in lanes:
        lane.strike(victim)
    if victim is Victim.API:
        yard.kill_api()
        yard.open()
    for lane in lanes:
        lane.go_on(victim)
    yard.until_done(meanwhile=lambda: [lane.mend() for lane in lanes])
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


def test_kills_at_any_time_lose_no_job_and_complete_none_twice(
    yard: Site, record_property: Callable[[str, object], None]
) -> None:
    random = Random(effort("SEED", 7))
    workers = [yard.work("short") for _ in range(WORKERS)]
    for _ in range(effort("JOBS", 30)):
        yard.submit("short", seconds=random.uniform(0, 0.3))
    for _ in range(8 * effort("ROUNDS", 1)):
        time.sleep(random.uniform(0.05, 0.6))
        kill_somebody(yard, workers, random)
    yard.until_done(meanwhile=lambda: replace(yard, workers))
    yard.check()
    again = sum(yard.did("started", job_id) for job_id in yard.numbers) - len(yard.numbers)
    record_property("attempts_again", again)


def kill_somebody(yard: Site, workers: list[str], random: Random) -> None:
    victim, chosen = random.choice(list(Victim)), random.choice(workers)
    if victim is Victim.API:
        yard.kill_api()
        yard.open()
    elif victim is Victim.SUPERVISOR:
        yard.pack.kill(chosen)
    else:
        for pid in yard.handlers_of(chosen):
            with suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(pid, signal.SIGKILL)
    replace(yard, workers)


def replace(yard: Site, workers: list[str]) -> None:
    workers[:] = [name if yard.pack.alive(name) else yard.work("short") for name in workers]
