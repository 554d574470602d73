"""Maintains the entries: every replica its own, and the leader those of replicas that are gone."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event

from herdsman.ports import Clock
from herdsman.redis.announce import JobStreams
from herdsman.redis.listen import Listener
from herdsman.redis.names import Stream
from herdsman.redis.settle import Resync, Settler
from herdsman.redis.streams import BusState, Count, GroupMissing, Streams
from herdsman.states import HELD, JobState

_OFTEN = timedelta(seconds=1)
_SHORTEST = timedelta(milliseconds=20)
_FORGET = timedelta(minutes=10)
"""After so long a replica that holds nothing is taken to be gone; it only loses its name in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    claim_idle: timedelta = timedelta(seconds=60)
    reclaim: timedelta = timedelta(seconds=30)
    resync: timedelta = timedelta(seconds=10)
    look: timedelta = _OFTEN

    @property
    def settle(self) -> timedelta:
        """Often enough that what we hold never looks idle."""
        return max(_SHORTEST, min(self.look, self.claim_idle / 3))


@dataclass
class Keeper:
    redis: Streams
    roster: JobStreams
    state: BusState
    settler: Settler
    resync: Resync
    listener: Listener
    clock: Clock
    rhythm: Intervals
    leads: Callable[[], bool]
    wake: Callable[[], None]
    poked: Event = field(default_factory=Event)
    """Something was queued or lost: do not wait for the next comparison."""
    known_server: bool = False
    """False again after each fault: another server may answer at the same address."""
    _last: dict[str, float] = field(default_factory=dict[str, float])

    def turn(self) -> None:
        if self.clock.monotonic() - self._last.get("resync", float("-inf")) < _OFTEN.total_seconds():
            self.clock.sleep(
                self.rhythm.settle
            )  # a keeper that is poked all the time compares once in a while
        else:
            self.poked.wait(self.rhythm.settle.total_seconds())
        if not self.known_server:
            self.redis.check()
            self.known_server = True
        left = self.roster.refresh() if self._due("roster", _OFTEN) else ()
        for stream in self.roster.streams:
            self._settle(stream)
        self._compare()
        if self.leads():
            for stream in left:
                self.redis.remove(stream)
            self._lead()

    def _settle(self, stream: Stream) -> None:
        try:
            self.settler.pass_over(stream)
            size = self.redis.size(stream)
        except GroupMissing:
            self.redis.make_group(stream)
            self.poked.set()
            return
        current = {each.name for each in self.roster.streams}
        sizes = {name: each for name, each in self.state.sizes.items() if name in current}
        self.state.sizes = {**sizes, stream.name: size}
        self.listener.counted({name: each.mine for name, each in self.state.sizes.items()})

    def _compare(self) -> None:
        """Whoever noticed that something was lost; otherwise the leader, from time to time."""
        asked = self.poked.is_set() and self._due("asked", _OFTEN)
        if not asked and not (self.leads() and self._due("resync", self.rhythm.resync)):
            return
        self.poked.clear()
        self._last["resync"] = self.clock.monotonic()
        compared = False
        try:
            self.resync.run()
            compared = True
        finally:
            if asked and not compared:
                self.poked.set()
        self.state.dead = self.redis.length(self.redis.names.dead)

    def _lead(self) -> None:
        if self._due("reclaim", self.rhythm.reclaim):
            for stream in self.roster.streams:
                self.reclaim(stream)
        if self._due("tidy", self.rhythm.resync):
            for stream in (*self.roster.streams, self.redis.names.preloads):
                self.redis.trim(stream)
                self.redis.forget_consumers(stream, _FORGET)

    def reclaim(self, stream: Stream) -> None:
        """Entries of replicas that are gone. A job that a worker holds is not touched: its claim is in the database."""
        for page in self.redis.take_over(stream, self.rhythm.claim_idle):
            states = self.settler.settle(stream, page)
            kept = sum(number for state, number in states.items() if state in HELD)
            self.state.count(Count.KEPT, kept)
            self.state.count(Count.RECLAIMED, sum(states.values()) - kept)
            if states.get(JobState.PENDING):
                self.wake()

    def _due(self, what: str, interval: timedelta) -> bool:
        now = self.clock.monotonic()
        due = what not in self._last or now - self._last[what] >= interval.total_seconds()
        if due:
            self._last[what] = now
        return due
