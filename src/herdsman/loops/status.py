"""What is known about the loops of a process: running, late, ended."""

import threading
from collections.abc import Callable, Mapping, Sequence
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
    over: threading.Event
    state: LoopState = LoopState.WAITING
    error: BaseException | None = None

    @property
    def age(self) -> float | None:
        begun = self.state in (LoopState.RUNNING, LoopState.LATE)
        return self.heartbeat.elapsed() if begun and self.heartbeat is not None else None


class GroupStatus:
    def __init__(
        self,
        loops: Sequence[Runnable],
        late_after: float | Threshold | None,
        event: Callable[[], threading.Event] = threading.Event,
    ) -> None:
        named: dict[str, Runnable] = {}
        for index, loop in enumerate(loops):
            name = str(getattr(loop, "name", None) or f"loop-{index}")
            # Two loops of one name could not be told apart in a log: the second gets its index as well.
            named[f"{name}-{index}" if name in named else name] = loop
        self.members = tuple(
            Member(name, loop, getattr(loop, "heartbeat", None), event()) for name, loop in named.items()
        )
        self._late_after = late_after
        self._lock = threading.Lock()

    @property
    def late_after(self) -> float | None:
        """Seconds without a heartbeat; None where no loop is ever late."""
        return None if self._late_after is None else seconds_of(self._late_after)

    def begin(self, member: Member) -> None:
        with self._lock:
            if member.heartbeat is not None:
                member.heartbeat.beat()  # its time runs from here, not from when it was made
            member.state = LoopState.RUNNING

    def end(self, member: Member, error: BaseException | None) -> None:
        with self._lock:
            member.state = LoopState.FINISHED if error is None else LoopState.FAILED
            member.error = error
        member.over.set()

    def turned(self) -> tuple[list[Member], list[Member]]:
        """Those that have become late since the last time, and those that beat again."""
        with self._lock:
            late = [each for each in self._in(LoopState.RUNNING) if self._is_late(each)]
            back = [each for each in self._in(LoopState.LATE) if not self._is_late(each)]
            for member in late:
                member.state = LoopState.LATE
            for member in back:
                member.state = LoopState.RUNNING
        return late, back

    def ready(self) -> bool:
        return all(member.loop.running and not self._is_late(member) for member in self.members)

    def faults(self) -> Mapping[str, str]:
        """The loops that hang or have failed, each with what is wrong with it."""
        found: dict[str, str] = {}
        for member in self.members:
            if self._is_late(member):
                found[member.name] = f"hangs: no heartbeat for {member.age or 0.0:.0f} s"
            elif member.state is LoopState.FAILED:
                found[member.name] = f"failed: {type(member.error).__name__}"
        return found

    def details(self) -> Mapping[str, object]:
        def shown(member: Member) -> Mapping[str, object]:
            state, age = LoopState.LATE if self._is_late(member) else member.state, member.age
            return {"state": state.value, "age_seconds": None if age is None else round(age, 1)}

        return {"loops": {member.name: shown(member) for member in self.members}}

    def ages(self) -> dict[str, float]:
        return {member.name: age for member in self.members if (age := member.age) is not None}

    def _in(self, state: LoopState) -> list[Member]:
        return [member for member in self.members if member.state is state]

    def _is_late(self, member: Member) -> bool:
        age, limit = member.age, self.late_after
        return limit is not None and age is not None and age > limit


class LoopHealth:
    """Where the groups of a process report while they run, and where its probes ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: tuple[GroupStatus, ...] = ()

    def add(self, status: GroupStatus) -> None:
        with self._lock:
            self._groups = (*self._groups, status)

    def remove(self, status: GroupStatus) -> None:
        with self._lock:
            self._groups = tuple(each for each in self._groups if each is not status)

    def faults(self) -> Mapping[str, str]:
        """The loops that hang or have failed, each with what is wrong with it."""
        return {name: fault for status in self._groups for name, fault in status.faults().items()}
