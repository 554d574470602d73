"""Files go with the job that made them, and not before."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from herdsman.context import Services
from herdsman.errors import NotFound, ServiceUnavailable
from herdsman.jobs.commands import find_job
from herdsman.jobs.sweep import prune
from herdsman.ports import ResultFiles
from herdsman.server.wiring import open_results, open_services
from herdsman.settings import load_settings
from herdsman.states import JobStatus
from tests.support.builders import a_job, an_ended_job
from tests.support.databases import Backend, MovingClock

MONTH = timedelta(days=31)
NOWHERE = Path("/nonexistent")


@pytest.fixture
def url(sqlite: Backend) -> Iterator[str]:
    """What is removed is the same on every database; the contract tests show that."""
    fresh = sqlite.fresh()
    yield fresh
    sqlite.drop(fresh)


def test_files_are_removed_with_their_job(services: Services, directory: ResultFiles, clock: MovingClock) -> None:
    keeping = replace(services, drop_files=directory.drop)
    old = an_ended_job(keeping, JobStatus.DONE)
    waiting = a_job(keeping)
    for job_id in (old, waiting):
        directory.put(job_id, "a.png", [b"cat"])
    assert prune(keeping) == 0
    assert directory.find(old, "a.png") is not None
    clock.advance(MONTH)
    assert prune(keeping) == 1
    assert directory.find(old, "a.png") is None
    assert directory.find(waiting, "a.png") is not None


def test_files_that_cannot_be_removed_do_not_keep_their_job(services: Services, clock: MovingClock) -> None:
    asked: list[str] = []

    def fail(job_id: str) -> None:
        asked.append(job_id)
        raise ServiceUnavailable("the disk is broken")

    keeping = replace(services, drop_files=fail)
    jobs = [an_ended_job(keeping, JobStatus.DONE, worker=name) for name in ("w1", "w2")]
    clock.advance(MONTH)
    assert prune(keeping) == 2
    assert sorted(asked) == sorted(jobs)
    for job_id in jobs:
        with pytest.raises(NotFound):
            find_job(keeping, job_id)


def test_a_directory_is_swept_and_a_bucket_is_left_to_its_own_rules(tmp_path: Path) -> None:
    here = {"DATABASE_URL": f"sqlite:///{tmp_path}/h.db", "LOCAL_STATE_DIR": str(tmp_path)}
    settings = load_settings(here, NOWHERE)
    kept = open_results(settings).put("j1", "a.png", [b"cat"])
    services = open_services(settings)
    services.drop_files("j1")
    services.database.close()
    assert open_results(settings).find("j1", "a.png") is None
    assert kept.uri == (tmp_path / "results" / "j1" / "a.png").as_uri()
    # Nothing listens there: a word to the bucket would fail, and take its time.
    away = {**here, "RESULT_STORE": "s3://pail", "RESULT_S3_ENDPOINT": "http://127.0.0.1:1"}
    services = open_services(load_settings(away, NOWHERE))
    services.drop_files("j1")
    services.database.close()
