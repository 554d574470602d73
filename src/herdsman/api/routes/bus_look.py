"""What the metrics show of the streams."""

from collections.abc import Iterable
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from herdsman.telemetry import metrics


class BusLook(Collector):
    """Only what the replica has counted and measured anyway: nobody waits for Redis here."""

    def __init__(self, bus: Any) -> None:
        self._state = bus.state
        self._dead: str = bus.redis.names.dead

    def collect(self) -> Iterable[Metric]:
        sizes = self._state.sizes
        lengths = [*((name, each.length) for name, each in sizes.items()), (self._dead, self._state.dead)]
        yield metrics.gauge(metrics.BUS_UP, [((), float(self._state.fault is None))])
        yield metrics.gauge(metrics.STREAM_LENGTH, [((name,), length) for name, length in lengths])
        yield metrics.gauge(metrics.STREAM_PENDING, [((name,), each.pending) for name, each in sizes.items()])
        yield metrics.counter(
            metrics.STREAM_EVENTS, [((str(name),), number) for name, number in self._state.counts.items()]
        )
