"""Workers and what happens, over HTTP."""

from collections.abc import Iterator, Sequence

from herdsman.cli.asking import Asking
from herdsman.client import calls
from herdsman.client.events import read_events
from herdsman.client.operation import iterate
from herdsman.client.transport import Transport
from herdsman.wire.fleet import WorkerOut, WorkersOut
from herdsman.wire.jobs import EventOut


class ApiHerd(Asking):
    _transport: Transport

    def workers(
        self, after: str | None, limit: int, *, states: Sequence[str] = (), pool: str | None = None
    ) -> WorkersOut:
        return self._ask(calls.workers(after, limit, states=states, pool=pool))

    def worker(self, worker_id: str) -> WorkerOut:
        return self._ask(calls.worker(worker_id))

    def events(
        self, since: int | None, kind: str | None, job_id: str | None, *, follow: bool
    ) -> Iterator[EventOut]:
        return iterate(read_events(self._transport, since=since, kind=kind, job_id=job_id, follow=follow))
