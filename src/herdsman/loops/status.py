"""What a group knows about each of its loops."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from herdsman.loops.heartbeat import Heartbeat, Runnable, Threshold, seconds_of


class LoopState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    LATE = "late"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class Member:
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


class GroupStatus:
    def __init__(self, loops: Sequence[Runnable], late_after: float | Threshold | None) -> None:
        self.members = tuple(Member(name, loop, _heartbeat(loop)) for name, loop in _named(loops))
        self._late_after = late_after
        self._lock = threading.Lock()

    def begin(self, member: Member) -> None:
        with self._lock:
            if member.heartbeat is not None:
                member.heartbeat.beat()  # its time runs from here, not from when it was made
            member.state = LoopState.RUNNING

    def end(self, member: Member, error: BaseException | None) -> None:
        with self._lock:
            member.state = LoopState.FINISHED if error is None else LoopState.FAILED
            member.error = error

    def turned(self) -> tuple[list[Member], list[Member]]:
        """Those that have become late since the last time, and those that beat again."""
        with self._lock:
            late = [member for member in self._in(LoopState.RUNNING) if self._is_late(member)]
            back = [member for member in self._in(LoopState.LATE) if not self._is_late(member)]
            for member in late:
                member.state = LoopState.LATE
            for member in back:
                member.state = LoopState.RUNNING
        return late, back

    def ready(self) -> bool:
        return all(member.loop.running and not self._is_late(member) for member in self.members)

    def details(self) -> Mapping[str, object]:
        return {"loops": {member.name: self._shown(member) for member in self.members}}

    def ages(self) -> dict[str, float]:
        return {member.name: age for member in self.members if (age := member.age) is not None}

    def _in(self, state: LoopState) -> list[Member]:
        return [member for member in self.members if member.state is state]

    def _is_late(self, member: Member) -> bool:
        age = member.age
        return self._late_after is not None and age is not None and age > seconds_of(self._late_after)

    def _shown(self, member: Member) -> Mapping[str, object]:
        state = LoopState.LATE if self._is_late(member) else member.state
        return {"state": state.value, "age_seconds": None if member.age is None else round(member.age, 1)}


def _heartbeat(loop: Runnable) -> Heartbeat | None:
    return getattr(loop, "heartbeat", None)


def _named(loops: Sequence[Runnable]) -> list[tuple[str, Runnable]]:
    """Two loops of one name could not be told apart in a log: the second gets its place as well."""
    named: dict[str, Runnable] = {}
    for index, loop in enumerate(loops):
        name = str(getattr(loop, "name", None) or f"loop-{index}")
        named[f"{name}-{index}" if name in named else name] = loop
    return list(named.items())
