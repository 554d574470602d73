"""Collectors for `/metrics`: what the database, the job latencies and the Redis streams show (A5)."""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock

import structlog
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.errors import HerdsmanError
from herdsman.fleet import stats_sql
from herdsman.fleet.stats_sql import BOUNDS, Took, latency_totals
from herdsman.ids import DEFAULT_POOL
from herdsman.jobs.commands import count_jobs
from herdsman.limits.rules import PauseKind
from herdsman.limits.sql import active_pauses
from herdsman.redis.bus import StreamBus
from herdsman.server.readiness import REFUSED_LATELY
from herdsman.server.wiring import Control
from herdsman.states import JobStatus, WorkerStatus
from herdsman.telemetry import metric_families as metrics

log = structlog.get_logger()

OFTEN_S = 5.0
SHARE = 20
"""A slow read is repeated less often: at most this fraction of the time is spent on reading."""
PATIENCE_S = 2.0
"""So long a scrape waits for a look; then it shows the last one. A scraper gives up after a few seconds itself."""

MOST_POOLS = 100
"""So many pools are shown by name; anybody may send jobs to any number of them."""
SETTLED = timedelta(seconds=2)
"""What ended later may not be committed yet, and would be passed over."""
FIRST, LONGEST = timedelta(minutes=1), timedelta(minutes=10)
"""How far the first read goes back, and one after a long time in which nobody asked."""
MOST_TYPES = 50


_HOURLY = {JobStatus.DONE: "jobs_done_per_hour", JobStatus.DEAD_LETTER: "jobs_failed_per_hour"}
_COLUMNS = (
    *("oldest_waiting_s", "cost_per_hour", "last_cycle_s", *_HOURLY.values()),
    *(f"workers_{state}" for state in WorkerStatus),
)


class DatabaseCollector(Collector):
    """Reads the database at most every few seconds, however often it is scraped."""

    def __init__(self, services: Services, control: Control | None) -> None:
        self._services = services
        self._control = control
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="metrics-look")
        self._lock = Lock()
        self._looking: Future[None] | None = None
        self._read: list[Metric] | None = None
        self._read_at = self._next = self._cycle_age = 0.0
        self._up = False
        self._latency = JobLatency()

    def collect(self) -> Iterable[Metric]:
        yield metrics.gauge(metrics.STORE_UP, float(self._refreshed() and self._up))
        refused = self._services.database.refused_a_write(REFUSED_LATELY)
        yield metrics.gauge(metrics.WRITABLE, float(not refused))
        control = self._control
        leads = control is not None and control.leadership.term is not None
        yield metrics.gauge(metrics.LEADS, float(leads))
        # A copy: the control loop counts on in a thread of its own.
        shadows = {} if control is None else dict(control.reconciler.shadows)
        yield metrics.counter(metrics.SHADOW, [((shadow,), count) for shadow, count in shadows.items()])
        if self._read is not None:
            age = time.monotonic() - self._read_at
            yield metrics.gauge(metrics.LOOK_AGE, age)
            # It grows while nobody can look: a control loop that stands must not seem to go.
            yield metrics.gauge(metrics.CYCLE_AGE, self._cycle_age + age)
            yield from self._read
            yield self._latency.metric()

    def _refreshed(self) -> bool:
        """Whether the look that is due has ended in time; one that hangs is not begun a second time."""
        with self._lock:
            if (self._looking is None or self._looking.done()) and time.monotonic() >= self._next:
                self._looking = self._thread.submit(self._look)
            looking = self._looking
        with suppress(TimeoutError):
            if looking is not None:
                looking.result(timeout=PATIENCE_S)
            return True
        return False

    def _look(self) -> None:
        began = time.monotonic()
        try:
            jobs, database = count_jobs(self._services), self._services.database
            self._read = database.read(lambda tx: self._families(tx, jobs))
            database.read(self._latency.read)
            self._up, self._read_at = True, began
        except HerdsmanError as error:
            if self._up:
                log.warning("metrics.database_away", reason=str(error))
            self._up = False
        self._next = began + max(OFTEN_S, SHARE * (time.monotonic() - began))

    def _families(self, tx: Tx, jobs: Mapping[JobStatus, int]) -> list[Metric]:
        workers, pauses = stats_sql.workers_by_pool(tx), active_pauses(tx).active
        kept = () if self._control is None else self._control.reconciler.observer.pools  # of the settings
        pools = {DEFAULT_POOL, *kept, *stats_sql.open_pools(tx), *workers}
        # One column at a time: each is a count of its own, and those that nobody shows are not made.
        status = {column: float(tx.scalar(f"SELECT {column} FROM orchestrator_status") or 0) for column in _COLUMNS}
        self._cycle_age = status["last_cycle_s"]
        depths = metrics.bounded({**dict.fromkeys(pools, 0), **stats_sql.depths(tx)}, MOST_POOLS)
        recovered, saved_s = stats_sql.recovered(tx)
        gpus = stats_sql.read_gpus(tx, self._services.leasing)
        samples: dict[metrics.Gauged, Iterable[metrics.Sample] | float] = {
            metrics.JOBS: [((state,), count) for state, count in jobs.items()],
            metrics.DEPTH: depths,
            metrics.STREAM_DEPTH: depths,
            metrics.OVERDUE: stats_sql.claims_overdue(tx),
            metrics.RECOVERED: recovered,
            metrics.SAVED: saved_s,
            metrics.OLDEST: status["oldest_waiting_s"],
            metrics.COST: status["cost_per_hour"],
            metrics.WORKERS: [((state,), status[f"workers_{state}"]) for state in WorkerStatus],
            metrics.RECENT: [((state,), status[column]) for state, column in _HOURLY.items()],
            metrics.HOLDS: [((kind,), sum(each.kind is kind for each in pauses)) for kind in PauseKind],
            metrics.LEASES: gpus.leases,
            metrics.FREE: gpus.free,
            metrics.EXPIRED: gpus.expired,
            metrics.QUARANTINED: gpus.quarantined,
            metrics.GPU_MEMORY: _by_gpu(gpus.used_pct),
            metrics.UTILISATION: _by_gpu(gpus.busy_pct),
            metrics.POOLS: len(pools),
            metrics.POOL_WORKERS: metrics.bounded({**dict.fromkeys(pools, 0), **workers}, MOST_POOLS),
        }
        return [metrics.gauge(of, found) for of, found in samples.items()]


