"""A heartbeat knows how long ago it was."""

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
