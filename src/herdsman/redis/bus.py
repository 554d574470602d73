"""The streams of one replica: what others put there for us to act on, and what we announce."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from threading import Event

import structlog
from pydantic import ValidationError

from herdsman.context import Services
from herdsman.errors import Conflict, InvalidRequest, NotFound, StoreUnavailable, TooMany
from herdsman.fleet.recording import Cycle
from herdsman.ids import JobId
from herdsman.jobs.commands import submit_job
from herdsman.jobs.model import NewJob, Submitted
from herdsman.jobs.wire import JobIn
from herdsman.json_text import decode
from herdsman.loops.loop_group import LoopGroup
from herdsman.loops.periodic import PeriodicLoop
from herdsman.loops.watchdog import Notifier
from herdsman.ports import Clock, SystemThreads, Threads
from herdsman.redis.announce import Announcer, JobStreams, StreamMessage
from herdsman.redis.hints import Hint
from herdsman.redis.keeper import Intervals, Keeper
from herdsman.redis.listen import Listener
from herdsman.redis.names import Entry, Mirror
from herdsman.redis.settle import Quarantine, Resync, Settler
from herdsman.redis.streams import BusState, BusUnavailable, Count, GroupMissing, Streams

log = structlog.get_logger()

HANGS_AFTER = timedelta(minutes=5)
"""Every call of Redis and of the database gives up within seconds."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaHooks:
    wake: Callable[[], None]
    """Jobs were queued elsewhere."""
    ring: Callable[[], None]
    """Jobs were queued here."""
    leads: Callable[[], bool] = lambda: False
    tick: Callable[[], Cycle] | None = None
    """One cycle of the control loop, where there is one."""


