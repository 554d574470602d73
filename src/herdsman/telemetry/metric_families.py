"""The names of all metrics, and what they count. A name is public: dashboards and alarms are written with it."""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from threading import Event, Thread
from urllib.parse import quote

import httpx
import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

log = structlog.get_logger()

PUSH_WITHIN_S = 10.0

JOBS = ("herdsman_jobs", "Jobs by status.", ("status",))
DEPTH = ("herdsman_queue_depth", "Jobs that could be claimed now.", ("pool",))
OLDEST = ("herdsman_queue_oldest_seconds", "How long the job that has waited longest has waited.", ())
WORKERS = ("herdsman_workers", "Workers by status.", ("status",))
RECENT = ("herdsman_jobs_ended_last_hour", "Jobs that ended within the last hour.", ("status",))
COST = ("herdsman_cost_per_hour", "What the running machines cost per hour.", ())
LEADS = ("herdsman_leader", "1 when this replica leads.", ())
STORE_UP = ("herdsman_database_up", "1 when the last look at the database succeeded.", ())
WRITABLE = ("herdsman_database_writable", "0 while the database refuses writes, as with a full disk.", ())
LOOK_AGE = ("herdsman_look_age_seconds", "How old the numbers from the database are.", ())
HOLDS = ("herdsman_holds", "What people have paused or drained.", ("kind",))
OVERDUE = ("herdsman_claims_overdue", "Jobs that should have been taken back from their workers long ago.", ())
RECOVERED = ("herdsman_recovered_jobs", "Jobs, of those that are kept, whose results were found again.", ())
SAVED = ("herdsman_saved_gpu_seconds", "GPU time that was spared because these need not run again.", ())
CYCLE_AGE = ("herdsman_cycle_age_seconds", "How long ago the last cycle of the control loop began.", ())
UTILISATION = ("herdsman_gpu_utilisation_pct", "How busy a GPU is, in percent.", ("gpu_index", "node"))
QUARANTINED = ("herdsman_gpus_quarantined", "GPUs that are not given out until a person has looked.", ())
EXPIRED = ("herdsman_leases_expired_last_hour", "Leases that ran out within the last hour.", ())
# The names that dashboards of the older orchestrator know these by.
STREAM_DEPTH = ("gpu_orchestrator_job_queue_depth", "Jobs that could be claimed now.", ("stream",))
LEASES = ("gpu_orchestrator_leases_active", "Leases that hold GPU memory.", ())
FREE = ("gpu_orchestrator_leases_free", "GPUs that could be leased as a whole now.", ())
POOLS = ("gpu_orchestrator_worker_pools_total", "Pools of workers.", ())
POOL_WORKERS = ("gpu_orchestrator_worker_pool_workers", "Workers that live.", ("pool_id",))
GPU_MEMORY = ("gpu_orchestrator_gpu_mem_used_pct", "Memory in use, in percent.", ("gpu_index", "node"))
LATENCY = ("gpu_orchestrator_job_latency_seconds", "Time from the submission of a job to its end.", ("type",))
BUS_UP = ("herdsman_streams_up", "1 when nothing is wrong with Redis.", ())
STREAM_LENGTH = ("herdsman_stream_length", "Entries of a stream.", ("stream",))
STREAM_PENDING = ("herdsman_stream_pending", "Entries that were delivered and not yet settled.", ("stream",))
SHADOW = (
    "herdsman_shadow_cycles",
    "Cycles that this replica led and asked a shadow policy in: it agrees, differs, or failed.",
    ("outcome",),
)
STREAM_EVENTS = ("herdsman_stream_events", "What was done with entries of streams.", ("event",))

OTHER = "other"
"""What stands for all labels beyond those that are shown."""

Sample = tuple[tuple[str, ...], float]
Gauged = tuple[str, str, tuple[str, ...]]


