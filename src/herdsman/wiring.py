"""Builds every object, once."""

import secrets
import time
from datetime import timedelta

from herdsman.control.services import Services
from herdsman.control.sweeper import Sweeper
from herdsman.core.model import JobId
from herdsman.ports import Clock
from herdsman.settings import Settings
from herdsman.store.database import Database


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, duration: timedelta) -> None:
        time.sleep(duration.total_seconds())


def open_database(settings: Settings, clock: Clock | None = None) -> Database:
    chosen = settings.database
    return Database(
        chosen.database_url.get_secret_value(),
        clock=clock or SystemClock(),
        timeout=timedelta(seconds=chosen.sql_timeout_sec),
        pool_size=chosen.sql_pool_size,
    )


def open_services(settings: Settings) -> Services:
    return Services(open_database(settings), settings.jobs.policy(), new_job_id)


def open_sweeper(settings: Settings, services: Services) -> Sweeper:
    return Sweeper(services, SystemClock(), timedelta(seconds=settings.jobs.sweep_interval_sec))


def new_job_id() -> JobId:
    """Rises with time, so that new jobs lie together in every index."""
    return JobId(f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}")
