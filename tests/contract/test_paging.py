"""Lists come a page at a time, and the pages hold still while jobs come and go."""

from base64 import urlsafe_b64encode
from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.db.paging import LARGEST_PAGE
from herdsman.errors import InvalidRequest
from herdsman.ids import JobId, PoolId
from herdsman.jobs import sql as jobs_sql
from herdsman.jobs.commands import cancel_job, list_jobs, submit_jobs
from herdsman.jobs.model import JobFilter, NewJob
from herdsman.jobs.sweep import prune
from herdsman.states import JobStatus
from tests.support.builders import a_job, an_ended_job
from tests.support.databases import NOON, MovingClock


def test_the_newest_job_comes_first(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    ids: list[JobId] = []
    for _ in range(3):
        ids.append(a_job(services))
        clock.advance(timedelta(microseconds=1))
    assert [job.job_id for job in list_jobs(services).jobs] == ids[::-1]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8])
def test_the_pages_together_are_everything_once(services: Services, clock: MovingClock, size: int) -> None:
    """All of one batch were made at the same instant, so that only their names tell them apart."""
    clock.stop(at=NOON)
    names = ["a", "B", "b", "Z", "1", "a.b", "a-b"]
    submit_jobs(services, [NewJob(type="demo", job_id=JobId(name)) for name in names])
    seen = everything(services, size)
    assert sorted(seen) == sorted(names)


def test_pages_hold_still_while_jobs_come_and_go(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    old: list[JobId] = []
    for number in range(6):
        old.append(a_job(services, job_id=JobId(f"old-{number}")))
        clock.advance(timedelta(seconds=1))
    first = list_jobs(services, limit=3)
    assert [job.job_id for job in first.jobs] == old[:2:-1]
    for job_id in (old[2], old[4]):
        cancel_job(services, job_id)
    clock.advance(timedelta(days=31))
    assert prune(services) > 0
    a_job(services, job_id=JobId("new"))
    second = list_jobs(services, after=first.next, limit=3)
    assert [job.job_id for job in second.jobs] == [old[1], old[0]]
    assert second.next is None


def test_ids_that_begin_alike_are_found_however_old_they_are(services: Services, clock: MovingClock) -> None:
    """Not only among the newest: a piece of the primary key is read."""
    for name in ("img-1", "img-10", "img", "Img-1", "imh", "a"):
        a_job(services, job_id=JobId(name), agent="ann" if name == "img-10" else "bob")
    clock.advance(timedelta(days=1))
    submit_jobs(services, [NewJob(type="demo") for _ in range(300)])
    assert sorted(ids(services, JobFilter(begins="img-"))) == ["img-1", "img-10"]
    assert ids(services, JobFilter(begins="img-", agent="ann")) == ["img-10"]
    assert ids(services, JobFilter(begins="img-2")) == []
    assert [each.job_id for each in list_jobs(services, JobFilter(begins="img"), limit=1).jobs] == ["img"]
    with pytest.raises(InvalidRequest, match="begins"):
        list_jobs(services, JobFilter(begins="\0"))


def test_a_list_can_be_narrowed(services: Services) -> None:
    done = an_ended_job(services, JobStatus.DONE, type="render", agent="ann", tags=("x", "y"))
    other = a_job(services, pool=PoolId("big"), tags=("x",))
    assert ids(services, JobFilter(states=(JobStatus.DONE,))) == [done]
    assert ids(services, JobFilter(states=(JobStatus.DONE, JobStatus.PENDING))) == [other, done]
    assert ids(services, JobFilter(type="render")) == ids(services, JobFilter(agent="ann")) == [done]
    assert ids(services, JobFilter(tag="y")) == [done]
    assert ids(services, JobFilter(tag="x", pool=PoolId("big"))) == [other]
    assert ids(services, JobFilter(tag="X")) == []


@pytest.mark.parametrize("limit", [0, -1, LARGEST_PAGE + 1])
def test_a_page_has_a_size(services: Services, limit: int) -> None:
    with pytest.raises(InvalidRequest, match=f"limit is {limit}: it must be from 1 to 200"):
        list_jobs(services, limit=limit)


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "nonsense",
        "é",
        "\ud800",
        "AAAA",
        urlsafe_b64encode(b"|").decode(),
        urlsafe_b64encode(b"\xff|j").decode(),
        urlsafe_b64encode(b"2026-03-01T12:00:00+00:00|a\0b").decode(),
        urlsafe_b64encode(b"0001-01-01T00:00:00+23:00|j").decode(),
    ],
)
def test_a_cursor_must_be_one_that_we_gave_out(services: Services, cursor: str) -> None:
    with pytest.raises(InvalidRequest, match="is not one that we gave out"):
        list_jobs(services, after=cursor)


def test_jobs_are_counted_by_state(services: Services) -> None:
    an_ended_job(services, JobStatus.DONE)
    a_job(services)
    a_job(services)
    counted = services.database.read(jobs_sql.count_by_state)
    assert counted == dict.fromkeys(JobStatus, 0) | {JobStatus.DONE: 1, JobStatus.PENDING: 2}


def everything(services: Services, size: int) -> list[JobId]:
    page = list_jobs(services, limit=size)
    seen = [job.job_id for job in page.jobs]
    while page.next is not None:
        page = list_jobs(services, after=page.next, limit=size)
        assert len(page.jobs) <= size
        seen += [job.job_id for job in page.jobs]
    return seen


def ids(services: Services, wanted: JobFilter) -> list[JobId]:
    return [job.job_id for job in list_jobs(services, wanted).jobs]
