"""What the metrics show of the database: looked up seldom, however often they are asked for (A5)."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from herdsman.control.commands import count_jobs
from herdsman.control.services import Services
from herdsman.core.errors import HerdsmanError
from herdsman.core.model import PoolId
from herdsman.core.policy import FleetPolicy
from herdsman.core.states import JobState, WorkerState
from herdsman.store.database import Tx
from herdsman.store.sight import see_pools
from herdsman.telemetry import metrics

OFTEN_S = 5.0
SHARE = 20
"""A look that takes long is repeated less often: at most this fraction of the time is spent on looking."""


@dataclass(frozen=True, slots=True)
class Seen:
    jobs: Mapping[JobState, int]
    pools: Mapping[str, int]
    status: Mapping[str, float]


class Look(Collector):
    def __init__(self, services: Services, control: Any | None) -> None:
        self._services = services
        self._control = control
        self._looking = Lock()
        self._seen: Seen | None = None
        self._seen_at = self._next = 0.0
        self._up = False

    def collect(self) -> Iterable[Metric]:
        if time.monotonic() >= self._next and self._looking.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._looking.release()
        yield metrics.gauge(metrics.STORE_UP, [((), float(self._up))])
        yield metrics.gauge(metrics.LEADS, [((), float(self._leads()))])
        if self._seen is not None:
            yield metrics.gauge(metrics.LOOK_AGE, [((), time.monotonic() - self._seen_at)])
            yield from _shown(self._seen)

    def _look(self) -> None:
        began = time.monotonic()
        try:
            self._seen = Seen(
                count_jobs(self._services),
                self._services.database.read(self._pools),
                self._services.database.read(_status),
            )
            self._up, self._seen_at = True, began
        except HerdsmanError:
            self._up = False
        self._next = began + max(OFTEN_S, SHARE * (time.monotonic() - began))

    def _pools(self, tx: Tx) -> Mapping[str, int]:
        if self._control is None:
            return {}
        pools: Mapping[PoolId, FleetPolicy] = self._control.reconciler.observer.pools
        return {each.id: each.queued for each in see_pools(tx, pools)}

    def _leads(self) -> bool:
        return self._control is not None and self._control.leadership.term is not None


_HOURLY = {JobState.DONE: "jobs_done_per_hour", JobState.DEAD_LETTER: "jobs_failed_per_hour"}
_ALSO = ("oldest_waiting_s", "cost_per_hour", *_HOURLY.values())


def _status(tx: Tx) -> Mapping[str, float]:
    """One column at a time: each is a count of its own, and those that nobody shows are not made."""
    columns = (*_ALSO, *(f"workers_{state}" for state in WorkerState))
    return {column: float(tx.scalar(f"SELECT {column} FROM orchestrator_status") or 0) for column in columns}


def _shown(seen: Seen) -> Iterable[Metric]:
    # Without a control loop here the pools are not known, and all of them are shown as one.
    depths = seen.pools or {"": seen.jobs[JobState.PENDING]}
    yield metrics.gauge(metrics.JOBS, [((state,), count) for state, count in seen.jobs.items()])
    yield metrics.gauge(metrics.DEPTH, [((pool,), count) for pool, count in depths.items()])
    yield metrics.gauge(metrics.STREAM_DEPTH, [((pool,), count) for pool, count in depths.items()])
    yield metrics.gauge(metrics.OLDEST, [((), seen.status["oldest_waiting_s"])])
    yield metrics.gauge(metrics.COST, [((), seen.status["cost_per_hour"])])
    yield metrics.gauge(
        metrics.WORKERS, [((state,), seen.status[f"workers_{state}"]) for state in WorkerState]
    )
    yield metrics.gauge(
        metrics.RECENT, [((state,), seen.status[column]) for state, column in _HOURLY.items()]
    )
