"""Loops side by side, watched and ended together."""

import inspect
import logging
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from herdsman.errors import InvalidSettings
from herdsman.loops import (
    AdaptiveThreshold,
    CrashRecord,
    LoopGroup,
    MainLoopRequest,
    Notifier,
    Runnable,
    run_loops,
)
from herdsman.loops.watchdog import write_crash
from herdsman.settings import load_settings
from tests.unit.loops.doubles import Plain, Requests, Works, ask, eventually, loops_of, running


def test_its_defaults_are_those_of_the_contract() -> None:
    parameters = inspect.signature(LoopGroup).parameters
    names = ("shutdown_timeout", "health_port", "watchdog_threshold", "watchdog_interval")
    assert [parameters[name].default for name in names] == [30.0, None, 720.0, 60.0]


class Tells(Plain):
    """Ends at once, and remembers how it was to run."""

    told: tuple[object, ...] = ()

    def run(
        self,
        max_iterations: int | None = None,
        visibility_timeout: float = 1800,
        wait_time_seconds: float = 30,
    ) -> None:
        self.told = (max_iterations, visibility_timeout, wait_time_seconds)


def test_a_group_may_live_by_the_timeouts_of_the_settings(tmp_path: Path) -> None:
    """WAIT_TIME_SEC, VISIBILITY_TIMEOUT_SEC and MAX_PROCESSING_SEC reach the loops, and are checked before."""
    loop = Tells("a")
    env = {"WAIT_TIME_SEC": "7", "VISIBILITY_TIMEOUT_SEC": "2000", "MAX_PROCESSING_SEC": "500"}
    run_loops([loop], load_settings(env, tmp_path))
    assert loop.told == (None, 2000, 7)
    with pytest.raises(InvalidSettings, match="WATCHDOG_THRESHOLD_SEC"):
        load_settings({"MAX_PROCESSING_SEC": "800"}, tmp_path)


