"""Handing jobs in: each is named before it is sent, and many go in few requests, in order."""

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from herdsman.client import JobCancelled, JobFailed
from herdsman.client import client as client_module
from herdsman.errors import InvalidRequest, TooLarge
from tests.unit.client.local_server import Served, a_job, said, submitted


def taken(request: httpx.Request) -> httpx.Response:
    jobs = json.loads(request.content)["jobs"]
    return said({"jobs": [{"job_id": job["job_id"], "created": True} for job in jobs]}, 201)


def echo(ends: Callable[[int], dict[str, object]]) -> Callable[[httpx.Request], httpx.Response]:
    """A server on which every job has ended at once, as `ends` says of its payload."""
    payloads: dict[str, int] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        parts = request.url.path.split("/")
        if request.method == "POST":
            for job in json.loads(request.content)["jobs"]:
                payloads[job["job_id"]] = job["payload"]
            return taken(request)
        if parts[-1] == "result":
            return said({"job_id": parts[2], **ends(payloads[parts[2]])})
        return said(a_job("dead_letter", job_id=parts[2], attempts=3))

    return answer


def test_a_job_gets_its_name_here_unless_it_has_one() -> None:
    served = Served(submitted())
    client = served.client(agent="team-a")
    client.submit("image", {"prompt": "a herd"})
    client.submit("image", job_id="mine", agent="team-b")
    client.submit("image", idempotency_key="key-1")
    first, second, third = served.bodies
    assert first["payload"] == {"prompt": "a herd"}
    assert len(first["job_id"]) == 32
    assert (first["agent"], second["agent"]) == ("team-a", "team-b")
    assert second["job_id"] == "mine"
    assert "job_id" not in third


def test_options_are_sent_in_the_words_of_the_wire() -> None:
    served = Served(submitted())
    at = datetime(2026, 1, 2, tzinfo=UTC)
    served.client().submit("image", tags=["a", "b"], timeout=timedelta(minutes=2), retry_base=1, run_at=at, priority=5)
    (body,) = served.bodies
    assert (body["tags"], body["timeout_seconds"], body["retry_base_seconds"]) == (["a", "b"], 120, 1)
    assert (datetime.fromisoformat(body["run_at"]), body["priority"]) == (at, 5)


def test_a_handle_knows_whether_the_job_is_new() -> None:
    served = Served(said({"job_id": "mine", "created": False}))
    handle = served.client().submit("image", job_id="mine")
    assert (handle.id, handle.created) == ("mine", False)


@pytest.mark.parametrize(
    ("payload", "said_of_it"),
    [
        ({"a": math.nan}, r"payload\.a is nan"),
        ({"a": datetime(2026, 1, 1, tzinfo=UTC)}, r"payload\.a is a datetime"),
        ({"a": {1, 2}}, r"payload\.a is a set"),
        ("a\0b", "NUL"),
    ],
)
def test_a_payload_that_is_no_json_is_refused_by_its_place_and_never_sent(payload: object, said_of_it: str) -> None:
    served = Served(submitted())
    with pytest.raises(InvalidRequest, match=said_of_it):
        served.client().submit("image", payload)
    assert served.requests == []


def test_a_huge_payload_is_refused_before_it_is_sent() -> None:
    with pytest.raises(TooLarge, match="pass a reference"):
        Served(submitted()).client().submit("image", "x" * 17 * 1024 * 1024)


@pytest.mark.parametrize("options", [{"tags": "text"}, {"timeout": -1}, {"run_at": datetime(2026, 1, 1)}])  # noqa: DTZ001
def test_an_option_that_the_server_would_refuse_is_refused_here(options: Any) -> None:
    with pytest.raises(InvalidRequest):
        Served(submitted()).client().submit("image", **options)


def test_many_jobs_go_in_few_requests_and_keep_their_order() -> None:
    served = Served(taken)
    handles = served.client().submit_many("image", range(1500), pool="big")
    assert [len(body["jobs"]) for body in served.bodies] == [1000, 500]
    sent = [job for body in served.bodies for job in body["jobs"]]
    assert [job["payload"] for job in sent] == list(range(1500))
    assert [handle.id for handle in handles] == [job["job_id"] for job in sent]
    assert len({handle.id for handle in handles}) == 1500


def test_a_request_for_many_jobs_stays_below_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MOST_BYTES", 10_000)
    served = Served(taken)
    served.client().submit_many("image", ["x" * 3000] * 7)
    assert [len(body["jobs"]) for body in served.bodies] == [3, 3, 1]


def test_jobs_of_many_small_values_are_sent_in_smaller_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server counts values as well as bytes."""
    monkeypatch.setattr(client_module, "MOST_BYTES", 10_000)
    served = Served(taken)
    empty: list[object] = []
    served.client().submit_many("image", [[empty] * 1_000] * 4)
    assert [len(body["jobs"]) for body in served.bodies] == [1, 1, 1, 1]


def test_nothing_to_submit_asks_nothing() -> None:
    served = Served(taken)
    assert served.client().submit_many("image", []) == []
    assert served.requests == []


def test_one_name_for_many_jobs_is_refused() -> None:
    options: Any = {"job_id": "one"}
    with pytest.raises(InvalidRequest, match="for many jobs at once"):
        Served(taken).client().submit_many("image", [1, 2], **options)


def test_map_gives_results_in_order_and_hands_in_no_more_than_its_window() -> None:
    drawn: list[int] = []

    def payloads() -> Any:
        for each in range(25):
            drawn.append(each)
            yield each

    served = Served(echo(lambda payload: {"status": "done", "result": payload * 2}))
    results = served.client().map("double", payloads(), window=8)
    assert next(results) == 0
    assert len(drawn) <= 8
    assert [0, *results] == [each * 2 for each in range(25)]


def test_map_raises_what_failed_or_returns_it() -> None:
    def ends(payload: int) -> dict[str, object]:
        if payload == 1:
            return {"status": "dead_letter", "failure_class": "job_error", "last_error": "boom"}
        return {"status": "cancelled"} if payload == 2 else {"status": "done", "result": payload}

    results = Served(echo(ends)).client().map("double", [0, 1, 2])
    assert next(results) == 0
    with pytest.raises(JobFailed, match=r"failed after 3 attempts \(job_error\): boom") as raised:
        next(results)
    assert (raised.value.failure_class, raised.value.error, raised.value.attempts) == ("job_error", "boom", 3)
    kept = list(Served(echo(ends)).client().map("double", [0, 1, 2], return_exceptions=True))
    assert kept[0] == 0
    assert [type(each) for each in kept[1:]] == [JobFailed, JobCancelled]


@pytest.mark.parametrize("window", [0, 100_000])
def test_a_window_has_a_sensible_width(window: int) -> None:
    with pytest.raises(InvalidRequest, match="window is"):
        next(Served(taken).client().map("image", [1], window=window))
