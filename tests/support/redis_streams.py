"""A private Redis, and the streams of a replica whose parts a test moves by hand."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from redis import Redis

from herdsman.context import Services
from herdsman.fleet.recording import Cycle
from herdsman.ids import JobId
from herdsman.jobs.commands import submit_job
from herdsman.jobs.model import NewJob
from herdsman.ports import SystemClock
from herdsman.redis.bus import StreamBus
from herdsman.redis.redis_client import RedisStreams
from herdsman.redis.stream_loops import Intervals, ReplicaHooks
from herdsman.redis.streams import Count, Names, Stream
from tests.support.servers.redis import RedisServer

NAMES = Names()
BLOCK = timedelta(milliseconds=30)
QUICK = Intervals(claim_idle=timedelta(milliseconds=150), reclaim=timedelta(0), resync=timedelta(0))
STEADY = replace(QUICK, claim_idle=timedelta(milliseconds=600), look=timedelta(milliseconds=50))
"""For tests in which who lives is never late, also on a machine that is busy."""
PATIENT = replace(QUICK, claim_idle=timedelta(hours=1), look=timedelta(milliseconds=20))
"""For tests in which nothing is to be taken over."""


def client(server: RedisServer) -> Any:
    opened: Any = Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
        server.url(), decode_responses=True, protocol=2
    )
    return opened


@dataclass
class Replica:
    bus: StreamBus
    raw: Any
    """Redis, as a person with redis-cli sees it."""
    services: Services
    heard: list[str] = field(default_factory=list[str])

    def submit(self, **wanted: Any) -> JobId:
        asked: dict[str, Any] = {"type": "demo", **wanted}
        new = NewJob(**asked)
        done = submit_job(self.services, new)
        self.bus.announce_jobs([new], [done])
        return done.job_id

    def publish(self) -> None:
        self.bus.announcer.turn()

    def listen(self) -> int:
        """How often the workers that wait were woken."""
        before = self.heard.count("wake")
        self.bus.listener.turn()
        return self.heard.count("wake") - before

    def keep(self) -> None:
        self.bus.keeper.turn()

    def count(self, what: Count) -> int:
        return self.bus.state.counts[what]

    def dead(self) -> list[Mapping[str, str]]:
        return [fields for _, fields in self.raw.xrange(NAMES.dead)]

    def entries(self, stream: Stream = NAMES.jobs) -> list[Mapping[str, str]]:
        return [fields for _, fields in self.raw.xrange(stream.name)]

    def pending(self, stream: Stream = NAMES.jobs) -> Sequence[Mapping[str, Any]]:
        return self.raw.xpending_range(stream.name, stream.group, "-", "+", 1000)


@contextmanager
def replica(
    server: RedisServer,
    services: Services,
    name: str = "one",
    *,
    leads: bool = True,
    rhythm: Intervals = PATIENT,
    agent: str | None = None,
    block: timedelta = BLOCK,
) -> Generator[Replica]:
    redis = RedisStreams(server.url(), NAMES, name, block)
    heard: list[str] = []

    def tick() -> Cycle:
        heard.append("tick")
        return Cycle(started_at=None, epoch=1 if leads else None, seen=None)

    around = ReplicaHooks(
        wake=lambda: heard.append("wake"), ring=lambda: heard.append("ring"), leads=lambda: leads, tick=tick
    )
    bus = StreamBus(redis, services, SystemClock(), around, rhythm, ingest_agent=agent)
    raw = client(server)
    yield Replica(bus, raw, services, heard)
    redis.close()
    raw.close()