def gauge(of: Gauged, samples: Iterable[Sample] | float) -> Metric:
    """A number stands for the only sample of a family without labels."""
    name, meaning, labels = of
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for values, number in [((), samples)] if isinstance(samples, int | float) else samples:
        family.add_metric(values, number)
    return family


def counter(of: Gauged, samples: Iterable[Sample]) -> Metric:
    name, meaning, labels = of
    family = CounterMetricFamily(name, meaning, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def bounded(counted: Mapping[str, float], most: int) -> list[Sample]:
    """The largest, and the others as one: a name that users choose must not make series without end."""
    ordered = sorted(counted.items(), key=lambda each: (-each[1], each[0]))
    shown = [((name,), number) for name, number in ordered[:most]]
    rest = [number for _, number in ordered[most:]]
    return [*shown, ((OTHER,), sum(rest))] if rest else shown


class PushGateway:
    """A Prometheus push gateway that gets what `/metrics` would show, under the name of this replica."""

    def __init__(self, url: str, instance: str, registry: CollectorRegistry) -> None:
        coded = f"/{quote(instance, safe='')}"
        if "/" in instance:
            coded = f"@base64/{urlsafe_b64encode(instance.encode()).decode()}"
        self._url = f"{url.rstrip('/')}/metrics/job/herdsman/instance{coded}"
        self._registry = registry
        self._over = Event()
        self._thread: Thread | None = None

    def push(self) -> None:
        """What is there now, in place of what was. A gateway that is away is worth a warning, and nothing more."""
        self._ask("PUT", generate_latest(self._registry))

    def start(self, every: timedelta) -> None:
        def run() -> None:
            while True:
                self.push()
                if self._over.wait(every.total_seconds()):
                    return

        self._thread = Thread(target=run, name="push-gateway", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """The gateway keeps the last push for ever: who stops takes it back."""
        if self._thread is not None:
            self._over.set()
            self._thread.join(2 * PUSH_WITHIN_S)
        self._ask("DELETE")

    def _ask(self, method: str, body: bytes = b"") -> None:
        headers = {"Content-Type": CONTENT_TYPE_LATEST} if body else {}
        try:
            httpx.request(method, self._url, content=body, headers=headers, timeout=PUSH_WITHIN_S).raise_for_status()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None
            log.warning("metrics.not_pushed", reason=type(error).__name__, status=status)


class Metrics:
    """What this process counts itself; what it looks up comes from collectors that are added."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        count, show = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        measure = partial(Histogram, registry=self.registry)
        self.requests = count("herdsman_requests", "Requests by route and status.", ("method", "route", "status"))
        self.seconds = measure(
            "herdsman_request_seconds",
            "How long requests took; that of a claim includes the time it was told to wait.",
            ("method", "route"),
            buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
        )
        self.asked = measure(
            "herdsman_dispatch_workers",
            "How many waiting workers one transaction of the writer asked for.",
            buckets=(1, 2, 5, 10, 20, 50, 100, 200),
        )
        self.served = count("herdsman_dispatched_workers", "Waiting workers that got jobs.")
        self.waiting = show("herdsman_claims_waiting", "Workers that wait for a job here.")
        self.admission = count(
            "herdsman_admission",
            "Jobs that were submitted: accepted, deferred, rerouted or rejected, and by which limit.",
            ("decision", "code"),
        )
        self.leases = count(
            "herdsman_lease_answers",
            "Requests for leases: granted, denied, or in shadow mode overruled; and why.",
            ("outcome", "reason"),
        )
        self.streams = show("herdsman_event_streams", "Open streams of events.")

    def leased(self, outcome: object) -> None:
        """A lease, or the refusal of one; a request that waits is tried, and counted, more than once."""
        refusal, overruled = getattr(outcome, "reason", ""), getattr(outcome, "overruled", None)
        kind = "granted" if hasattr(outcome, "token") else "denied"
        code = overruled or ("" if kind == "granted" else str(refusal))
        self.leases.labels("overruled" if overruled else kind, code).inc()

    def add(self, collector: Collector) -> None:
        self.registry.register(collector)
