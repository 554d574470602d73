"""A replica of the control loop as a process of its own, hurried: one cycle follows the other."""

import signal
from dataclasses import dataclass
from datetime import timedelta
from threading import Event, Thread

import structlog

from herdsman.context import Services
from herdsman.db.advisory_lock import open_session_lock
from herdsman.db.connection import Database
from herdsman.fleet.execute import by_name_only
from herdsman.fleet.leader import LeaderPolicy, Leadership
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.reconcile import Reconciler
from herdsman.ids import DEFAULT_POOL
from herdsman.jobs.model import JobPolicy
from herdsman.ports import SystemClock
from herdsman.providers.runpod import RunpodProvider
from herdsman.server.wiring import build_control
from herdsman.wire import new_job_id
from tests.support.runpod import NAMING, some_options

LOCK = "gpu_orchestrator_leader"
PAUSE = timedelta(milliseconds=20)


@dataclass(frozen=True)
class Orders:
    """Everything that a replica is told."""

    database_url: str
    runpod_url: str
    fleet: FleetPolicy
    leader: LeaderPolicy


def control(orders: Orders, holder: str) -> None:
    stopping = Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    database = Database(orders.database_url, clock=SystemClock())
    reconciler = a_reconciler(database, orders, holder)
    loop = reconciler.leadership.loop()
    leading = Thread(target=loop.run)
    leading.start()
    while not stopping.wait(PAUSE.total_seconds()):
        reconciler.tick()
    loop.stop()
    leading.join()
    database.close()


def a_reconciler(database: Database, orders: Orders, holder: str) -> Reconciler:
    clock = SystemClock()
    provider = RunpodProvider(some_options(api_url=orders.runpod_url), clock)
    lock = open_session_lock(database, LOCK, idle=orders.leader.ttl)
    leadership = Leadership(database, clock, holder, orders.leader, lock)
    return build_control(
        Services(database, JobPolicy(), new_job_id),
        provider,
        leadership,
        pools={DEFAULT_POOL: orders.fleet},
        name_of=NAMING.name,
        environment_of=by_name_only,
        clock=clock,
        replayable_for=timedelta(days=7),
    ).reconciler
