"""What streams, groups, keys and entries are called and contain, and what is asked of their server.

People read them with redis-cli. A stream only hints at jobs; what becomes of a hint is decided by the row of its job.
The library `redis` is not needed for this.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, StrEnum, auto
from threading import Lock
from typing import Protocol, assert_never

import structlog

from herdsman.errors import HerdsmanError
from herdsman.ids import NAME, JobId, PoolId
from herdsman.states import JobStatus

log = structlog.get_logger()

PAGE = 500
LONGEST_ID = 128
LONGEST_TEXT = 2000


@dataclass(frozen=True, slots=True)
class Stream:
    name: str
    group: str


@dataclass(frozen=True, slots=True)
class Names:
    prefix: str = "stream:orchestrator"

    @property
    def jobs(self) -> Stream:
        return Stream(f"{self.prefix}:inference_jobs", "cg:inference")

    def jobs_of(self, pool: PoolId) -> Stream:
        """Of a pool that shares its stream with nobody."""
        return Stream(f"{self.jobs.name}:{pool}", f"{self.jobs.group}:{pool}")

    @property
    def ingest(self) -> Stream:
        return Stream(f"{self.prefix}:ingest_events", "cg:ingest")

    @property
    def preloads(self) -> Stream:
        return Stream(f"{self.prefix}:preloads", "cg:preloads:workers")

    @property
    def control(self) -> str:
        """Every replica reads all of it, so it has no group."""
        return f"{self.prefix}:control"

    @property
    def dead(self) -> str:
        return f"{self.prefix}:dlq"

    def announced_key(self, job_id: str, version: int) -> str:
        """Is there while it is known that this end of the job was announced."""
        return f"{self.dead}:told:{job_id}:{version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A job that waits. `version` is that of its row, so that a job that waits again is announced again."""

    job_id: JobId
    type: str
    pool: PoolId
    version: int = 1
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the row of a hint says."""

    job_id: JobId
    status: JobStatus
    version: int
    pool: PoolId
    attempts: int
    last_error: str | None
    service: dict[str, str] = field(default_factory=dict[str, str])
    """Where the job is on an external service, if it is on one."""


class Verdict(Enum):
    KEEP = auto()
    """The job waits or runs: the hint is left alone, however old it is."""
    SETTLE = auto()
    """Nothing is left to be done about it now; one that is to be tried again is announced again."""
    DEAD_LETTER = auto()
    """Nobody will try it again, and that is announced."""
    QUARANTINE = auto()
    """There is no such job: somebody made the hint up."""


def judge(known: Known | None) -> Verdict:
    if known is None:
        return Verdict.QUARANTINE
    match known.status:
        case JobStatus.PENDING | JobStatus.CLAIMED | JobStatus.RUNNING:
            return Verdict.KEEP
        case JobStatus.DEAD_LETTER:
            return Verdict.DEAD_LETTER
        case JobStatus.SCHEDULED | JobStatus.FAILED | JobStatus.DONE | JobStatus.CANCELLED:
            return Verdict.SETTLE
        case _:
            assert_never(known.status)


def possible(job_id: str) -> bool:
    """Whether a job could have this id at all."""
    return len(job_id) <= LONGEST_ID and NAME.fullmatch(job_id) is not None


def job_key(job_id: str) -> str:
    """The hash that mirrors a job."""
    return f"job:{job_id}"


@dataclass(frozen=True, slots=True)
class Entry:
    stream: Stream
    id: str
    fields: Mapping[str, str]
    """Empty when the entry was deleted while somebody held it."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """What Redis shows of a job, for people and programs that read it there."""

    job_id: str
    fields: Mapping[str, str]
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A job, or something that claimed to be one, that nobody will try again."""

    job_id: str
    version: int | None = None
    """None for what is no job of ours."""
    origin_id: str = ""
    attempts: int = 0
    last_error: str = ""
    entry: Entry | None = None
    """Is settled together with the announcement."""

    def fields(self) -> dict[str, str]:
        return {
            "job_id": self.job_id[:LONGEST_TEXT],
            "origin_id": self.origin_id,
            "attempts": str(self.attempts),
            "last_error": self.last_error[:LONGEST_TEXT],
        }


def hint_fields(hint: Hint, by: str) -> dict[str, str]:
    """No payload: whoever reads it has to read the database anyway. `by` tells a replica its own words."""
    limit = {} if hint.timeout is None else {"timeout_seconds": f"{hint.timeout.total_seconds():g}"}
    return {"job_id": hint.job_id, "type": hint.type, **limit, "by": by}


