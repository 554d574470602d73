"""A simulated Redis server: what it stores, and the faults that its callers meet."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event

from herdsman.redis.streams import BusUnavailable, GroupMissing, Names, Stream, StreamSpent
from herdsman.testing.simulation.faults import Fault
from herdsman.testing.simulation.threads import WorldEvent
from herdsman.testing.simulation.world import ZERO, World

Id = tuple[int, int]
Fields = Mapping[str, str]
FIRST: Id = (0, 0)
LAST: Id = (2**64 - 1, 2**64 - 1)
"""After an entry of this id a stream takes no other."""


@dataclass
class Hold:
    consumer: str
    since: float
    """When its holder read it last."""


@dataclass
class Group:
    given: Id = FIRST
    """Everything up to it was handed out."""
    held: dict[Id, Hold] = field(default_factory=dict[Id, Hold])
    heard: dict[str, float] = field(default_factory=dict[str, float])
    """When each consumer was heard of last."""


@dataclass
class Log:
    """One stream. Its ids only rise, and so entries and what groups hold of them are in their order."""

    entries: dict[Id, Fields] = field(default_factory=dict[Id, Fields])
    last: Id = FIRST
    groups: dict[str, Group] = field(default_factory=dict[str, Group])

    def add(self, fields: Fields, milliseconds: int) -> Id:
        if self.last == LAST:
            raise StreamSpent("Redis refuses: the stream has exhausted the last possible ID")
        self.last = max((milliseconds, 0), (self.last[0], self.last[1] + 1))
        self.entries[self.last] = fields
        return self.last

    def after(self, place: Id, limit: int) -> list[tuple[str, Fields]]:
        later = [(text_of(each), fields) for each, fields in self.entries.items() if each > place]
        return later[:limit]

    def trim(self) -> None:
        """What every group has been given and acknowledged."""
        floors = [min(group.held, default=(group.given[0], group.given[1] + 1)) for group in self.groups.values()]
        below = [each for each in self.entries if floors and each < min(floors)]
        for each in below:
            del self.entries[each]


def text_of(each: Id) -> str:
    return f"{each[0]}-{each[1]}"


def id_of(text: str) -> Id:
    milliseconds, _, number = text.partition("-")
    return int(milliseconds), int(number or 0)


ZERO_MS = round(ZERO.timestamp() * 1000)
LONGEST_AWAY_S = 20.0


@dataclass
class WorldRedis:
    _world: World
    _names: Names
    logs: dict[str, Log] = field(default_factory=dict[str, Log])
    mirrors: dict[str, tuple[float, dict[str, str]]] = field(default_factory=dict[str, tuple[float, dict[str, str]]])
    """With the time at which each is forgotten."""
    announced_keys: set[str] = field(default_factory=set[str])
    acknowledged: set[str] = field(default_factory=set[str])
    """Jobs that somebody added to a stream, and whose entry was settled: from then on they are promised."""
    listeners: dict[str, tuple[Event, frozenset[str]]] = field(default_factory=dict[str, tuple[Event, frozenset[str]]])
    """Who waits for an entry now, and of which streams."""
    _away_until: float = 0.0

    @property
    def now(self) -> float:
        return self._world.now

    def log(self, name: str) -> Log:
        return self.logs.setdefault(name, Log())

    def group(self, stream: Stream) -> Group:
        log = self.logs.get(stream.name)
        if log is None or stream.group not in log.groups:
            raise GroupMissing(f"Redis refuses: NOGROUP no group {stream.group} on {stream.name}")
        return log.groups[stream.group]

    def length(self, name: str) -> int:
        return len(self.logs[name].entries) if name in self.logs else 0

    def forget_all(self) -> None:
        self.logs.clear()
        self.mirrors.clear()
        self.announced_keys.clear()

    def end(self, stream: Stream, ids: Iterable[Id]) -> None:
        """Acknowledged and gone."""
        log = self.logs.get(stream.name, Log())
        group = log.groups.get(stream.group, Group())
        for each in ids:
            log.entries.pop(each, None)
            group.held.pop(each, None)

    def reflect(self, job_id: str, fields: Fields, kept_s: float) -> None:
        self.mirrors[job_id] = (self.now + kept_s, {**self.mirror(job_id), **fields})

    def mirror(self, job_id: str) -> Fields:
        until, fields = self.mirrors.get(job_id, (0.0, {}))
        return fields if self.now < until else {}

    @contextmanager
    def asked(self) -> Generator[None]:
        """The block is what it does at one moment; its answer may be lost."""
        self.ask()
        yield
        if self._world.strikes(Fault.BUS_UNANSWERED):
            raise BusUnavailable("Redis does not answer: the reply was lost")

    def ask(self) -> None:
        """`BusUnavailable` when the way is cut or nobody is there."""
        world = self._world
        world.travel()
        if self._away_until <= world.now and world.strikes(Fault.BUS_AWAY):
            self._away_until = world.now + world.random.uniform(1, LONGEST_AWAY_S)
        if world.scheduler.current.process.cut_off_until > world.now or self._away_until > world.now:
            raise BusUnavailable("Redis does not answer: the connection was refused")
        if not world.troubled:
            return
        if world.strikes(Fault.BUS_FLUSHED):
            self.forget_all()
        if world.strikes(Fault.STREAM_DELETED):
            lost = world.random.choice((self._names.jobs, self._names.ingest, self._names.preloads))
            if world.random.random() < 0.5:
                self.logs.pop(lost.name, None)
            elif lost.name in self.logs:
                self.logs[lost.name].groups.pop(lost.group, None)
        if world.strikes(Fault.ENTRY_FORGED):
            self._forge()

    def add(self, name: str, fields: Mapping[str, str]) -> Id:
        """It may be lost all the same, or come twice."""
        if self._world.strikes(Fault.ENTRY_DOUBLED):
            self.keep(name, fields)
        added = self.keep(name, fields)
        if self._world.strikes(Fault.ENTRY_LOST):
            del self.log(name).entries[added]
        return added

    def keep(self, name: str, fields: Mapping[str, str]) -> Id:
        added = self.log(name).add(dict(fields), ZERO_MS + round(self.now * 1000))
        self._tell(f"adds {fields.get('job_id', '')} to {name}")
        for event, names in self.listeners.values():
            if name in names:
                event.set()
        return added

    def spend(self, name: str) -> None:
        """An entry whose id is such that nothing can come after it."""
        log = self.log(name)
        log.entries[LAST], log.last = {"nonsense": "1"}, LAST

    def settle(self, stream: Stream, ids: Sequence[Id]) -> None:
        entries = self.log(stream.name).entries
        if stream == self._names.ingest:
            self.acknowledged |= {entries[each]["job_id"] for each in ids if each in entries}
        self.end(stream, ids)
        self._tell(f"settles {len(ids)} of {stream.name}")

    def wait_for(self, who: str, names: frozenset[str], seconds: float) -> None:
        """Until something is added to one of these streams, or the time is over."""
        event = WorldEvent(self._world.scheduler)
        self.listeners[who] = (event, names)
        event.wait(seconds)
        del self.listeners[who]
        self.ask()

    def _tell(self, what: str) -> None:
        self._world.tell(self._world.scheduler.current.process.name, what)

    def _forge(self) -> None:
        """What somebody who may write there could make up."""
        chance, names = self._world.random, self._names
        some_job = f"job-{chance.randint(0, 9)}"
        name, fields = names.jobs.name, dict[str, str]()
        match chance.randint(0, 6):
            case 0:
                self.spend(names.jobs.name)
            case 1:
                self.reflect(some_job, {"version": str(chance.randint(0, 5))}, 60.0)
            case 2:
                name, fields = names.ingest.name, {"type": "single", "payload": "{"}
            case 3:
                name, fields = names.preloads.name, {"event": "created", "pool_id": "nowhere"}
            case 4:
                fields = {"nonsense": "1"}
            case 5:
                fields = {"job_id": f"forged-{chance.randint(0, 99)}", "type": "single"}
            case _:
                fields = {"job_id": some_job, "type": "single", "by": "nobody"}
        if fields and self.log(name).last != LAST:
            self.keep(name, fields)
