"""Whatever somebody sends is stored alike on every database, or refused with one of our own errors."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest

from herdsman.control.commands import (
    beat,
    cancel_job,
    complete_job,
    fail_job,
    find_attempts,
    find_history,
    find_job,
    list_jobs,
    release_job,
    report_progress,
    requeue_job,
    start_job,
    submit_job,
)
from herdsman.control.services import Services
from herdsman.core.body import MAX_DEPTH
from herdsman.core.errors import InvalidRequest, NotFound, StaleWrite
from herdsman.core.model import ClaimKey, JobFilter, JobId, NewJob, PoolId, WorkerId
from tests.builders import BROKEN, a_claim, a_job, a_worker, claimed

SQLISH = "'; DROP TABLE orchestrator_jobs; -- \" ` \\ % %s :x ? {} $1 \\0 %(a)s"
ODD_TEXTS = [
    SQLISH,
    "<script>alert(1)</script>",
    "\r\nSet-Cookie: a=b",
    "../../etc/passwd",
    "\u202e\ufeff\u200b",
    "e\u0301 \N{FAMILY} \U0001f469\u200d\U0001f52c",
    "\x01\x1f\x7f",
    "  padded  ",
    "",
]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_text_comes_back_as_it_went_in(services: Services, text: str) -> None:
    worker = a_worker(services)
    a_job(services, payload={text: text})
    claim = claimed(services, worker)
    report_progress(services, claim.key, 0.5, text)
    assert find_job(services, claim.key.job_id).progress_note == text
    complete_job(services, claim.key, [text], who=f"who {text}")
    job = find_job(services, claim.key.job_id)
    assert (claim.payload, job.payload, job.result) == ({text: text}, {text: text}, [text])
    assert find_history(services, job.job_id)[-1].actor == f"who {text}"


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**300, 1e308, 5e-324, -0.0, 0.1 + 0.2, 1e16])
def test_numbers_come_back_exactly(services: Services, number: float) -> None:
    claim = a_claim(services, payload={"n": number})
    complete_job(services, claim.key, number)
    job = find_job(services, claim.key.job_id)
    assert repr(claim.payload) == repr(job.payload) == repr({"n": number})
    assert repr(job.result) == repr(number)


def test_the_order_of_keys_is_kept(services: Services) -> None:
    payload = {"z": 1, "a": {"y": 2, "b": 3}, "": 4}
    claim = a_claim(services, payload=payload)
    assert json.dumps(claim.payload) == json.dumps(payload)


@pytest.mark.parametrize("make", [lambda inner: [inner], lambda inner: {"k": inner}], ids=["lists", "objects"])
def test_the_deepest_payload_that_is_accepted_is_stored_everywhere(
    services: Services, make: Callable[[object], object]
) -> None:
    payload: object = 1
    for _ in range(MAX_DEPTH - 1):
        payload = make(payload)
    assert a_claim(services, payload=payload).payload == payload
    with pytest.raises(InvalidRequest, match="payload is nested deeper than 32 levels"):
        a_job(services, payload=make(payload))


ODD_NAMES = ["a\0b", "\ud800", SQLISH, "x" * 10_000, ""]


@pytest.mark.parametrize("name", ODD_NAMES, ids=["nul", "surrogate", "sql", "long", "empty"])
def test_an_odd_name_is_the_name_of_nothing(services: Services, name: str) -> None:
    """A3: bad input is never a failure of ours."""
    job_id, key = JobId(name), ClaimKey(JobId(name), 1)
    worker = a_worker(services)
    for ask in (
        lambda: find_job(services, job_id),
        lambda: cancel_job(services, job_id),
        lambda: requeue_job(services, job_id),
        lambda: start_job(services, key),
        lambda: complete_job(services, key),
        lambda: fail_job(services, key, BROKEN),
        lambda: release_job(services, key, "drained"),
        lambda: beat(services, worker, key),
        lambda: beat(services, WorkerId(name)),
    ):
        with pytest.raises((NotFound, InvalidRequest)):
            ask()


@pytest.mark.parametrize("name", ODD_NAMES, ids=["nul", "surrogate", "sql", "long", "empty"])
def test_a_list_by_an_odd_name_is_empty_or_refused(services: Services, name: str) -> None:
    a_job(services)
    for wanted in (JobFilter(type=name), JobFilter(agent=name), JobFilter(pool=PoolId(name)), JobFilter(tag=name)):
        try:
            assert list_jobs(services, wanted).jobs == ()
        except InvalidRequest:
            continue


@pytest.mark.parametrize("token", [0, -1, 2**63, 2**70, -(2**70)])
def test_a_token_of_any_size_is_just_a_wrong_one(services: Services, token: int) -> None:
    claim = a_claim(services)
    with pytest.raises((StaleWrite, InvalidRequest)):
        start_job(services, ClaimKey(claim.key.job_id, token))


@pytest.mark.parametrize("note", ["a\0b", "\ud800", "\U0001f600" * 300])
def test_an_odd_note_does_not_stop_the_work(services: Services, note: str) -> None:
    claim = a_claim(services)
    report_progress(services, claim.key, 0.5, note)
    assert find_job(services, claim.key.job_id).progress == 0.5
    release_job(services, claim.key, note)
    assert find_attempts(services, claim.key.job_id)[0].outcome == "pending"


@pytest.mark.parametrize(
    "run_at",
    [
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        datetime(9999, 12, 31, tzinfo=UTC),
    ],
    ids=["beyond the end of time", "before its beginning", "far"],
)
def test_a_time_that_no_calendar_holds_is_refused_or_stored(services: Services, run_at: datetime) -> None:
    try:
        job_id = submit_job(services, NewJob(type="demo", run_at=run_at)).job_id
    except InvalidRequest:
        return
    assert find_job(services, job_id).run_at >= datetime(2020, 1, 1, tzinfo=UTC)
