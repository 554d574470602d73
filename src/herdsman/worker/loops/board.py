"""What a group knows about each of its loops."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from herdsman.worker.loops.adaptive import Threshold, seconds_of
from herdsman.worker.loops.heartbeat import Heartbeat
from herdsman.worker.loops.runnable import Runnable


class LoopState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    LATE = "late"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class Seat:
    """A loop in its group. Its own thread says when it begins and ends; the group says when it is late."""

    name: str
    loop: Runnable
    heartbeat: Heartbeat | None
    state: LoopState = LoopState.WAITING
    error: BaseException | None = None

    @property
    def age(self) -> float | None:
        begun = self.state in (LoopState.RUNNING, LoopState.LATE)
        return self.heartbeat.elapsed() if begun and self.heartbeat is not None else None


class Board:
    def __init__(self, loops: Sequence[Runnable], late_after: float | Threshold | None) -> None:
        self.seats = tuple(Seat(name, loop, _heartbeat(loop)) for name, loop in _named(loops))
        self._late_after = late_after
        self._lock = threading.Lock()

    def begin(self, seat: Seat) -> None:
        with self._lock:
            if seat.heartbeat is not None:
                seat.heartbeat.beat()  # its time runs from here, not from when it was made
            seat.state = LoopState.RUNNING

    def end(self, seat: Seat, error: BaseException | None) -> None:
        with self._lock:
            seat.state = LoopState.FINISHED if error is None else LoopState.FAILED
            seat.error = error

    def turned(self) -> tuple[list[Seat], list[Seat]]:
        """Those that have become late since the last time, and those that beat again."""
        with self._lock:
            late = [seat for seat in self._in(LoopState.RUNNING) if self._is_late(seat)]
            back = [seat for seat in self._in(LoopState.LATE) if not self._is_late(seat)]
            for seat in late:
                seat.state = LoopState.LATE
            for seat in back:
                seat.state = LoopState.RUNNING
        return late, back

    def ready(self) -> bool:
        return all(seat.loop.running and not self._is_late(seat) for seat in self.seats)

    def details(self) -> Mapping[str, object]:
        return {"loops": {seat.name: self._shown(seat) for seat in self.seats}}

    def ages(self) -> dict[str, float]:
        return {seat.name: age for seat in self.seats if (age := seat.age) is not None}

    def _in(self, state: LoopState) -> list[Seat]:
        return [seat for seat in self.seats if seat.state is state]

    def _is_late(self, seat: Seat) -> bool:
        age = seat.age
        return self._late_after is not None and age is not None and age > seconds_of(self._late_after)

    def _shown(self, seat: Seat) -> Mapping[str, object]:
        state = LoopState.LATE if self._is_late(seat) else seat.state
        return {"state": state.value, "age_seconds": None if seat.age is None else round(seat.age, 1)}


def _heartbeat(loop: Runnable) -> Heartbeat | None:
    return getattr(loop, "heartbeat", None)


def _named(loops: Sequence[Runnable]) -> list[tuple[str, Runnable]]:
    """Two loops of one name could not be told apart in a log: the second gets its place as well."""
    named: dict[str, Runnable] = {}
    for index, loop in enumerate(loops):
        name = str(getattr(loop, "name", None) or f"loop-{index}")
        named[f"{name}-{index}" if name in named else name] = loop
    return list(named.items())
