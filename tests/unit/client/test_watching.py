"""Waiting for a job: often at first, seldom later, and never past the time that was given."""

import httpx
import pytest

from herdsman.client import JobCancelled, JobFailed
from herdsman.errors import Conflict, NotFound, Unreachable
from tests.unit.client.local_server import NOW, Served, a_job, an_event, refused, said

NOT_YET = refused(409, "not-finished")
DONE = said({"job_id": "job-1", "status": "done", "result": {"n": 1}})


def test_a_job_that_has_ended_costs_one_request() -> None:
    served = Served(DONE)
    assert served.client().job("job-1").result() == {"n": 1}
    assert served.paths == ["GET /jobs/job-1/result"]


def test_waiting_looks_with_the_mark_of_the_last_look_and_rests_longer_each_time() -> None:
    running = said(a_job("running"), headers={"ETag": '"7"'})
    served = Served(NOT_YET, running, *[httpx.Response(304)] * 12, said(a_job("done")), DONE)
    assert served.client().job("job-1").result() == {"n": 1}
    assert "If-None-Match" not in served.requests[1].headers
    assert [each.headers.get("If-None-Match") for each in served.requests[2:15]] == ['"7"'] * 13
    assert served.clock.slept[0] == pytest.approx(0.05)  # pyright: ignore[reportUnknownMemberType]
    assert served.clock.slept == sorted(served.clock.slept)
    assert served.clock.slept[-1] == 1.0


def test_an_unchanged_answer_that_nobody_asked_for_is_a_strangers() -> None:
    with pytest.raises(Unreachable):
        Served(httpx.Response(304)).client().job("job-1").wait()


def test_a_wait_that_is_too_short_names_the_job_and_its_state() -> None:
    served = Served(NOT_YET, said(a_job("running")))
    with pytest.raises(TimeoutError, match=r"job job-1 is still running after 5 s"):
        served.client().job("job-1").result(timeout=5)
    assert sum(served.clock.slept) == pytest.approx(5)  # pyright: ignore[reportUnknownMemberType]


def test_a_wait_of_nothing_looks_once() -> None:
    served = Served(said(a_job("pending")))
    with pytest.raises(TimeoutError, match="pending"):
        served.client().job("job-1").wait(timeout=0)
    assert len(served.requests) == 1


def test_a_server_that_is_away_does_not_stretch_the_wait() -> None:
    served = Served(httpx.ConnectError("refused"))
    with pytest.raises(Unreachable, match="check that the server runs"):
        served.client().job("job-1").result(timeout=2)
    assert sum(served.clock.slept) <= 2


def test_a_job_without_result_says_why() -> None:
    failed = said({"job_id": "job-1", "status": "dead_letter", "failure_class": "timeout", "last_error": "slow"})
    served = Served(failed, said(a_job("dead_letter", attempts=1)))
    with pytest.raises(JobFailed, match=r"job job-1 failed after 1 attempt \(timeout\): slow"):
        served.client().job("job-1").result()
    with pytest.raises(JobCancelled, match="job job-1 was cancelled"):
        Served(said({"job_id": "job-1", "status": "cancelled"})).client().job("job-1").result()


def test_another_conflict_is_not_taken_for_a_job_that_still_runs() -> None:
    with pytest.raises(Conflict):
        Served(refused(409, "conflict")).client().job("job-1").result()
    with pytest.raises(NotFound):
        Served(refused(404, "not-found")).client().job("job-1").result()


def test_wait_gives_the_job_however_it_ended() -> None:
    served = Served(said(a_job("claimed")), said(a_job("dead_letter", last_error="boom")))
    seen = served.client().job("job-1").wait()
    assert (seen.status, seen.last_error) == ("dead_letter", "boom")


def test_words_about_a_job_go_where_they_belong() -> None:
    served = Served(said({"job_id": "job-1", "status": "cancelled"}))
    client = served.client()
    assert client.cancel("job-1") == "cancelled"
    client.retry("job-1")
    client.retry("job-1", None)
    assert served.paths == ["POST /jobs/job-1/cancel", *["POST /jobs/job-1/retry"] * 2]
    assert served.bodies[1:] == [{}, {"edit": True}]


def test_attempts_and_history_are_read_to_their_end() -> None:
    attempt = {
        "attempt": 1,
        "claim_token": 1,
        "worker_id": "w",
        "pool": "default",
        "claimed_at": NOW.isoformat(),
        "started_at": None,
        "ended_at": None,
        "outcome": None,
        "reason": None,
        "failure_class": None,
        "error": None,
    }
    assert Served(said({"attempts": [attempt]})).client().job("job-1").attempts()[0].worker_id == "w"
    served = Served(said({"events": [an_event(1)], "next": "1"}), said({"events": [an_event(2)], "next": None}))
    assert [each.id for each in served.client().job("job-1").events()] == [1, 2]
    assert served.paths[1].endswith("events?since=1")


def test_pages_that_follow_upon_themselves_end_in_an_error() -> None:
    served = Served(said({"events": [an_event(1)], "next": "1"}))
    with pytest.raises(Unreachable, match="do not end"):
        list(served.client().job("job-1").events())
    listing = Served(said({"jobs": [a_job()], "next": "a"}))
    with pytest.raises(Unreachable, match="do not end"):
        list(listing.client().jobs())


def piece(first: int, *lines: str) -> dict[str, object]:
    return {"claim_token": 2, "first": first, "ts": NOW.isoformat(), "lines": lines}


def test_logs_are_read_to_their_end_and_followed_until_the_job_ends() -> None:
    pages = [
        said({"pieces": [piece(0, "a", "b")], "next": "1", "ended": False}),
        said({"pieces": [], "next": "1", "ended": False}),
        said({"pieces": [piece(2, "c")], "next": "2", "ended": True}),
        said({"pieces": [], "next": "2", "ended": True}),
    ]
    so_far = list(Served(*pages).client().logs("job-1"))
    assert [(line.claim_token, line.number, str(line)) for line in so_far] == [(2, 0, "a"), (2, 1, "b")]
    assert [str(line) for line in Served(*pages).client().logs("job-1", follow=True)] == ["a", "b", "c"]


def test_a_list_is_read_page_by_page_with_its_filters() -> None:
    served = Served(said({"jobs": [a_job(job_id="b")], "next": "b"}), said({"jobs": [a_job(job_id="a")], "next": None}))
    found = list(served.client().jobs(status=["pending", "failed"], type="image", tag="x"))
    assert [job.job_id for job in found] == ["b", "a"]
    assert served.paths[0] == "GET /jobs?status=pending&status=failed&type=image&tag=x&limit=200"
    assert "after=b" in served.paths[1]
