"""Workers and what happens, over HTTP (`api_herd`) or straight from the database (`direct_herd`)."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from herdsman.wire.fleet import WorkerOut, WorkersOut
from herdsman.wire.jobs import EventOut


class HerdDoor(Protocol):
    def workers(
        self, after: str | None, limit: int, *, states: Sequence[str] = (), pool: str | None = None
    ) -> WorkersOut:
        """Newest first, those that are gone too; of these states and this pool only, where they are named."""
        ...

    def worker(self, worker_id: str) -> WorkerOut: ...

    def events(
        self, since: int | None, kind: str | None, job_id: str | None, *, follow: bool
    ) -> Iterator[EventOut]:
        """What happens, without end, and without `since` from now on; or without `follow`, what has happened."""
        ...
