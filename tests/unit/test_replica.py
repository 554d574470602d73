"""The loops of a replica: how often it looks at its fleet, and how they end together."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.recording import Cycle
from herdsman.fleet.snapshot import PoolLife, PoolSnapshot, Snapshot
from herdsman.ids import PoolId
from herdsman.loops.loop_group import LoopHealth
from herdsman.loops.periodic import PeriodicLoop
from herdsman.ports import SystemClock, SystemThreads, Threads
from herdsman.server import replica as loops
from herdsman.server.readiness import Readiness
from herdsman.server.replica import LoopIntervals, Replica
from herdsman.states import PoolStatus
from tests.support.fleets import NOW
from tests.unit.loops.doubles import eventually


@dataclass
class Ticks:
    seen: Snapshot

    def tick(self) -> Cycle:
        return Cycle(started_at=NOW, epoch=1, seen=self.seen)


@pytest.mark.parametrize(
    ("life", "pause"),
    [
        (None, 30),
        (PoolLife(status=PoolStatus.RUNNING), 10),
        (PoolLife(status=PoolStatus.DRAINING), 10),
        (PoolLife(status=PoolStatus.STOPPED), 30),
    ],
)
def test_a_pool_that_was_asked_for_by_name_is_looked_at_more_often(life: PoolLife | None, pause: float) -> None:
    """GPU_POOL_POLICY_PERIOD_S"""
    seen = Snapshot(now=NOW, pools=(PoolSnapshot(id=PoolId("p"), policy=FleetPolicy(), life=life),))
    second = timedelta(seconds=1)
    intervals = LoopIntervals(poll=30 * second, pool_poll=10 * second, sweep=second)
    assert a_replica(Ticks(seen), intervals).reconcile() == pause


@dataclass
class Part:
    """A part of a replica whose loop does as it is told."""

    name: str
    turn: Callable[[], float] = lambda: 600.0
    ended: list[str] = field(default_factory=list[str])
    term: int = 1

    def loop(self, threads: Threads) -> PeriodicLoop:
        return PeriodicLoop(self.name, self.turn, at_end=lambda: self.ended.append(self.name), threads=threads)


def a_replica(ticks: Ticks | None = None, intervals: LoopIntervals | None = None, **given: Part) -> Replica:
    parts = {**{name: Part(name) for name in ("leadership", "sweeper", "inbox")}, **given}
    control = SimpleNamespace(
        leadership=parts.pop("leadership"),
        reconciler=ticks or Ticks(Snapshot(now=NOW)),
        loops=LoopHealth(),
    )
    hour = timedelta(hours=1)
    return Replica(
        **cast("Any", parts),
        state=cast("Any", None),
        control=cast("Any", control),
        intervals=intervals or LoopIntervals(poll=hour, sweep=hour),
        clock=SystemClock(),
        threads=SystemThreads(),
    )


def test_a_stop_ends_every_loop_at_once() -> None:
    stopping, turned = Event(), Event()
    leadership = Part("leadership", lambda: float(turned.set() or 600))
    replica = a_replica(leadership=leadership)
    thread = Thread(target=replica.run, args=(stopping,))
    thread.start()
    assert turned.wait(30)
    begun = time.monotonic()
    stopping.set()
    thread.join(30)
    assert leadership.ended == ["leadership"]
    assert time.monotonic() - begun < 5


def test_a_loop_that_dies_takes_the_others_with_it() -> None:
    """And the leader resigns."""

    def fail() -> float:
        raise OSError("a bug")

    stopping, leadership = Event(), Part("leadership")
    with pytest.raises(OSError, match="a bug"):
        a_replica(leadership=leadership, sweeper=Part("sweeper", fail)).run(stopping)
    assert stopping.is_set()
    assert leadership.ended == ["leadership"]


def test_a_loop_that_hangs_is_seen_by_the_probe_and_kills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "HANGS_AFTER", timedelta(seconds=0.3))
    stopping, release = Event(), Event()
    replica = a_replica(sweeper=Part("sweeper", lambda: float(release.wait(60)) * 600))
    thread = Thread(target=replica.run, args=(stopping,))
    thread.start()
    try:
        nobody: Any = None

        def away(_patience: float) -> str:
            return "away"

        readiness = Readiness(nobody, Event(), replica.control.loops.faults)
        monkeypatch.setattr(readiness, "_read", SimpleNamespace(answer=away))
        eventually(lambda: "sweeper hangs: no heartbeat for" in readiness.checks()["loops"])
        assert thread.is_alive()
    finally:
        release.set()
        stopping.set()
        thread.join(30)
    assert replica.control.loops.faults() == {}
