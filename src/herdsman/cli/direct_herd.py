"""Workers and what happens, straight from the database."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from herdsman.control.commands import last_event, read_events
from herdsman.control.services import Services
from herdsman.core.model import PoolId, WorkerId
from herdsman.core.states import JOB, WorkerState
from herdsman.store import workers
from herdsman.wire.fleet import WorkerOut, WorkersOut
from herdsman.wire.jobs import EventOut

LOOK = timedelta(milliseconds=500)


@dataclass(frozen=True)
class DirectHerd(ABC):
    services: Services

    @abstractmethod
    def pause(self, duration: timedelta) -> None: ...

    def workers(
        self, after: str | None, limit: int, *, states: Sequence[str] = (), pool: str | None = None
    ) -> WorkersOut:
        wanted, named = [WorkerState(each) for each in states], None if pool is None else PoolId(pool)
        page = self.services.database.read(
            lambda tx: workers.page(tx, states=wanted, pool=named, after=after, limit=limit)
        )
        return WorkersOut(workers=tuple(WorkerOut.of(each) for each in page.workers), next=page.next)

    def worker(self, worker_id: str) -> WorkerOut:
        return WorkerOut.of(self.services.database.read(lambda tx: workers.get(tx, WorkerId(worker_id))))

    def events(
        self, since: int | None, kind: str | None, job_id: str | None, *, follow: bool
    ) -> Iterator[EventOut]:
        """Looks twice a second."""
        now = last_event(self.services)
        last = since if since is not None else now if follow else 0
        while follow or last < now:
            for entry in (found := read_events(self.services, last)):
                last = entry.id
                wanted = job_id is None or (entry.kind, entry.object_id) == (JOB.kind, job_id)
                if wanted and kind in (None, entry.kind):
                    yield EventOut.of(entry)
            if not found:
                self.pause(LOOK)
