"""What others put into streams for us to act on: jobs, and orders about pools."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from threading import Event

from pydantic import ValidationError

from herdsman.context import Services
from herdsman.errors import Conflict, InvalidRequest, NotFound, TooMany
from herdsman.fleet.recording import Cycle
from herdsman.ids import JobId
from herdsman.jobs.commands import submit_job
from herdsman.jobs.model import NewJob, Submitted
from herdsman.jobs.wire import JobIn
from herdsman.json_text import decode
from herdsman.ports import Clock
from herdsman.redis.names import Entry
from herdsman.redis.settle import Quarantine
from herdsman.redis.streams import BusState, Count, GroupMissing, Streams

_LOOK = timedelta(seconds=1)
_START = "0-0"
_TEXTS = frozenset(
    ("type", "job_id", "idempotency_key", "agent", "pool", "run_at", "model", "concurrency_key")
)
"""Fields that are taken as they are written; all others are JSON."""


@dataclass
class Ingest:
    redis: Streams
    services: Services
    state: BusState
    quarantine: Quarantine
    clock: Clock
    agent: str
    claim_idle: timedelta
    leads: Callable[[], bool]
    submitted: Callable[[NewJob, Submitted], None]
    news: Event = field(default_factory=Event)
    look: timedelta = _LOOK
    _not_before: float = float("-inf")

    def turn(self) -> None:
        self.news.wait(self.look.total_seconds())
        self.news.clear()
        stream = self.redis.names.ingest
        try:
            self.redis.take(stream)
            if self.leads():
                for _ in self.redis.take_over(stream, self.claim_idle):
                    pass
            if self.clock.monotonic() >= self._not_before:
                self._submit_all(self.redis.mine(stream, _START))
        except GroupMissing:
            self.redis.make_group(stream)

    def _submit_all(self, entries: Sequence[Entry]) -> None:
        """In order, until one is told to wait: those behind it would be told the same."""
        for entry in entries:
            try:
                self._submit(entry)
            except TooMany as error:  # it stays, and so do those behind it
                wait = error.retry_after or _LOOK
                self._not_before = self.clock.monotonic() + min(wait.total_seconds(), 60.0)
                return

    def _submit(self, entry: Entry) -> None:
        if not entry.fields:
            self.redis.settle(entry.stream, [entry.id])
            return
        try:
            new = read(entry, self.agent)
            done = submit_job(self.services, new)
        except (InvalidRequest, Conflict, NotFound) as error:
            self.quarantine.put([(entry, str(error))])
            return
        # Acknowledged after the commit: what is lost in between is submitted again, and is the same job.
        self.redis.settle(entry.stream, [entry.id])
        self.state.count(Count.INGESTED)
        self.submitted(new, done)


def read(entry: Entry, agent: str) -> NewJob:
    """The same entry is always the same job: without an id of its own it gets one from the entry's."""
    job_id = entry.fields.get("job_id") or f"ingest-{entry.id}"
    try:
        fields = {
            name: text if name in _TEXTS else decode(text.encode(), what=name)
            for name, text in entry.fields.items()
        }
        job = JobIn.model_validate({**fields, "job_id": job_id})
    except ValidationError as error:
        wrong: list[Mapping[str, object]] = [{**each} for each in error.errors(include_input=False)]
        said = "; ".join(f"{each['loc']}: {each['msg']}" for each in wrong[:5])
        raise InvalidRequest(said) from error
    # Whoever may write to the stream is that agent, whatever the entry says (X2).
    return replace(job.new_job(agent), agent=agent, job_id=JobId(job_id))


@dataclass
class PoolProvisioner:
    """The rows of the pools say what is wanted; an order only says that it need not wait for the next cycle."""

    redis: Streams
    leads: Callable[[], bool]
    tick: Callable[[], Cycle]
    clock: Clock
    claim_idle: timedelta
    ordered: Event = field(default_factory=Event)
    look: timedelta = _LOOK

    def turn(self) -> None:
        asked = self.ordered.wait(self.look.total_seconds())
        self.ordered.clear()
        if not self.leads():
            return
        orders = self._orders()
        if not (asked or orders):
            return
        if self.tick().epoch is not None:
            self.redis.settle(self.redis.names.preloads, orders)
        # However many orders come, cycles have their rhythm.
        self.clock.sleep(_LOOK)

    def _orders(self) -> list[str]:
        stream = self.redis.names.preloads
        try:
            self.redis.take(stream)
            for _ in self.redis.take_over(stream, self.claim_idle):
                pass  # what a leader before us left
            return [entry.id for entry in self.redis.mine(stream, _START)]
        except GroupMissing:
            self.redis.make_group(stream)
            return []
