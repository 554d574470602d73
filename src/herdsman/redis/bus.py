"""The streams of one replica: what others put there for us to act on, and what we announce."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

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
from herdsman.pools.rules import Serves
from herdsman.ports import Clock, SystemThreads, Threads
from herdsman.redis import stream_loops as loops
from herdsman.redis.streams import BusState, BusUnavailable, Count, Entry, GroupMissing, Hint, Mirror, Stream, Streams

log = structlog.get_logger()

HANGS_AFTER = timedelta(minutes=5)
"""Every call of Redis and of the database gives up within seconds."""


_LOOK = timedelta(seconds=1)
_START = "0-0"
_TEXTS = frozenset(("type", "job_id", "idempotency_key", "agent", "pool", "run_at", "model", "concurrency_key"))
"""Fields that are taken as they are written; all others are JSON."""


@dataclass
class Ingest:
    """Submits what others add to a stream, as `agent`."""

    context: loops.BusContext
    quarantine: loops.Quarantine
    agent: str
    submitted: Callable[[NewJob, Submitted], None]
    _not_before: float = float("-inf")

    def turn(self) -> None:
        context, redis = self.context, self.context.redis
        context.ingested.wait(context.rhythm.look.total_seconds())
        context.ingested.clear()
        held = held_entries(redis, redis.names.ingest, context.rhythm.claim_idle if context.hooks.leads() else None)
        if context.clock.monotonic() < self._not_before:
            return
        for entry in held:
            try:
                self._submit(entry)
            except TooMany as error:  # it stays, and so do those behind it: they would be told the same
                wait = error.retry_after or _LOOK
                self._not_before = context.clock.monotonic() + min(wait.total_seconds(), 60.0)
                return

    def _submit(self, entry: Entry) -> None:
        redis = self.context.redis
        if not entry.fields:
            redis.settle(entry.stream, [entry.id])
            return
        try:
            new = read(entry, self.agent)
            done = submit_job(self.context.services, new)
        except (InvalidRequest, Conflict, NotFound) as error:
            self.quarantine.put([(entry, str(error))])
            return
        # Acknowledged after the commit: what is lost in between is submitted again, and is the same job.
        redis.settle(entry.stream, [entry.id])
        self.context.state.count(Count.INGESTED)
        self.submitted(new, done)


def held_entries(redis: Streams, stream: Stream, take_over: timedelta | None) -> Sequence[Entry]:
    """Takes what is new in a stream, and what nobody has looked at for so long; all that this replica holds by then."""
    try:
        redis.take(stream)
        if take_over is not None:
            for _ in redis.take_over(stream, take_over):
                pass
        return redis.mine(stream, _START)
    except GroupMissing:
        redis.make_group(stream)
        return ()


def read(entry: Entry, agent: str) -> NewJob:
    """The same entry is always the same job: without an id of its own it gets one from the entry's."""
    job_id = entry.fields.get("job_id") or f"ingest-{entry.id}"
    try:
        fields = {
            name: text if name in _TEXTS else decode(text.encode(), what=name) for name, text in entry.fields.items()
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

    context: loops.BusContext
    tick: Callable[[], Cycle]

    def turn(self) -> None:
        context, redis = self.context, self.context.redis
        asked = context.ordered.wait(context.rhythm.look.total_seconds())
        context.ordered.clear()
        if not context.hooks.leads():
            return
        orders = [each.id for each in held_entries(redis, redis.names.preloads, context.rhythm.claim_idle)]
        if not (asked or orders):
            return
        if self.tick().epoch is not None:
            redis.settle(redis.names.preloads, orders)
        # However many orders come, cycles have their rhythm.
        context.clock.sleep(_LOOK)


class StreamBus:
    """Nothing here waits for Redis or fails because of it, but the threads between `start` and `stop`."""

    def __init__(
        self,
        redis: Streams,
        services: Services,
        clock: Clock,
        around: loops.ReplicaHooks,
        rhythm: loops.Intervals | None = None,
        ingest_agent: str | None = None,
        threads: Threads | None = None,
        state: BusState | None = None,
    ) -> None:
        """Without `ingest_agent` nobody can submit through a stream."""
        threads = threads or SystemThreads()
        self.redis = redis
        self.state = state or BusState()
        self.job_streams = loops.JobStreams(redis.names, services.database)
        self.context = context = loops.BusContext(
            redis=redis,
            services=services,
            job_streams=self.job_streams,
            state=self.state,
            clock=clock,
            threads=threads,
            rhythm=rhythm or loops.Intervals(),
            hooks=around,
            lost=threads.event(),
            ordered=threads.event(),
            ingested=threads.event(),
        )
        quarantine = loops.Quarantine(context)
        self.announcer, self.listener = loops.Announcer(context), loops.Listener(context)
        self.keeper = loops.Keeper(context, self.listener, quarantine)
        turns = {"announcer": self.announcer.turn, "listener": self.listener.turn, "keeper": self.keeper.turn}
        self.provisioner = None if around.tick is None else PoolProvisioner(context, around.tick)
        if self.provisioner is not None:
            turns["provisioner"] = self.provisioner.turn
        if ingest_agent is not None:
            turns["ingest"] = Ingest(context, quarantine, ingest_agent, self._ingested).turn
        self._group = LoopGroup(
            [self._loop(name, turn) for name, turn in turns.items()],
            watchdog_threshold=None,
            readiness_threshold=HANGS_AFTER.total_seconds(),
            on_late=lambda member: log.error("loop.hangs", loop=member.name, seconds=round(member.age or 0.0)),
            notifier=Notifier({}),  # systemd is not asked to wait for a replica
            threads=threads,
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
        self, event: str, pool_id: str, serves: Serves | None = None, desired_workers: int | None = None
    ) -> None:
        """A pool was created, swapped, scaled or drained: the leader need not wait for its next cycle."""
        serves = serves or Serves()
        fields = {
            "event": event,
            "pool_id": pool_id,
            "model_id": serves.model or "",
            "adapter": serves.adapter or "",
            "variant": serves.variant or "",
            "desired_workers": "" if desired_workers is None else str(desired_workers),
        }
        self.announcer.tell([loops.StreamMessage(self.redis.names.preloads, fields)])

    def announce_control(self, event: str, by: str, scope: str = "all") -> None:
        """Something that every replica should look at now: a pause, a drain, a cycle that was asked for."""
        self.announcer.tell([loops.StreamMessage(self.redis.names.control, {"event": event, "by": by, "scope": scope})])

    def mirror(self, job_id: str, mapping: Mapping[str, str]) -> None:
        """Where a job is on an external service, for those who look into Redis. The row is written first."""
        self.announcer.tell([Mirror(job_id, mapping)])

    def resync_soon(self) -> None:
        """Jobs were queued that nobody announced."""
        self.context.lost.set()

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
            clock=self.context.clock,
            threads=self.context.threads,
        )

    def _ingested(self, new: NewJob, done: Submitted) -> None:
        if done.created:
            self.context.hooks.ring()
            self.announce_jobs([new], [done])
