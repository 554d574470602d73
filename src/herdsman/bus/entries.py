"""What is read from streams and written to them."""

from collections.abc import Mapping
from dataclasses import dataclass

from herdsman.bus.names import Stream
from herdsman.core.hints import Hint

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
class Letter:
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