def _by_gpu(percents: Mapping[tuple[str, int], float]) -> list[metrics.Sample]:
    return [((str(index), node), percent) for (node, index), percent in percents.items()]


@dataclass
class JobLatency:
    """Histogram of job durations since this process began; types beyond the first fifty are one."""

    _by_type: dict[str, Took] = field(default_factory=dict[str, Took])
    _until: datetime | None = None

    def read(self, tx: Tx) -> None:
        until = tx.now() - SETTLED
        since = max(self._until or until - FIRST, until - LONGEST)
        if since >= until:
            return
        self.add(latency_totals(tx, since, until))
        self._until = until

    def add(self, found: Iterable[Took]) -> None:
        for each in found:
            known = each.type in self._by_type or len(self._by_type) < MOST_TYPES
            name = each.type if known else metrics.OTHER
            before = self._by_type.get(name, Took(name, 0, 0.0, (0,) * len(BOUNDS)))
            within = tuple(old + new for old, new in zip(before.within, each.within, strict=True))
            total = Took(name, before.count + each.count, before.seconds + each.seconds, within)
            self._by_type[name] = total

    def metric(self) -> Metric:
        name, meaning, labels = metrics.LATENCY
        family = HistogramMetricFamily(name, meaning, labels=labels)
        for kind, took in self._by_type.items():
            counted = [(str(bound), float(count)) for bound, count in zip(BOUNDS, took.within, strict=True)]
            family.add_metric((kind,), [*counted, ("+Inf", float(took.count))], took.seconds)
        return family


class StreamsCollector(Collector):
    """Only what the replica has counted anyway: a scrape never waits for Redis."""

    def __init__(self, bus: StreamBus) -> None:
        self._state = bus.state
        self._dead: str = bus.redis.names.dead

    def collect(self) -> Iterable[Metric]:
        sizes = self._state.sizes
        lengths = [*((name, each.length) for name, each in sizes.items()), (self._dead, self._state.dead)]
        yield metrics.gauge(metrics.BUS_UP, float(self._state.fault is None))
        yield metrics.gauge(metrics.STREAM_LENGTH, [((name,), length) for name, length in lengths])
        yield metrics.gauge(metrics.STREAM_PENDING, [((name,), each.pending) for name, each in sizes.items()])
        yield metrics.counter(
            metrics.STREAM_EVENTS, [((str(name),), number) for name, number in self._state.counts.items()]
        )
