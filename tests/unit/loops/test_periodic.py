"""Loops that call a function again and again: pauses, wakes, errors, ends; alone, in a group, and in the simulation."""

import threading
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from herdsman.loops import LoopGroup
from herdsman.loops.loop_group import LoopHealth
from herdsman.loops.periodic import PeriodicLoop
from herdsman.testing.simulation.scheduler import Process, Scheduler
from herdsman.testing.simulation.threads import WorldClock, WorldThreads
from tests.unit.loops.doubles import HandClock, eventually


class Away(Exception):
    """What is expected to happen now and then."""


def in_simulation(body: Callable[[Scheduler, Process], None], until: float) -> Scheduler:
    scheduler, process = Scheduler(Random(1)), Process("p")
    scheduler.start(process, "main", lambda: body(scheduler, process))
    scheduler.run(until)
    scheduler.close()
    return scheduler


def world(scheduler: Scheduler, process: Process) -> dict[str, Any]:
    return {"clock": WorldClock(scheduler, process), "threads": WorldThreads(scheduler, process)}


def test_it_pauses_for_as_long_as_its_turn_says() -> None:
    turns = list[float]()

    def body(scheduler: Scheduler, process: Process) -> None:
        def turn() -> float:
            turns.append(scheduler.now)
            return float(len(turns))

        PeriodicLoop("a", turn, **world(scheduler, process)).run(max_iterations=4)

    assert not in_simulation(body, 100).broken
    assert turns == [0, 1, 3, 6]


def test_an_expected_error_is_told_and_the_pause_doubles_up_to_a_limit() -> None:
    turns, told = list[float](), list[str]()

    def body(scheduler: Scheduler, process: Process) -> None:
        def turn() -> float:
            turns.append(scheduler.now)
            if len(turns) < 5:
                raise Away(str(len(turns)))
            return 10.0

        loop = PeriodicLoop(
            "a",
            turn,
            retry_on=(Away,),
            on_error=lambda error: told.append(str(error)),
            backoff=(1, 3),
            **world(scheduler, process),
        )
        loop.run(max_iterations=6)

    assert not in_simulation(body, 100).broken
    assert told == ["1", "2", "3", "4"]
    assert turns == [0, 1, 3, 6, 9, 19]


def test_it_beats_with_every_turn_whether_it_went_well_or_not() -> None:
    clock, ages = HandClock(), list[float]()

    def turn() -> None:
        ages.append(loop.heartbeat.elapsed())
        clock.advance(5)
        raise Away

    loop = PeriodicLoop("a", turn, retry_on=(Away,), backoff=(0, 0), clock=clock)
    clock.advance(100)
    loop.run(max_iterations=3)
    assert ages == [100, 0, 0]


def test_a_wake_ends_its_pause_and_a_stop_ends_it_after_its_turn() -> None:
    turned, ended = threading.Semaphore(0), list[str]()

    def turn() -> float:
        turned.release()
        return 600.0

    loop = PeriodicLoop("a", turn, at_end=lambda: ended.append(threading.current_thread().name))
    thread = threading.Thread(target=loop.run, name="its own")
    thread.start()
    assert turned.acquire(timeout=30)
    loop.wake()
    assert turned.acquire(timeout=30)
    assert loop.running
    assert loop.shutdown(timeout=30)
    thread.join(30)
    assert (ended, loop.running) == (["its own"], False)


def test_a_stop_before_it_begins_is_heard() -> None:
    loop = PeriodicLoop("a", lambda: pytest.fail("it was told to stop"))
    loop.stop()
    loop.run()
    assert loop.shutdown(timeout=0)


def test_an_error_that_nobody_expected_ends_the_group_and_comes_out_of_stop() -> None:
    """Not at the end: whoever waits is told by `on_end`."""

    def fail() -> float:
        raise OSError("no idea")

    ended, resigned = threading.Event(), list[str]()
    other = PeriodicLoop("other", lambda: 600.0, at_end=lambda: resigned.append("other"))
    group = LoopGroup([other, PeriodicLoop("bad", fail)], watchdog_threshold=None)
    group.start(on_end=ended.set)
    assert ended.wait(30)
    with pytest.raises(OSError, match="no idea"):
        group.stop()
    assert resigned == ["other"]


def test_a_loop_that_hangs_is_reported_and_not_killed() -> None:
    release, late, health = threading.Event(), list[str](), LoopHealth()
    hanging = PeriodicLoop("hanging", lambda: float(release.wait(60)))
    group = LoopGroup(
        [hanging, PeriodicLoop("well", lambda: 0.01)],
        watchdog_threshold=None,
        readiness_threshold=0.5,
        on_late=lambda member: late.append(member.name),
        health=health,
    )
    group.start()
    try:
        eventually(lambda: late)
        assert list(health.faults()) == ["hanging"]
        assert health.faults()["hanging"].startswith("hangs: no heartbeat for")
        release.set()
        eventually(lambda: not health.faults())
    finally:
        release.set()
        group.stop()
    assert health.faults() == {}


def test_a_group_runs_and_ends_in_the_time_of_a_simulation() -> None:
    """A loop that hears nothing costs its group the timeout, and no more."""
    said = list[tuple[str, float]]()

    def body(scheduler: Scheduler, process: Process) -> None:
        def slow() -> float:
            scheduler.sleep(1000)
            return 1.0

        parts = world(scheduler, process)
        quick = PeriodicLoop("quick", lambda: 7.0, at_end=lambda: said.append(("quick", scheduler.now)), **parts)
        group = LoopGroup(
            [quick, PeriodicLoop("slow", slow, **parts)],
            watchdog_threshold=None,
            readiness_threshold=100,
            on_late=lambda member: said.append((f"late {member.name}", scheduler.now)),
            shutdown_timeout=30,
            **parts,
        )
        group.start(on_end=lambda: said.append(("over", scheduler.now)))
        scheduler.sleep(200)
        group.stop()
        said.append(("stopped", scheduler.now))

    assert not in_simulation(body, 500).broken
    assert [name for name, _ in said] == ["late slow", "quick", "over", "stopped"]
    assert 100 < said[0][1] <= 110
    assert [at for _, at in said[1:]] == [200, 230, 230]