def test_what_a_caller_says_wins_over_the_settings(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    run_loops([Tells("a")], load_settings({}, tmp_path), watchdog_threshold=100, watchdog_interval=10)
    assert "100 > 30 + 600" in caplog.text


def test_its_probes_answer_while_it_runs_and_are_gone_afterwards() -> None:
    a, b = Plain("a"), Plain("b")
    group = LoopGroup([a, b], health_port=0)
    with running(group):
        eventually(lambda: group.health_address is not None and a.running and b.running)
        eventually(lambda: ask(group.health_address, "/health/ready").status == 200)
        assert ask(group.health_address, "/health/live").body == {"status": "healthy"}
        body = ask(group.health_address, "/health/ready").body
        assert body["status"] == "healthy"
        assert {name: each["state"] for name, each in body["loops"].items()} == {
            "a": "running",
            "b": "running",
        }
        assert body["loops"]["a"]["age_seconds"] >= 0
        metrics = ask(group.health_address, "/metrics").text
        assert 'wink_heartbeat_age_seconds{loop="a"}' in metrics
        assert 'wink_watchdog_stalls_total{loop="b"} 0' in metrics
        assert group.watchdog is not None
        assert group.watchdog.alive
    assert group.health_address is None
    assert not group.watchdog.alive


def test_a_late_loop_is_reported_before_it_is_killed_and_recovers() -> None:
    """The warning comes at half of the threshold."""
    loop = Plain("a", beats=False)
    group = LoopGroup([loop, Plain("b")], health_port=0, watchdog_threshold=100, readiness_threshold=0.2)
    with running(group):
        eventually(lambda: group.health_address is not None and loop.running)
        eventually(lambda: ask(group.health_address, "/health/ready").status == 503)
        eventually(lambda: loop.heartbeat.elapsed() > 0.3)
        body = ask(group.health_address, "/health/ready").body
        assert (body["loops"]["a"]["state"], body["loops"]["b"]["state"]) == ("late", "running")
        assert ask(group.health_address, "/health/live").status == 200
        loop._beats = True  # pyright: ignore[reportPrivateUsage]
        eventually(lambda: ask(group.health_address, "/health/ready").status == 200)


def test_the_readiness_threshold_is_half_of_the_watchdogs() -> None:
    loop = Plain("a", beats=False)
    adaptive = AdaptiveThreshold(floor=1, ceiling=720, fewest=1)
    thresholds = ((720.0, True), (None, False), (adaptive, True), (800.0, False))
    for threshold, late in thresholds:
        group = LoopGroup([loop], watchdog_threshold=threshold)
        group.members[0].begun = True
        loop.heartbeat.beat()
        loop.heartbeat._last_beat -= 361  # pyright: ignore[reportPrivateUsage]
        assert bool(group.faults()) is late


def test_a_late_loop_gets_no_new_work_until_it_beats_again(caplog: pytest.LogCaptureFixture) -> None:
    """What it had taken but not begun goes to others at once."""
    release, begun, mailbox = threading.Event(), threading.Event(), Requests(batch=3)
    done = list[object]()

    def stuck(request: object, _beat: Callable[[], None]) -> None:
        begun.set()
        if request == "slow":
            release.wait(60)
        done.append(request)

    for body in ("slow", "b", "c"):
        mailbox.send(MainLoopRequest(request=body))
    loop = Works(mailbox, stuck, name="a")
    group = LoopGroup([loop], watchdog_threshold=100, readiness_threshold=0.2)
    with running(group, wait_time_seconds=0.05), caplog.at_level(logging.INFO):
        taken = list[object]()
        assert begun.wait(30)
        eventually(lambda: taken.extend(mailbox.receive(wait_time_seconds=0)) or len(taken) == 2)
        assert done == []
        assert "a is late: no beat for" in caplog.text
        release.set()
        eventually(lambda: "a beats again" in caplog.text)
        mailbox.send(MainLoopRequest(request="d"))
        eventually(lambda: done == ["slow", "d"])


def test_no_watchdog_and_no_port_when_they_are_not_wanted() -> None:
    loop = Plain("a")
    group = LoopGroup([loop], watchdog_threshold=None)
    with running(group):
        eventually(lambda: loop.running)
        assert group.watchdog is None
        assert group.health_address is None
        assert not {"watchdog", "health"} & {thread.name for thread in threading.enumerate()}


def test_a_loop_that_has_ended_is_no_longer_watched() -> None:
    short, long = Plain("short"), Plain("long")
    group = LoopGroup([short, long], watchdog_threshold=100)
    assert group.watchdog is not None
    with running(group):
        eventually(lambda: len(watched(group)) == 2)
        short.stopped.set()
        eventually(lambda: watched(group) == ["long"])


def test_a_loop_is_not_watched_before_it_begins() -> None:
    """An old heartbeat does not count against one that has just begun."""
    ages = list[float]()
    loop = Plain("a", begin=lambda: ages.append(loop.heartbeat.elapsed()))
    loop.heartbeat._last_beat -= 10_000  # pyright: ignore[reportPrivateUsage]
    group = LoopGroup([loop], watchdog_threshold=1000, watchdog_interval=0.01)
    assert watched(group) == []
    with running(group):
        eventually(lambda: watched(group) == ["a"] and ages)
        assert ages[0] < 1000


def test_a_loop_that_raises_ends_the_others_and_its_error_comes_out() -> None:
    """At once, though it is the last of them."""

    def fail() -> None:
        raise OSError("no queue")

    first = Plain("first")
    group = LoopGroup([first, Plain("last", begin=fail)])
    with pytest.raises(OSError, match="no queue"):
        group.run()
    assert first.asked_at is not None
    assert not first.running


def test_shutdown_is_parallel_and_shares_one_timeout(caplog: pytest.LogCaptureFixture) -> None:
    """Twelve that do not listen cost one timeout, and the one that does is asked all the same."""
    deaf = [Plain(f"deaf-{i}", deaf=True) for i in range(12)]
    listens = Plain("listens")
    group = LoopGroup([*deaf, listens], shutdown_timeout=1.0)
    with running(group) as thread:
        eventually(lambda: all(each.running for each in (*deaf, listens)))
        begun = time.monotonic()
        group.shutdown(timeout=0)
        thread.join(30)
        took = time.monotonic() - begun
    assert 1.0 <= took < 11
    assert all(each.asked_at is not None for each in (*deaf, listens))
    assert not listens.running
    assert caplog.text.count("did not stop within 1.0s") == 12
    for each in deaf:
        each.stopped.set()


def test_what_a_deaf_loop_holds_goes_back() -> None:
    release, begun, mailbox = threading.Event(), threading.Event(), Requests()

    def stuck(_request: object, _beat: object) -> None:
        begun.set()
        release.wait(60)

    mailbox.send(MainLoopRequest(request="a"))
    group = LoopGroup([Works(mailbox, stuck)], shutdown_timeout=0.1)
    with running(group) as thread:
        assert begun.wait(30)
        group.shutdown(timeout=0)
        thread.join(30)
        assert mailbox.receive(wait_time_seconds=0)[0].delivery_count == 2
        release.set()


def test_a_second_request_to_stop_does_not_wait() -> None:
    deaf = Plain("deaf", deaf=True)
    group = LoopGroup([deaf], shutdown_timeout=600)
    with running(group) as thread:
        eventually(lambda: deaf.running)
        group.shutdown(timeout=0)
        eventually(lambda: deaf.asked_at is not None)
        assert thread.is_alive()
        group.shutdown(timeout=0)
        thread.join(30)
        assert not thread.is_alive()
        deaf.stopped.set()


def test_a_stop_that_comes_before_the_loops_begin_is_heard() -> None:
    group = LoopGroup([Works(Requests(), nothing, name=f"a{i}") for i in range(4)])
    group.shutdown(timeout=0)
    group.run()


def test_it_ends_when_all_loops_have() -> None:
    done, mailbox = list[object](), Requests()
    for body in ("a", "b"):
        mailbox.send(MainLoopRequest(request=body))

    def work(request: object, _beat: Callable[[], None]) -> None:
        done.append(request)

    LoopGroup([Works(mailbox, work, name="x"), Works(mailbox, work, name="x")]).run(max_iterations=1)
    assert sorted(map(str, done)) == ["a", "b"]


def test_loops_of_one_name_can_be_told_apart() -> None:
    group = LoopGroup([Plain("x"), Plain("x"), Plain("")])
    assert [member.name for member in group.members] == ["x", "x-1", "loop-2"]


def test_timeouts_that_do_not_fit_are_named_loudly(caplog: pytest.LogCaptureFixture) -> None:
    LoopGroup([], max_processing_time=700, watchdog_interval=300).run(visibility_timeout=1400)
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 3
    assert "1400 > 720 + 700" in warnings[0]
    assert "720 > 30 + 700" in warnings[1]
    assert "300 < 720 / 3" in warnings[2]


@pytest.mark.parametrize(("threshold", "interval", "visibility"), [(180.0, 30.0, 300), (2100.0, 120.0, 3600)])
def test_the_presets_are_accepted(
    threshold: float, interval: float, visibility: float, caplog: pytest.LogCaptureFixture
) -> None:
    group = LoopGroup([], watchdog_threshold=threshold, watchdog_interval=interval)
    group.run(visibility_timeout=visibility)
    assert caplog.text == ""


def test_what_the_last_process_died_of_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_crash(tmp_path, CrashRecord(at="2026-01-01", pid=7, threshold=1, stalled={"a": 2.0}, stacks="in stuck()"))
    LoopGroup([], crash_dir=tmp_path).run()
    assert "process 7 was killed by its watchdog" in caplog.text
    assert "in stuck()" in caplog.text
    caplog.clear()
    LoopGroup([], crash_dir=tmp_path).run()
    assert caplog.text == ""


def test_systemd_hears_of_the_beginning_the_life_and_the_end(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(30)
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "100000"})
        with running(LoopGroup([Plain("a")], notifier=notifier)):
            assert [heard.recv(100), heard.recv(100)] == [b"READY=1", b"WATCHDOG=1"]
        said = heard.recv(100)
        while said == b"WATCHDOG=1":
            said = heard.recv(100)
        assert said == b"STOPPING=1"


def test_a_main_loop_and_any_loop_alike_are_runnable() -> None:
    for loop in loops_of(Works(Requests(), nothing), Plain("a")):
        assert loop.running is False
        assert loop.heartbeat is not None

    class Bare(Runnable):
        @property
        def running(self) -> bool:
            return False

        def run(
            self,
            max_iterations: Any = None,  # noqa: ARG002
            visibility_timeout: float = 0,  # noqa: ARG002
            wait_time_seconds: float = 0,  # noqa: ARG002
        ) -> None:
            return

        def shutdown(self, *, timeout: float = 0) -> bool:  # noqa: ARG002
            return True

    assert Bare().heartbeat is None
    group = LoopGroup([Bare()])
    group.run()
    assert group.watchdog is None


def nothing(_request: object, _beat: Callable[[], None]) -> None:
    return


def watched(group: LoopGroup) -> list[str]:
    assert group.watchdog is not None
    return [name for name, _ in group.watchdog._watched]  # pyright: ignore[reportPrivateUsage]
