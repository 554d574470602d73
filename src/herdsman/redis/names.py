"""What streams, groups, keys and entries are called and contain. People look at them with redis-cli."""

from collections.abc import Mapping
from dataclasses import dataclass

from herdsman.ids import PoolId
from herdsman.redis.hints import Hint


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

    def told(self, job_id: str, version: int) -> str:
        """Is there while it is known that this end of the job was announced."""
        return f"{self.dead}:told:{job_id}:{version}"


def job_key(job_id: str) -> str:
    """The hash that mirrors a job."""
    return f"job:{job_id}"


LONGEST_TEXT = 2000


@dataclass(frozen=True, slots=True)
class Entry:
    stream: Stream
    id: str
    fields: Mapping[str, str]
    """Empty when the entry was deleted while somebody held it."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """What Redis shows of a job, for people and programs that look there."""

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
    """No payload: whoever reads it has to look at the database anyway. `by` tells a replica its own words."""
    limit = {} if hint.timeout is None else {"timeout_seconds": f"{hint.timeout.total_seconds():g}"}
    return {"job_id": hint.job_id, "type": hint.type, **limit, "by": by}


def hint_mirror(hint: Hint, entry_id: str) -> Mirror:
    fields = {"status": "pending", "pool": hint.pool, "entry": entry_id, "version": str(hint.version)}
    return Mirror(hint.job_id, fields)