class StreamBus:
    """Nothing here waits for Redis or fails because of it, but the threads between `start` and `stop`."""

    def __init__(
        self,
        redis: Streams,
        services: Services,
        clock: Clock,
        around: ReplicaHooks,
        rhythm: Intervals | None = None,
        ingest_agent: str | None = None,
        threads: Threads | None = None,
        state: BusState | None = None,
    ) -> None:
        """Without `ingest_agent` nobody can submit through a stream."""
        self.redis = redis
        self.state = state or BusState()
        self._threads = threads or SystemThreads()
        self._services = services
        self._clock = clock
        self._around = around
        self._rhythm = rhythm or Intervals()
        database = services.database
        self.roster = JobStreams(redis.names, database)
        self._quarantine = Quarantine(redis, database, self.state, clock)
        self.announcer = Announcer(
            redis,
            self.roster,
            self.state,
            on_lost=self.resync_soon,
            threads=self._threads,
            wait=self._rhythm.look / 2,
        )
        self.provisioner = self._provisioner()
        self.ingest = None if ingest_agent is None else self._ingest(ingest_agent)
        self.listener = Listener(
            redis,
            self.roster,
            self.state,
            wake=around.wake,
            on_order=_nothing if self.provisioner is None else self.provisioner.ordered.set,
            on_ingest=_nothing if self.ingest is None else self.ingest.news.set,
            on_lost=self.resync_soon,
        )
        self.keeper = Keeper(
            redis=redis,
            roster=self.roster,
            state=self.state,
            settler=Settler(redis, database, self.state, self._quarantine),
            resync=Resync(redis, database, self.roster, self.state),
            listener=self.listener,
            clock=clock,
            rhythm=self._rhythm,
            leads=around.leads,
            wake=around.wake,
            poked=self._threads.event(),
        )
        turns = {
            "announcer": self.announcer,
            "listener": self.listener,
            "keeper": self.keeper,
            "provisioner": self.provisioner,
            "ingest": self.ingest,
        }
        self._group = LoopGroup(
            [self._loop(name, part.turn) for name, part in turns.items() if part is not None],
            watchdog_threshold=None,
            readiness_threshold=HANGS_AFTER.total_seconds(),
            on_late=lambda member: log.error(
                "loop.hangs", loop=member.name, seconds=round(member.age or 0.0)
            ),
            notifier=Notifier({}),  # systemd is not asked to wait for a replica
            threads=self._threads,
            clock=clock,
        )

    @property
    def said(self) -> str:
        """`ok`, or what is wrong and what that means."""
        fault = self.state.fault
        if fault is None:
            fault = next((f"{loop} {what}" for loop, what in self._group.faults().items()), None)
        # What follows names hosts and users; it stands in the log.
        return "ok" if fault is None else f"degraded, the database is polled: {fault.partition(':')[0]}"

    def start(self) -> None:
        self._group.start()

    def stop(self) -> None:
        self._group.stop()
        self.redis.close()

    def announce_jobs(self, news: Sequence[NewJob], done: Sequence[Submitted]) -> None:
        """After the commit. Those that wait for their time are announced when it has come."""
        self.announcer.tell(
            [
                Hint(job_id=each.job_id, type=new.type, pool=each.pool or new.pool, timeout=new.timeout)
                for new, each in zip(news, done, strict=True)
                if each.created and not (new.run_at or new.delay or each.run_at)
            ]
        )

    def announce_pool(
        self,
        event: str,
        pool_id: str,
        *,
        model_id: str | None = None,
        adapter: str | None = None,
        variant: str | None = None,
        desired_workers: int | None = None,
    ) -> None:
        """A pool was created, swapped, scaled or drained: the leader need not wait for its next cycle."""
        said = {"model_id": model_id, "adapter": adapter, "variant": variant}
        wanted = "" if desired_workers is None else str(desired_workers)
        texts = {name: value or "" for name, value in said.items()}
        fields = {"event": event, "pool_id": pool_id, **texts, "desired_workers": wanted}
        self.announcer.tell([StreamMessage(self.redis.names.preloads, fields)])

    def announce_control(self, event: str, by: str, scope: str = "all") -> None:
        """Something that every replica should look at now: a pause, a drain, a cycle that was asked for."""
        self.announcer.tell(
            [StreamMessage(self.redis.names.control, {"event": event, "by": by, "scope": scope})]
        )

    def mirror(self, job_id: str, mapping: Mapping[str, str]) -> None:
        """Where a job is on an external service, for those who look into Redis. The row is written first."""
        self.announcer.tell([Mirror(job_id, mapping)])

    def resync_soon(self) -> None:
        """Jobs were queued that nobody announced."""
        self.keeper.poked.set()

    def _provisioner(self) -> PoolProvisioner | None:
        around = self._around
        if around.tick is None:
            return None
        return PoolProvisioner(
            self.redis,
            around.leads,
            around.tick,
            self._clock,
            self._rhythm.claim_idle,
            ordered=self._threads.event(),
            look=self._rhythm.look,
        )

    def _ingest(self, agent: str) -> Ingest:
        return Ingest(
            redis=self.redis,
            services=self._services,
            state=self.state,
            quarantine=self._quarantine,
            clock=self._clock,
            agent=agent,
            claim_idle=self._rhythm.claim_idle,
            leads=self._around.leads,
            submitted=self._ingested,
            news=self._threads.event(),
            look=self._rhythm.look,
        )

    def _loop(self, name: str, turn: Callable[[], None]) -> PeriodicLoop:
        """A turn waits by itself when there is nothing to do, and not for long. Whatever goes wrong, it goes on."""

        def counted() -> None:
            turn()
            self.state.fine(name)

        def failed(error: Exception) -> None:
            if isinstance(error, StoreUnavailable):
                # Redis is not to blame, and the entries stay where they are.
                log.debug("streams.postponed", loop=name, reason=str(error))
                return
            kind = "" if isinstance(error, BusUnavailable) else f"{type(error).__name__}: "
            self.state.failed(name, f"{kind}{error}")
            self.keeper.known_server = False
            self.redis.disconnect()

        return PeriodicLoop(
            f"streams-{name}",
            counted,
            retry_on=(Exception,),  # what an odd server says must not end the loop
            on_error=failed,
            clock=self._clock,
            threads=self._threads,
        )

    def _ingested(self, new: NewJob, done: Submitted) -> None:
        if done.created:
            self._around.ring()
            self.announce_jobs([new], [done])


def _nothing() -> None:
    """Nobody here is interested."""
