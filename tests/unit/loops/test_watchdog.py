"""What the watchdog finds, says and does, short of the kill itself."""

# pyright: reportPrivateUsage=false

import inspect
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from herdsman.loops import AdaptiveThreshold, Heartbeat, Watchdog, read_crashes
from tests.unit.loops.doubles import HandClock, eventually


class Spared(Watchdog):
    """Counts its kills instead."""

    kills = 0

    def _kill(self) -> None:
        self.kills += 1


def test_watchdog_detects_stall() -> None:
    clock = HandClock()
    watchdog = Watchdog([Heartbeat(clock)], stall_threshold=0.1, check_interval=0.05)
    assert watchdog._check_heartbeats() == []
    clock.advance(0.15)
    assert [name for name, _ in watchdog._check_heartbeats()] == ["loop-0"]


def test_watchdog_clears_on_beat() -> None:
    clock = HandClock()
    heartbeat = Heartbeat(clock)
    watchdog = Watchdog([heartbeat], stall_threshold=0.1, check_interval=0.05)
    clock.advance(0.15)
    assert len(watchdog._check_heartbeats()) == 1
    heartbeat.beat()
    assert watchdog._check_heartbeats() == []


def test_its_defaults_are_those_of_the_contract() -> None:
    parameters = inspect.signature(Watchdog).parameters
    assert parameters["stall_threshold"].default == 720.0
    assert parameters["check_interval"].default == 60.0
    assert parameters["loop_names"].default is None
    assert parameters["heartbeats"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


def test_only_what_is_over_the_threshold_stalls() -> None:
    clock = HandClock()
    watchdog = Watchdog([Heartbeat(clock), Heartbeat(clock)], loop_names=["a", "b"])
    clock.advance(720.0)
    assert watchdog._check_heartbeats() == []
    clock.advance(0.5)
    assert watchdog._check_heartbeats() == [("a", 720.5), ("b", 720.5)]


def test_names_and_intervals_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="2 names for 1 heartbeats"):
        Watchdog([Heartbeat()], loop_names=["a", "b"])
    with pytest.raises(ValueError, match="check_interval is 0"):
        Watchdog([Heartbeat()], check_interval=0)


def test_it_says_what_stalled_and_that_it_kills(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = Spared([], stall_threshold=60.0)
    with caplog.at_level(logging.CRITICAL):
        watchdog._terminate([("main-loop", 65.24)])
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("CRITICAL", "Watchdog: main-loop stalled for 65.2s (threshold: 60.0s)"),
        ("CRITICAL", "Watchdog: terminating process due to stalled workers"),
    ]
    assert caplog.records[0].name.startswith("herdsman.")
    assert watchdog.kills == 1
    assert watchdog.stalls == {"main-loop": 1}


def test_its_thread_is_a_daemon_and_starts_once() -> None:
    watchdog = Watchdog([], check_interval=0.05)
    watchdog.start()
    first = watchdog._thread
    watchdog.start()
    assert watchdog._thread is first
    assert first is not None
    assert (first.name, first.daemon) == ("watchdog", True)
    assert watchdog.alive
    watchdog.stop()
    watchdog.stop()
    assert not first.is_alive()
    assert not watchdog.alive


def test_a_check_that_fails_does_not_end_the_checks(caplog: pytest.LogCaptureFixture) -> None:

    class Broken(Spared):
        checks = 0

        def _check_heartbeats(self) -> list[tuple[str, float]]:
            self.checks += 1
            raise OSError("no sight")

    watchdog = Broken([], check_interval=0.01)
    with caplog.at_level(logging.ERROR):
        watchdog.start()
        eventually(lambda: watchdog.checks >= 3)
        assert watchdog.alive
        watchdog.stop()
    assert "a check failed" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_thread_is_noticed() -> None:

    class Dies(Spared):
        def _check_heartbeats(self) -> list[tuple[str, float]]:
            raise SystemExit

    watchdog = Dies([], check_interval=0.01)
    watchdog.start()
    assert watchdog._thread is not None
    watchdog._thread.join(30)
    assert not watchdog.alive
    watchdog.stop()


def test_a_thread_that_hangs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    class Hangs(Spared):
        def _check_heartbeats(self) -> list[tuple[str, float]]:
            release.wait(60)
            return []

    monkeypatch.setattr("herdsman.loops.watchdog.SLACK", 0.0)
    watchdog = Hangs([], check_interval=0.02)
    watchdog.start()
    eventually(lambda: not watchdog.alive)
    release.set()
    watchdog.stop()


def test_nothing_that_hangs_or_fails_keeps_it_from_killing(tmp_path: Path) -> None:
    """A log that blocks, a hook that hangs and one that fails; the others still get their turn."""
    blocked, done = threading.Event(), list[str]()

    class Blocks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002
            blocked.wait(60)

    def fail() -> None:
        raise OSError("away")

    watchdog = Spared([], kill_grace=0.3, crash_dir=tmp_path)
    watchdog.before_kill(lambda: blocked.wait(60))
    watchdog.before_kill(fail)
    watchdog.before_kill(lambda: done.append("given back"))
    handler, logger = Blocks(), logging.getLogger("herdsman.loops.watchdog")
    logger.addHandler(handler)
    try:
        watchdog._terminate([("a", 1.0)])
    finally:
        blocked.set()
        logger.removeHandler(handler)
    assert watchdog.kills == 1
    assert done == ["given back"]
    assert len(read_crashes(tmp_path)) == 1


def test_it_kills_even_if_nothing_can_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory() -> Any:
        raise MemoryError

    monkeypatch.setattr("herdsman.loops.watchdog.all_stacks", no_memory)
    watchdog = Spared([])
    with pytest.raises(MemoryError):
        watchdog._terminate([("a", 1.0)])
    assert watchdog.kills == 1


def test_a_loop_can_be_forgotten_and_another_watched() -> None:
    clock = HandClock()
    ended, fresh = Heartbeat(clock), Heartbeat(clock)
    watchdog = Watchdog([ended], stall_threshold=1.0)
    clock.advance(2)
    fresh.beat()
    watchdog.forget(ended)
    watchdog.watch("fresh", fresh)
    assert watchdog._check_heartbeats() == []
    clock.advance(2)
    assert watchdog._check_heartbeats() == [("fresh", 2.0)]


def test_an_adaptive_threshold_is_asked_at_each_check() -> None:
    clock = HandClock()
    threshold = AdaptiveThreshold(floor=1, ceiling=100, fewest=1, factor=2)
    watchdog = Watchdog([Heartbeat(clock)], stall_threshold=threshold)
    clock.advance(50)
    assert watchdog._check_heartbeats() == []
    threshold.note(10)
    assert watchdog._check_heartbeats() == [("loop-0", 50.0)]


def test_it_never_ends_the_group_that_it_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """That would end whoever supervises us; 0 means our own group, 1 and less mean everybody."""
    ended = list[int]()

    def note(group: int, _signal: int) -> None:
        ended.append(group)

    monkeypatch.setattr("os.killpg", note)
    monkeypatch.setattr("herdsman.loops.watchdog.kill_self", lambda: ended.append(-9))
    watchdog = Watchdog([])
    for group in (os.getpgrp(), 0, 1, -1, 4242, 4243):
        watchdog.own_group(group)
    watchdog.disown_group(4243)
    watchdog._kill()
    assert ended == [4242, -9]
