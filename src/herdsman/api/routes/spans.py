"""How long jobs took, counted since this process began: each look adds what has ended since the one before."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from prometheus_client.core import Metric

from herdsman.db.connection import Tx
from herdsman.store.latency import BOUNDS, Took, took
from herdsman.telemetry import metrics

SETTLED = timedelta(seconds=2)
"""What ended later may not be committed yet, and would be passed over."""
FIRST, LONGEST = timedelta(minutes=1), timedelta(minutes=10)
"""So far the first look goes back, and one after a long time in which nobody asked."""
MOST_TYPES = 50


@dataclass
class Span:
    count: int = 0
    seconds: float = 0.0
    within: list[int] = field(default_factory=lambda: [0] * len(BOUNDS))

    def add(self, more: Took) -> None:
        self.count += more.count
        self.seconds += more.seconds
        self.within = [old + new for old, new in zip(self.within, more.within, strict=True)]


@dataclass
class Spans:
    """It only ever counts up. Types beyond the first fifty are one."""

    _by_type: dict[str, Span] = field(default_factory=dict[str, Span])
    _until: datetime | None = None

    def look(self, tx: Tx) -> None:
        until = tx.now() - SETTLED
        since = max(self._until or until - FIRST, until - LONGEST)
        if since >= until:
            return
        self.add(took(tx, since, until))
        self._until = until

    def add(self, found: Iterable[Took]) -> None:
        for each in found:
            self._of(each.type).add(each)

    def shown(self) -> Metric:
        return metrics.histogram(
            metrics.LATENCY, [((kind,), _buckets(span), span.seconds) for kind, span in self._by_type.items()]
        )

    def _of(self, kind: str) -> Span:
        known = kind in self._by_type or len(self._by_type) < MOST_TYPES
        return self._by_type.setdefault(kind if known else metrics.OTHER, Span())


def _buckets(span: Span) -> list[tuple[str, float]]:
    counted = [(str(bound), float(count)) for bound, count in zip(BOUNDS, span.within, strict=True)]
    return [*counted, ("+Inf", float(span.count))]
