"""The names of all metrics, and what they count. A name is public: dashboards and alarms are written with it."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

JOBS = ("herdsman_jobs", "Jobs by status.", ("status",))
DEPTH = ("herdsman_queue_depth", "Jobs that could be claimed now.", ("pool",))
OLDEST = ("herdsman_queue_oldest_seconds", "How long the job that has waited longest has waited.", ())
WORKERS = ("herdsman_workers", "Workers by status.", ("status",))
RECENT = ("herdsman_jobs_ended_last_hour", "Jobs that ended within the last hour.", ("status",))
COST = ("herdsman_cost_per_hour", "What the running machines cost per hour.", ())
LEADS = ("herdsman_leader", "1 when this replica leads.", ())
STORE_UP = ("herdsman_database_up", "1 when the last look at the database succeeded.", ())
LOOK_AGE = ("herdsman_look_age_seconds", "How old the numbers from the database are.", ())
# The name that dashboards of the older orchestrator know the queue's depth by.
STREAM_DEPTH = ("gpu_orchestrator_job_queue_depth", "Jobs that could be claimed now.", ("stream",))

Sample = tuple[tuple[str, ...], float]
Gauged = tuple[str, str, tuple[str, ...]]


def gauge(of: Gauged, samples: Iterable[Sample]) -> Metric:
    name, meaning, labels = of
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


class Metrics:
    """What this process counts itself; what it looks up comes from collectors that are added."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.requests = Counter(
            "herdsman_requests",
            "Requests by route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "herdsman_request_seconds",
            "How long requests took; that of a claim includes the time it was told to wait.",
            ("method", "route"),
            registry=self.registry,
            buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
        )
        self.asked = Histogram(
            "herdsman_dispatch_workers",
            "How many workers one transaction of the dispatcher asked for.",
            registry=self.registry,
            buckets=(1, 2, 5, 10, 20, 50, 100, 200),
        )
        self.served = Counter(
            "herdsman_dispatched_workers",
            "Workers that got jobs from the dispatcher.",
            registry=self.registry,
        )
        self.waiting = Gauge(
            "herdsman_claims_waiting", "Workers that wait for a job here.", registry=self.registry
        )
        self.streams = Gauge("herdsman_event_streams", "Open streams of events.", registry=self.registry)

    def add(self, collector: Collector) -> None:
        self.registry.register(collector)

    def dispatched(self, asked: int, served: int) -> None:
        self.asked.observe(asked)
        self.served.inc(served)

    def answered(self, method: str, route: str, status: int, took: float) -> None:
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(method, route).observe(took)
