"""Where people find the streams: behind a replica that they speak to, or by hand."""

import json
from datetime import timedelta

from herdsman.core.model import NewJob, Submitted
from herdsman.redis.bus import StreamBus
from herdsman.redis.streams import BusUnavailable
from herdsman.sim.world.bell import Bell
from herdsman.sim.world.bus import NAMES
from herdsman.sim.world.redis import WorldRedis
from herdsman.sim.world.scheduler import Process
from herdsman.sim.world.streams import WorldStreams
from herdsman.sim.world.world import World

BY_HAND = 0.3
"""The share of jobs that somebody adds to the stream himself."""
LOOKS, LOOK_S = 4, 6.0


class Reception:
    def __init__(self, world: World, server: WorldRedis, bell: Bell) -> None:
        self._world = world
        self._server = server
        self._streams = WorldStreams(server, NAMES, "people")
        self._bell = bell
        self._buses: dict[Process, StreamBus] = {}

    def open(self, process: Process, bus: StreamBus) -> None:
        self._buses[process] = bus

    def choose(self) -> Process | None:
        """The replica that somebody speaks to; None when none is there."""
        there = [process for process in self._buses if process.alive]
        return self._world.random.choice(there) if there else None

    def announce(self, at: Process | None, new: NewJob, done: Submitted) -> None:
        """After the commit, by the replica that did it; nobody says anything when it has died since."""
        if at is not None and at.alive:
            self._bell.ring()
            self._buses[at].announce_jobs([new], [done])

    def control(self, event: str) -> None:
        at = self.choose()
        if at is not None:
            self._buses[at].announce_control(event, by="somebody")

    def add(self, new: NewJob) -> None:
        """By hand, and again whenever nobody acknowledged it for a while: it is the same job."""
        fields = fields_of(new)
        while True:
            while not self._ordered(fields):
                self._world.scheduler.sleep(self._world.random.uniform(0.5, 3))
            for _ in range(LOOKS):
                self._world.scheduler.sleep(LOOK_S)
                if new.job_id in self._server.acknowledged:
                    self._world.note("added_by_hand")
                    return
            self._world.note("added_again")

    def _ordered(self, fields: dict[str, str]) -> bool:
        try:
            self._streams.order(NAMES.ingest, fields)
        except BusUnavailable:  # it may be there all the same
            self._world.note("added_without_an_answer")
            return False
        return True


def fields_of(new: NewJob) -> dict[str, str]:
    """As somebody writes it with redis-cli: texts as they are, and all else as JSON."""
    texts = {
        "type": new.type,
        "job_id": new.job_id,
        "pool": new.pool,
        "concurrency_key": new.concurrency_key,
    }
    others: dict[str, object] = {
        "payload": new.payload,
        "priority": new.priority,
        "timeout_seconds": _seconds(new.timeout),
        "delay_seconds": _seconds(new.delay),
        "gpu_memory_mb": new.gpu_memory_mb,
    }
    plain = {name: text for name, text in texts.items() if text is not None}
    return plain | {name: json.dumps(value) for name, value in others.items() if value is not None}


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()
