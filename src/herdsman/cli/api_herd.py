"""Workers and what happens, over HTTP."""

from collections.abc import Iterator, Sequence

from herdsman.cli.asking import Asking
from herdsman.client.answers import body_of
from herdsman.client.call import get, named
from herdsman.client.driving import iterate
from herdsman.client.listing import Listing
from herdsman.client.transport import Transport
from herdsman.wire.jobs import EventOut
from herdsman.wire.workers import WorkerOut, WorkersOut


class ApiHerd(Asking):
    _transport: Transport

    def workers(
        self, after: str | None, limit: int, *, states: Sequence[str] = (), pool: str | None = None
    ) -> WorkersOut:
        asked = {"status": tuple(states), "pool": pool, "after": after, "limit": limit}
        return self._ask(get("/workers", body_of(WorkersOut), asked))

    def worker(self, worker_id: str) -> WorkerOut:
        return self._ask(get(f"/workers/{named('worker_id', worker_id)}", body_of(WorkerOut)))

    def events(
        self, since: int | None, kind: str | None, job_id: str | None, *, follow: bool
    ) -> Iterator[EventOut]:
        listing = Listing(self._transport)
        return iterate(listing.events(since=since, kind=kind, job_id=job_id, follow=follow))
