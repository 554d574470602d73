"""Whatever somebody sends is stored alike on every database, or refused with one of our own errors."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest

from herdsman.context import Services
from herdsman.errors import InvalidRequest
from herdsman.jobs.commands import find_history, find_job, submit_job
from herdsman.jobs.model import NewJob
from herdsman.jobs.worker_commands import complete_job, report_progress
from herdsman.json_text import MAX_DEPTH
from tests.support.builders import a_claim, a_job, a_worker, claimed


def in_a_list(inner: object) -> object:
    return [inner]


def in_an_object(inner: object) -> object:
    return {"k": inner}


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


@pytest.mark.parametrize("number", [2**53 - 1, 1 - 2**53, 1e308, 5e-324, -0.0, 0.1 + 0.2, 1e16])
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


@pytest.mark.parametrize("make", [in_a_list, in_an_object])
def test_the_deepest_payload_that_is_accepted_is_stored_everywhere(
    services: Services, make: Callable[[object], object]
) -> None:
    payload: object = 1
    for _ in range(MAX_DEPTH - 1):
        payload = make(payload)
    assert a_claim(services, payload=payload).payload == payload
    with pytest.raises(InvalidRequest, match="payload is nested deeper than 32 levels"):
        a_job(services, payload=make(payload))


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
