"""A server of streams for a test to play on: the real one, or the one of the simulation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from herdsman.ports import SystemThreads, Threads
from herdsman.redis.redis_client import RedisStreams
from herdsman.redis.streams import Names, Stream, Streams
from herdsman.testing.simulation.faults import Hazards
from herdsman.testing.simulation.sim_bus import WorldStreams
from herdsman.testing.simulation.sim_redis import LAST, WorldRedis, id_of, text_of
from herdsman.testing.simulation.threads import WorldThreads
from herdsman.testing.simulation.world import World
from tests.support.redis_streams import client
from tests.support.servers.redis import RedisServer

NAMES = Names()
SHORT, LONG = timedelta(milliseconds=30), timedelta(seconds=60)


@dataclass(frozen=True, kw_only=True)
class Stage:
    open: Callable[[str, timedelta], Streams]
    """A replica of that name, which listens for so long."""
    threads: Threads
    add: Callable[[str, Mapping[str, str]], str]
    """As a stranger does it; the id of the entry."""
    spend: Callable[[str], None]
    """An entry with the last id that there is."""
    delete: Callable[[str, str], None]
    """One entry of a stream, which whoever holds it still holds."""
    acknowledge: Callable[[Stream, str], None]
    """Without deleting the entry."""
    flush: Callable[[], None]
    consumers: Callable[[Stream], set[str]]
    listens: Callable[[], bool]
    """Whether somebody waits for entries now."""

    def replica(self, name: str = "one", block: timedelta = SHORT) -> Streams:
        return self.open(name, block)


Script = Callable[[Stage], None]


def on_redis(server: RedisServer, script: Script) -> None:
    raw: Any = client(server)
    raw.flushall()
    opened: list[RedisStreams] = []

    def an_open(name: str, block: timedelta) -> Streams:
        opened.append(RedisStreams(server.url(), NAMES, name, block))
        return opened[-1]

    try:
        script(
            Stage(
                open=an_open,
                threads=SystemThreads(),
                add=lambda name, fields: str(raw.xadd(name, dict(fields))),
                spend=lambda name: raw.xadd(name, {"a": "b"}, id=text_of(LAST)),
                delete=raw.xdel,
                acknowledge=lambda stream, entry: raw.xack(stream.name, stream.group, entry),
                flush=raw.flushall,
                consumers=lambda stream: {str(each["name"]) for each in raw.xinfo_consumers(stream.name, stream.group)},
                listens=lambda: raw.info("clients")["blocked_clients"] > 0,
            )
        )
    finally:
        for each in opened:
            each.close()
        raw.close()


def in_the_world(script: Script) -> None:
    world = World(1, Hazards({}), faults_until=0.0)
    process, server = world.process("script"), WorldRedis(world, NAMES)

    def delete(name: str, entry: str) -> None:
        del server.log(name).entries[id_of(entry)]

    def acknowledge(stream: Stream, entry: str) -> None:
        del server.group(stream).held[id_of(entry)]

    def listens() -> bool:
        world.travel()
        return bool(server.listeners)

    stage = Stage(
        open=lambda name, block: WorldStreams(server, NAMES, name, block),
        threads=WorldThreads(world.scheduler, process),
        add=lambda name, fields: text_of(server.keep(name, fields)),
        spend=server.spend,
        delete=delete,
        acknowledge=acknowledge,
        flush=server.forget_all,
        consumers=lambda stream: {*server.group(stream).heard},
        listens=listens,
    )
    strand = world.start(process, "script", lambda: script(stage))
    world.scheduler.run(1000.0)
    for _, error in world.scheduler.broken:
        raise error
    assert strand.over, "the script waits for something that does not come"
    world.scheduler.close()
