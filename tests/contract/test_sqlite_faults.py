"""A file that is locked, may not be written or has no room: nothing is lost, and no call hangs."""

import os
import sqlite3
import stat
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Timer

import pytest
from sqlalchemy import text

from herdsman.context import Services
from herdsman.db import engine
from herdsman.db.checks import require_current, require_undamaged
from herdsman.db.connection import Database
from herdsman.errors import StoreMisconfigured, StoreUnavailable
from herdsman.jobs.commands import find_job, list_jobs
from herdsman.jobs.model import JobPolicy
from herdsman.server.wiring import new_job_id
from herdsman.states import JobStatus
from tests.support.builders import a_job
from tests.support.databases import Backend, opened

SECOND = timedelta(seconds=1)


def test_the_file_and_those_beside_it_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Payloads and results of all agents are in it: whatever the umask, and when it was made by an older version too."""
    home = tmp_path / "data"
    file = home / "herd.db"
    umask = os.umask(0o022)
    try:
        for _ in range(2):
            with services_on(f"sqlite:///{file}") as services:
                services.database.transact(lambda tx: tx.execute(text("CREATE TABLE IF NOT EXISTS t (x)")))
                found = {each.name: stat.S_IMODE(each.stat().st_mode) for each in home.iterdir()}
                assert found == {"herd.db": 0o600, "herd.db-wal": 0o600, "herd.db-shm": 0o600}
                assert stat.S_IMODE(home.stat().st_mode) == 0o700
            file.chmod(0o644)
    finally:
        os.umask(umask)


def test_the_default_folder_is_closed_and_any_other_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def folder(*_name: object, **_how: object) -> Path:
        return tmp_path / "herdsman"

    monkeypatch.setattr(engine, "user_data_path", folder)
    for name, mode in (("herdsman", 0o700), ("shared", 0o755)):
        (tmp_path / name).mkdir(mode=0o755)
        with services_on(f"sqlite:///{tmp_path / name}/herd.db"):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode


def test_a_locked_file_is_waited_for_and_not_for_ever(sqlite: Backend) -> None:
    url = sqlite.fresh()
    with services_on(url, timeout=SECOND) as services:
        blocker = sqlite3.connect(file_of(url), isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="database is locked"), at_most(4 * SECOND):
            a_job(services)
        assert list_jobs(services).jobs == ()  # reading goes on beside the writer
        blocker.execute("COMMIT")
        blocker.close()
        a_job(services)


def test_a_file_that_is_locked_for_a_moment_is_not_noticed(sqlite: Backend) -> None:
    url = sqlite.fresh()
    blocker = sqlite3.connect(file_of(url), isolation_level=None, check_same_thread=False)
    with services_on(url) as services, ThreadPoolExecutor(1) as threads:
        blocker.execute("BEGIN IMMEDIATE")
        call = threads.submit(a_job, services)
        time.sleep(0.2)
        assert not call.done()
        blocker.execute("COMMIT")
        assert find_job(services, call.result(timeout=10)).status is JobStatus.PENDING
    blocker.close()


def test_a_file_that_may_not_be_written_says_so(sqlite: Backend) -> None:
    url = sqlite.fresh()
    refused = pytest.raises(StoreUnavailable, match="readonly database")
    with written_by_nobody(Path(file_of(url))), services_on(url) as services, refused:
        a_job(services)


def test_s8_a_full_disk_loses_nothing_and_takes_no_half_of_a_write(sqlite: Backend) -> None:
    with services_on(sqlite.fresh()) as services:
        job_id = a_job(services)
        pages = limit_pages(services.database, 4)
        with pytest.raises(StoreUnavailable, match="database or disk is full"):
            a_job(services, payload="x" * 100_000)
        assert [job.job_id for job in list_jobs(services).jobs] == [job_id]
        limit_pages(services.database, pages + 1000)
        a_job(services, payload="x" * 100_000)


def test_who_opens_a_new_file_while_another_writes_the_first_table_waits(tmp_path: Path) -> None:
    """SQLite refuses the change to WAL then at once, without the wait that it was told."""
    first = sqlite3.connect(tmp_path / "new.db", isolation_level=None, check_same_thread=False)
    first.execute("BEGIN IMMEDIATE")
    first.execute("CREATE TABLE visits (visit INTEGER)")
    soon = Timer(0.5, lambda: first.execute("COMMIT"))
    soon.start()
    with opened(f"sqlite:///{tmp_path}/new.db") as database, database.alone() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM visits")).scalar_one() == 0
    soon.join()
    first.close()


def damage(url: str, table: str) -> None:
    """As a disk does that loses a write: one page of the file is not what it was. The file still opens."""
    with sqlite3.connect(file_of(url)) as plain:
        plain.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = plain.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = plain.execute("PRAGMA page_size").fetchone()
    plain.close()
    with Path(file_of(url)).open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


def test_a_page_that_makes_no_sense_is_found_before_it_is_met(sqlite: Backend) -> None:
    url = sqlite.fresh()
    with opened(url) as database:
        require_undamaged(database)
    damage(url, "audit_entries")
    with opened(url) as database:
        require_current(database)  # which does not come across it
        with pytest.raises(StoreMisconfigured, match=r"is damaged: .*; stop everything") as found:
            require_undamaged(database)
        assert file_of(url) in str(found.value)


def test_whoever_comes_across_a_damaged_page_says_what_to_do(sqlite: Backend) -> None:
    url = sqlite.fresh()
    damage(url, "job_states")
    told = pytest.raises(StoreMisconfigured, match="malformed; stop everything that uses the file")
    with services_on(url) as services, told:
        a_job(services)


def test_a_file_that_is_too_large_to_be_read_in_time_is_not_refused(sqlite: Backend) -> None:
    with services_on(sqlite.fresh()) as services:
        for _ in range(20):
            a_job(services, payload="x" * 100_000)
        require_undamaged(services.database, within=timedelta(0))
        a_job(services)  # the limit was for that look alone


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


def limit_pages(database: Database, spare: int) -> int:
    """The file may grow by that much: what SQLite does at the limit is what it does when the disk is full."""
    with database.engine.connect() as connection:
        used = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {used + spare}")
        return used


def file_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


@contextmanager
def written_by_nobody(file: Path) -> Generator[None]:
    """Root may write everything, so it becomes somebody else for a while."""
    root = os.geteuid() == 0
    modes = {path: path.stat().st_mode for path in (file, file.parent)}
    file.chmod(0o444)
    file.parent.chmod(0o555)
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        for path, mode in modes.items():
            path.chmod(mode)