def hint_mirror(hint: Hint, entry_id: str) -> Mirror:
    fields = {"status": "pending", "pool": hint.pool, "entry": entry_id, "version": str(hint.version)}
    return Mirror(hint.job_id, fields)


class BusUnavailable(HerdsmanError):
    """Redis did not answer, or would not do it: away, loading, read-only, out of memory, unable to save."""


class GroupMissing(BusUnavailable):
    """The stream or its group is gone: somebody deleted it, or the server has forgotten everything."""


class StreamSpent(BusUnavailable):
    """Somebody used up the ids of the stream, so that nothing can be added any more."""


class NotAllowed(BusUnavailable):
    """The account may not do this."""


Read = Sequence[tuple[str, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Size:
    length: int
    pending: int
    mine: int
    """How many of those pending this replica holds."""


class Streams(Protocol):
    """What a replica asks of a stream server; `RedisStreams` tells what each means.

    Each may fail with `BusUnavailable`, and may then have been done all the same. `GroupMissing` where the stream or
    its group is gone.
    """

    @property
    def names(self) -> Names: ...
    @property
    def consumer(self) -> str: ...
    def check(self) -> None: ...
    def disconnect(self) -> None: ...
    def close(self) -> None: ...
    def make_group(self, stream: Stream) -> bool: ...
    def remove(self, stream: Stream) -> None: ...
    def announce(self, stream: Stream, hints: Sequence[Hint]) -> None: ...
    def announced(self, job_ids: Sequence[str]) -> list[str | None]: ...
    def reflect(self, mirrors: Sequence[Mirror]) -> None: ...
    def say(self, name: str, fields: Mapping[str, str]) -> None: ...
    def order(self, stream: Stream, fields: Mapping[str, str]) -> None: ...
    def listen(self, after: Mapping[str, str]) -> Mapping[str, Read]: ...
    def take(self, stream: Stream) -> list[Entry]: ...
    def mine(self, stream: Stream, after: str) -> list[Entry]: ...
    def take_over(self, stream: Stream, idle: timedelta) -> Iterator[list[Entry]]: ...
    def settle(self, stream: Stream, ids: Sequence[str]) -> None: ...
    def add_dead_letters(self, letters: Sequence[DeadLetter]) -> int: ...
    def trim(self, stream: Stream) -> None: ...
    def forget_consumers(self, stream: Stream, idle: timedelta) -> None: ...
    def size(self, stream: Stream) -> Size: ...
    def length(self, name: str) -> int: ...


class Count(StrEnum):
    PUBLISHED = "published"
    DROPPED = "dropped"
    REQUEUED = "requeued"
    """Announced once more, because Redis did not know of it or it waits again."""
    RECLAIMED = "reclaimed"
    """Taken over from a replica that is gone, and not held by a worker."""
    KEPT = "kept"
    """Taken over, while a worker that lives holds the job: nothing was done about it."""
    SETTLED = "settled"
    LET_GO = "let_go"
    DEAD_LETTERS = "dead_letters"
    QUARANTINED = "quarantined"
    INGESTED = "ingested"
    FAULTS = "faults"


class BusState:
    def __init__(self) -> None:
        self._lock = Lock()
        self._faults: dict[str, str] = {}
        self._counts: Counter[Count] = Counter()
        self.sizes: Mapping[str, Size] = {}
        """Of each stream of jobs, as it was last counted."""
        self.dead = 0

    @property
    def fault(self) -> str | None:
        """What is wrong now; None when all is well."""
        with self._lock:
            return next(iter(self._faults.values()), None)

    @property
    def counts(self) -> Mapping[Count, int]:
        with self._lock:
            return {each: self._counts[each] for each in Count}

    def count(self, what: Count, number: int = 1) -> None:
        with self._lock:
            self._counts[what] += number

    def failed(self, loop: str, reason: str) -> None:
        """Said once, however many tries fail after it."""
        with self._lock:
            news = not self._faults
            self._faults[loop] = reason
            self._counts[Count.FAULTS] += 1
        if news:
            log.warning("streams.away", loop=loop, reason=reason, meanwhile="the database is polled")

    def fine(self, loop: str) -> None:
        with self._lock:
            news = self._faults.pop(loop, None) is not None and not self._faults
        if news:
            log.info("streams.back", loop=loop)
