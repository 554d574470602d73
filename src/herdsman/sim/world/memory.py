"""What a pretended Redis remembers: streams and their groups, mirrors of jobs, and which ends were announced."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from herdsman.redis.names import Stream
from herdsman.redis.streams import GroupMissing, StreamSpent

Id = tuple[int, int]
Fields = Mapping[str, str]
FIRST: Id = (0, 0)
LAST: Id = (2**64 - 1, 2**64 - 1)
"""After an entry of this id a stream takes no other."""


@dataclass
class Hold:
    consumer: str
    since: float
    """When its holder looked at it last."""


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
        floors = [min(group.held, default=_next(group.given)) for group in self.groups.values()]
        below = [each for each in self.entries if floors and each < min(floors)]
        for each in below:
            del self.entries[each]


@dataclass
class Memory:
    logs: dict[str, Log] = field(default_factory=dict[str, Log])
    mirrors: dict[str, tuple[float, dict[str, str]]] = field(
        default_factory=dict[str, tuple[float, dict[str, str]]]
    )
    """With the time at which each is forgotten."""
    told: set[str] = field(default_factory=set[str])

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
        self.told.clear()

    def end(self, stream: Stream, ids: Iterable[Id]) -> None:
        """Acknowledged and gone."""
        log = self.logs.get(stream.name, Log())
        group = log.groups.get(stream.group, Group())
        for each in ids:
            log.entries.pop(each, None)
            group.held.pop(each, None)

    def reflect(self, job_id: str, fields: Fields, now: float, kept_s: float) -> None:
        self.mirrors[job_id] = (now + kept_s, {**self.mirror(job_id, now), **fields})

    def mirror(self, job_id: str, now: float) -> Fields:
        until, fields = self.mirrors.get(job_id, (0.0, {}))
        return fields if now < until else {}


def text_of(each: Id) -> str:
    return f"{each[0]}-{each[1]}"


def id_of(text: str) -> Id:
    milliseconds, _, number = text.partition("-")
    return int(milliseconds), int(number or 0)


def _next(each: Id) -> Id:
    return each[0], each[1] + 1
