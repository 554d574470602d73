"""The client side of the simulated Redis: streams, the stream loops of a replica, and how workers are woken early."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from herdsman.context import Services
from herdsman.redis import streams
from herdsman.redis.bus import StreamBus
from herdsman.redis.stream_loops import Intervals, ReplicaHooks
from herdsman.server.wiring import Control
from herdsman.testing.simulation.scheduler import Process
from herdsman.testing.simulation.sim_redis import FIRST, Group, Hold, Id, Log, WorldRedis, id_of, text_of
from herdsman.testing.simulation.threads import WorldClock, WorldEvent, WorldThreads
from herdsman.testing.simulation.world import World


class Wakeup:
    """A clock whose sleepers wake on `notify`, or when their time is over."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._event = WorldEvent(world.scheduler)

    def notify(self) -> None:
        self._event.set()
        self._event.clear()

    def monotonic(self) -> float:
        return self._world.clock.monotonic()

    def sleep(self, duration: timedelta) -> None:
        began = self._world.now
        self._event.wait(duration.total_seconds())
        if self._world.now - began < duration.total_seconds():
            self._world.note("woken_early")


KEPT_S, END_KEPT_S = 86_400.0, 60.0
"""For mirrors of jobs."""
_NEW = "$"


class WorldStreams:
    """Of one process; all of them speak to one server."""

    def __init__(
        self, server: WorldRedis, names: streams.Names, consumer: str, block: timedelta = timedelta(seconds=1)
    ) -> None:
        self.names = names
        self.consumer = consumer
        self._server = server
        self._block_s = block.total_seconds()

    def check(self) -> None:
        self._server.ask()

    def disconnect(self) -> None:
        """There is nothing to be kept."""

    def close(self) -> None:
        """There is nothing to be closed."""

    def make_group(self, stream: streams.Stream) -> bool:
        with self._server.asked():
            groups = self._server.log(stream.name).groups
            new = stream.group not in groups
            groups.setdefault(stream.group, Group())
        return new

    def remove(self, stream: streams.Stream) -> None:
        with self._server.asked():
            self._server.logs.pop(stream.name, None)

    def announce(self, stream: streams.Stream, hints: Sequence[streams.Hint]) -> None:
        with self._server.asked():
            ids = [self._server.add(stream.name, streams.hint_fields(hint, self.consumer)) for hint in hints]
        with self._server.asked():
            for hint, each in zip(hints, ids, strict=True):
                self._reflect(streams.hint_mirror(hint, text_of(each)))

    def announced(self, job_ids: Sequence[str]) -> list[str | None]:
        self._server.ask()
        return [self._server.mirror(each).get("version") for each in job_ids]

    def reflect(self, mirrors: Sequence[streams.Mirror]) -> None:
        if not mirrors:
            return
        with self._server.asked():
            for mirror in mirrors:
                self._reflect(mirror)

    def say(self, name: str, fields: Mapping[str, str]) -> None:
        with self._server.asked():
            self._server.add(name, fields)

    def order(self, stream: streams.Stream, fields: Mapping[str, str]) -> None:
        self.say(stream.name, fields)

    def listen(self, after: Mapping[str, str]) -> Mapping[str, streams.Read]:
        self._server.ask()
        logs = self._server.logs
        last = {name: logs[name].last if name in logs else FIRST for name in after}
        places = {name: last[name] if place == _NEW else id_of(place) for name, place in after.items()}
        heard = self._heard(places)
        if not heard:
            self._server.wait_for(self.consumer, frozenset(places), self._block_s)
            heard = self._heard(places)
        return heard

    def take(self, stream: streams.Stream) -> list[streams.Entry]:
        with self._server.asked():
            group, now = self._met(stream), self._server.now
            found = self._server.log(stream.name).after(group.given, streams.PAGE)
            for text, _ in found:
                group.given = id_of(text)
                group.held[group.given] = Hold(self.consumer, now)
        return [streams.Entry(stream, text, fields) for text, fields in found]

    def mine(self, stream: streams.Stream, after: str) -> list[streams.Entry]:
        self._server.ask()
        group, log = self._met(stream), self._server.log(stream.name)
        held = [each for each, hold in group.held.items() if hold.consumer == self.consumer]
        page = [each for each in held if each > id_of(after)][: streams.PAGE]
        self._hold(group, log, page)
        return [_entry(stream, log, each) for each in page]

    def take_over(self, stream: streams.Stream, idle: timedelta) -> Iterator[list[streams.Entry]]:
        with self._server.asked():
            group, log, now = self._met(stream), self._server.log(stream.name), self._server.now
            for each in [each for each in group.held if each not in log.entries]:
                del group.held[each]
            old = [each for each, hold in group.held.items() if now - hold.since >= idle.total_seconds()]
            self._hold(group, log, old)
        yield [_entry(stream, log, each) for each in old]

    def settle(self, stream: streams.Stream, ids: Sequence[str]) -> None:
        if not ids:
            return
        with self._server.asked():
            self._server.settle(stream, [id_of(each) for each in ids])

    def add_dead_letters(self, letters: Sequence[streams.DeadLetter]) -> int:
        keys = [
            ("" if each.version is None else self.names.announced_key(each.job_id, each.version)) for each in letters
        ]
        self._server.ask()
        known, new = self._server.announced_keys & {*keys}, 0
        with self._server.asked():
            if self._server.announced_keys & {*keys} != known:  # another replica did it in this very moment
                return 0
            for letter, key in zip(letters, keys, strict=True):
                if not key or key not in self._server.announced_keys:
                    new += 1
                    self._server.keep(self.names.dead, letter.fields())
                if key:
                    self._server.announced_keys.add(key)
                if letter.entry is not None:
                    self._server.end(letter.entry.stream, [id_of(letter.entry.id)])
        return new

    def trim(self, stream: streams.Stream) -> None:
        with self._server.asked():
            if stream.name in self._server.logs:
                self._server.log(stream.name).trim()

    def forget_consumers(self, stream: streams.Stream, idle: timedelta) -> None:
        with self._server.asked():
            groups = self._server.logs.get(stream.name, Log()).groups
            group, now = groups.get(stream.group, Group()), self._server.now
            holding = {hold.consumer for hold in group.held.values()} | {self.consumer}
            for name in [name for name, at in group.heard.items() if now - at > idle.total_seconds()]:
                if name not in holding:
                    del group.heard[name]

    def size(self, stream: streams.Stream) -> streams.Size:
        self._server.ask()
        held = self._server.group(stream).held
        mine = sum(hold.consumer == self.consumer for hold in held.values())
        return streams.Size(self._server.length(stream.name), len(held), mine)

    def length(self, name: str) -> int:
        self._server.ask()
        return self._server.length(name)

    def _heard(self, places: Mapping[str, Id]) -> dict[str, streams.Read]:
        logs = self._server.logs
        found = {name: logs[name].after(place, streams.PAGE) for name, place in places.items() if name in logs}
        return {name: entries for name, entries in found.items() if entries}

    def _met(self, stream: streams.Stream) -> Group:
        group = self._server.group(stream)
        group.heard[self.consumer] = self._server.now
        return group

    def _hold(self, group: Group, log: Log, ids: Sequence[Id]) -> None:
        """Read now. One whose entry is gone stays as old as it is."""
        for each in ids:
            if each in log.entries:
                group.held[each] = Hold(self.consumer, self._server.now)

    def _reflect(self, mirror: streams.Mirror) -> None:
        kept_s = END_KEPT_S if mirror.ended else KEPT_S
        self._server.reflect(mirror.job_id, mirror.fields, kept_s)


