"""A heartbeat knows how long ago it was."""

import logging
import threading

import pytest

from herdsman.loops import Heartbeat
from tests.support.threads import at_once
from tests.unit.loops.doubles import HandClock


def test_heartbeat_elapsed() -> None:
    clock = HandClock()
    heartbeat = Heartbeat(clock)
    clock.advance(0.1)
    assert heartbeat.elapsed() == pytest.approx(0.1)  # pyright: ignore[reportUnknownMemberType]
    heartbeat.beat()
    assert heartbeat.elapsed() == 0


def test_it_beats_from_its_making_on_by_the_real_clock() -> None:
    heartbeat = Heartbeat()
    assert 0 <= heartbeat.elapsed() < 30
    assert not hasattr(heartbeat, "__dict__")


def test_many_threads_may_beat_at_once() -> None:
    heartbeat = Heartbeat()
    at_once(8, lambda _: [heartbeat.beat() for _ in range(200)])
    assert 0 <= heartbeat.elapsed() < 30


def test_a_follower_hears_each_beat_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    heartbeat, heard = Heartbeat(), list[str]()

    def fail() -> None:
        raise OSError("away")

    heartbeat.follow(fail)
    heartbeat.follow(lambda: heard.append(threading.current_thread().name))
    with caplog.at_level(logging.ERROR):
        heartbeat.beat()
    assert heard == [threading.current_thread().name]
    assert "a follower failed" in caplog.text
