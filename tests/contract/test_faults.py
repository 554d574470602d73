"""Servers die, restart and fall silent, files are locked and disks fill: nothing is lost, and no call hangs."""

import time
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from herdsman.context import Services
from herdsman.errors import StoreUnavailable
from herdsman.jobs.commands import find_job, list_jobs
from herdsman.jobs.model import JobPolicy
from herdsman.jobs.worker_commands import complete_job
from herdsman.server.wiring import new_job_id
from herdsman.states import JobStatus
from tests.support.builders import a_claim, a_job, a_worker, replayed
from tests.support.databases import ServerDatabases, opened
from tests.support.worker_calls import claim_job

SECOND = timedelta(seconds=1)
# A driver may notice at its own pace, but it has to notice: once for the call, once for the new connection.
PATIENCE = timedelta(seconds=15)


@pytest.fixture
def frail(server: ServerDatabases) -> Iterator[ServerDatabases]:
    """Whatever the test did to the server, the next test finds it well."""
    yield server
    server.server.restart()


def test_a_restart_between_calls_is_not_noticed(frail: ServerDatabases) -> None:
    with services_on(frail.fresh()) as services:
        claim = a_claim(services)
        frail.server.restart()
        complete_job(services, claim.key, "kept")
        frail.server.restart()
        assert find_job(services, claim.key.job_id).result == "kept"
        assert replayed(services, claim.key.job_id) == JobStatus.DONE


def test_j1_what_was_accepted_outlives_the_death_of_the_server(frail: ServerDatabases) -> None:
    with services_on(frail.fresh()) as services:
        ids = [a_job(services) for _ in range(20)]
        frail.server.kill()
        frail.server.start()
        assert [replayed(services, job_id) for job_id in ids] == [JobStatus.PENDING] * 20


def test_while_the_server_is_down_a_call_says_so_at_once(frail: ServerDatabases) -> None:
    with services_on(frail.fresh()) as services:
        a_job(services)
        frail.server.kill()
        for ask in (lambda: a_job(services), lambda: list_jobs(services)):
            with pytest.raises(StoreUnavailable, match="cannot be reached"), at_most(5 * SECOND):
                ask()
        frail.server.start()
        a_job(services)
        assert len(list_jobs(services).jobs) == 2


def test_a_server_that_falls_silent_does_not_hold_a_call_for_ever(frail: ServerDatabases) -> None:
    """S6, W6: the kernel still acknowledges what we send, so that only a limit of our own ends the wait."""
    with services_on(frail.fresh(), timeout=SECOND) as services, ThreadPoolExecutor(2) as threads:
        a_job(services)
        frail.server.pause()
        writing, reading = threads.submit(a_job, services), threads.submit(list_jobs, services)
        try:
            errors = [raised_by(call) for call in (writing, reading)]
        finally:
            frail.server.resume()
        assert [type(error) for error in errors] == [StoreUnavailable, StoreUnavailable]
        a_job(services)
        assert len(list_jobs(services).jobs) in (2, 3)  # the silent server may have stored what it was sent


def test_a_row_that_somebody_keeps_locked_does_not_hold_a_call_for_ever(server: ServerDatabases) -> None:
    url = server.fresh()
    with services_on(url, timeout=SECOND) as services, opened(url) as other, ThreadPoolExecutor(1) as threads:
        worker = a_worker(services)
        a_job(services)
        with other.engine.begin() as forgotten:
            forgotten.execute(text("SELECT id FROM workers FOR UPDATE")).all()
            call = threads.submit(claim_job, services, worker)
            try:
                assert isinstance(raised_by(call), StoreUnavailable)
            finally:
                forgotten.rollback()
        assert claim_job(services, worker) is not None


def test_a_job_that_somebody_keeps_locked_is_passed_over(server: ServerDatabases) -> None:
    url = server.fresh()
    with services_on(url) as services, opened(url) as other:
        worker = a_worker(services)
        locked, free = a_job(services, priority=1), a_job(services)
        with other.engine.begin() as forgotten:
            forgotten.execute(text("SELECT 1 FROM job_states WHERE job_id = :job FOR UPDATE"), {"job": locked}).all()
            with at_most(5 * SECOND):  # who waited for the lock would wait for ten
                claim = claim_job(services, worker)
        assert claim is not None
        assert claim.key.job_id == free
        assert find_job(services, locked).status is JobStatus.PENDING


@contextmanager
def services_on(url: str, *, timeout: timedelta = 10 * SECOND) -> Generator[Services]:
    with opened(url, timeout=timeout) as database:
        yield Services(database, JobPolicy(), new_job_id)


@contextmanager
def at_most(limit: timedelta) -> Generator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        assert time.monotonic() - began < limit.total_seconds()


def raised_by(call: Future[Any]) -> BaseException | None:
    return call.exception(timeout=PATIENCE.total_seconds())