def _entry(stream: streams.Stream, log: Log, each: Id) -> streams.Entry:
    return streams.Entry(stream, text_of(each), log.entries.get(each, {}))


NAMES = streams.Names()
AGENT = "hand"
"""Whoever adds jobs to the stream manually is this one."""
BLOCK = timedelta(seconds=5)
RHYTHM = Intervals(
    claim_idle=timedelta(seconds=20),
    reclaim=timedelta(seconds=10),
    resync=timedelta(seconds=10),
    look=timedelta(seconds=5),
)
_AWAY = "Redis "
"""So begins what is said when it is the server that is to blame."""


class WatchedState(streams.BusState):
    """The real one. Its loops go on after any error; in the world one that nobody thought of ends everything."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def failed(self, loop: str, reason: str) -> None:
        super().failed(loop, reason)
        if not reason.startswith(_AWAY):
            scheduler = self._world.scheduler
            scheduler.broken.append((scheduler.current, AssertionError(f"{loop}: {reason}")))


def a_bus(
    world: World, server: WorldRedis, services: Services, process: Process, control: Control, wakeup: Wakeup
) -> StreamBus:
    """Simulated workers wait for `wakeup`, and not for a dispatcher."""
    around = ReplicaHooks(
        wake=wakeup.notify,
        ring=wakeup.notify,
        leads=lambda: control.leadership.term is not None,
        tick=control.reconciler.tick,
    )
    return StreamBus(
        WorldStreams(server, NAMES, process.name, BLOCK),
        services,
        WorldClock(world.scheduler, process),  # it is read before any thread of the process runs
        around,
        RHYTHM,
        ingest_agent=AGENT,
        threads=WorldThreads(world.scheduler, process),
        state=WatchedState(world),
    )
