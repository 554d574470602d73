"""A worker's queue over HTTP: what each answer means to the worker, and that nothing is sent twice behind its back."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from herdsman.client import queue as queue_module
from herdsman.client.queue import HttpQueue, register
from herdsman.errors import (
    Forbidden,
    HerdsmanError,
    InvalidRequest,
    NotFound,
    StaleWrite,
    StoreUnavailable,
    Unreachable,
)
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.model import ClaimKey, Failure, FailureClass
from herdsman.jobs.protocol import (
    ClaimRequest,
    Done,
    Ending,
    Failed,
    GivenBack,
    LogLines,
    MarkStatus,
    Progress,
    ServiceMark,
    WorkerHeartbeat,
)
from herdsman.ports import WorkQueue
from herdsman.states import JobStatus
from tests.unit.client.local_server import URL, Served, page, refused, said

KEY = ClaimKey(JobId("job-1"), 7)
OTHER = ClaimKey(JobId("job-2"), 1)
SOON = datetime(2026, 1, 1, tzinfo=UTC)
CLAIM = {
    "job_id": "job-1",
    "token": 7,
    "worker_id": "w",
    "type": "image",
    "payload": {"n": 1},
    "attempt": 2,
    "timeout_seconds": 60,
    "expires_at": SOON.isoformat(),
}
MARK = ServiceMark(external_id="prompt-1", status=MarkStatus.SUBMITTED)
ORDERS: dict[str, Any] = {"expires_at": SOON.isoformat(), "drain": True, "cancel": [], "lost": []}


def queue_on(served: Served) -> HttpQueue:
    transport = httpx.MockTransport(served)
    return HttpQueue(URL, "worker-token", WorkerId("w"), clock=served.clock, transport=transport)


def everything(queue: WorkQueue) -> list[Any]:
    """Each word that a worker may say."""
    return [
        lambda: queue.claim(ClaimRequest()),
        lambda: queue.start([KEY]),
        lambda: queue.beat(WorkerHeartbeat()),
        lambda: queue.finish([Done(KEY, None)]),
        lambda: queue.get_checkpoint(KEY),
        lambda: queue.put_checkpoint(KEY, 1),
        lambda: queue.mark_service(KEY, MARK),
        queue.leave,
    ]


@pytest.mark.parametrize("word", range(8))
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refused(401, "unauthenticated"), NotFound),
        (refused(409, "stale"), StaleWrite),
        (refused(403, "forbidden"), Forbidden),
        (refused(503, "store-unavailable"), StoreUnavailable),
        (page(404), Unreachable),
        (page(401), Unreachable),
        (page(502), Unreachable),
        (httpx.Response(302, headers={"Location": "/login"}), Unreachable),
        (httpx.ReadTimeout("slow"), Unreachable),
    ],
)
def test_only_herdsman_itself_can_send_a_worker_home_and_no_word_is_repeated(
    word: int, answer: httpx.Response | Exception, kind: type[HerdsmanError]
) -> None:
    served = Served(answer)
    with pytest.raises(HerdsmanError) as raised:
        everything(queue_on(served))[word]()
    assert type(raised.value) is kind
    assert len(served.requests) == 1
    assert served.clock.slept == []


@pytest.mark.parametrize("word", range(8))
def test_a_worker_without_a_row_is_not_wanted_but_a_job_without_one_is_only_stale(word: int) -> None:
    about_a_job = word in (4, 5, 6)
    with pytest.raises(StaleWrite if about_a_job else NotFound):
        everything(queue_on(Served(refused(404, "not-found"))))[word]()


@pytest.mark.parametrize("word", range(7))
def test_a_strangers_json_is_never_a_yes(word: int) -> None:
    silent = word in (5, 6)
    with pytest.raises(Unreachable):
        everything(queue_on(Served(httpx.Response(200, html="{}") if silent else said({"ok": True}))))[word]()


def test_a_claim_arrives_as_it_was_made_and_may_be_waited_for() -> None:
    served = Served(said({"claims": [CLAIM]}))
    ask = ClaimRequest(types=("image",), most={"image": 4}, begin=True, resume=True)
    (claim,) = queue_on(served).claim(ask, timedelta(seconds=30))
    assert (claim.key, claim.type, claim.payload, claim.attempt) == (KEY, "image", {"n": 1}, 2)
    assert claim.timeout == timedelta(minutes=1)
    assert served.bodies[0] == {
        "types": ["image"],
        "most": {"image": 4},
        "begin": True,
        "resume": True,
        "wait_seconds": 30,
    }
    assert served.requests[0].extensions["timeout"]["read"] == 40
    assert served.requests[0].headers["Authorization"] == "Bearer worker-token"


def test_starts_that_are_refused_come_back_by_their_claim() -> None:
    served = Served(said({"refused": [{"job_id": "job-1", "token": 7, "reason": "gone"}]}))
    assert queue_on(served).start([KEY, OTHER]) == {KEY: "gone"}


def test_a_beat_says_everything_and_brings_orders_and_a_new_token() -> None:
    lost = [{"job_id": "job-2", "token": 1, "reason": "swept"}]
    cancel = [{"job_id": "job-1", "token": 7, "reason": "it was cancelled"}]
    served = Served(said(ORDERS | {"cancel": cancel, "lost": lost, "token": "fresh-token"}), said(ORDERS))
    queue = queue_on(served)
    heartbeat = WorkerHeartbeat(
        keys=(KEY, OTHER),
        progress={KEY: Progress(done=0.5, note="half")},
        logs={KEY: LogLines(first=3, lines=("a", "b"))},
    )
    reply = queue.beat(heartbeat)
    assert (reply.drain, reply.cancel, reply.lost) == (True, {KEY}, {OTHER: "swept"})
    assert served.bodies[0]["holding"][0] == {
        "job_id": "job-1",
        "token": 7,
        "done": 0.5,
        "note": "half",
        "log_first": 3,
        "log_lines": ["a", "b"],
    }
    queue.beat(WorkerHeartbeat())
    assert served.requests[1].headers["Authorization"] == "Bearer fresh-token"
    assert served.paths == ["POST /workers/w/heartbeat"] * 2


def finished(request: httpx.Request) -> httpx.Response:
    sent = json.loads(request.content)
    told = [{"job_id": each["job_id"], "token": each["token"], "status": "done"} for each in sent["endings"]]
    return said({"told": told, "claims": [CLAIM] if "then" in sent else []})


def test_endings_and_the_next_job_are_one_request() -> None:
    served = Served(finished)
    endings: list[Ending] = [
        Done(KEY, {"n": 2}),
        Failed(OTHER, Failure(kind=FailureClass.TIMEOUT, error="slow")),
        GivenBack(ClaimKey(JobId("job-3"), 1), "drain"),
    ]
    done = queue_on(served).finish(endings, ClaimRequest())
    assert [told.status for told in done.told] == [JobStatus.DONE] * 3
    assert [claim.key for claim in done.claims] == [KEY]
    assert [each["outcome"] for each in served.bodies[0]["endings"]] == ["done", "failed", "given_back"]


def test_one_result_that_cannot_be_sent_holds_up_no_other() -> None:
    served = Served(finished)
    done = queue_on(served).finish([Done(KEY, "a\0b"), Done(OTHER, "fine")])
    refused_one, taken = done.told
    assert (refused_one.key, refused_one.status, refused_one.stale) == (KEY, None, False)
    assert "NUL" in (refused_one.refused or "")
    assert (taken.key, taken.status) == (OTHER, JobStatus.DONE)


def test_many_large_results_go_in_several_requests_and_ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "LARGEST_REPORT", 1000)
    served = Served(finished)
    endings = [Done(ClaimKey(JobId(f"job-{each}"), 1), "x" * 400) for each in range(5)]
    done = queue_on(served).finish(endings, ClaimRequest())
    assert [len(body["endings"]) for body in served.bodies] == [2, 2, 1]
    assert ["then" in body for body in served.bodies] == [False, False, True]
    assert (len(done.told), len(done.claims)) == (5, 1)


def test_checkpoints_carry_the_token_of_the_claim() -> None:
    served = Served(said({"value": {"step": 3}}), httpx.Response(204))
    queue = queue_on(served)
    assert queue.get_checkpoint(KEY) == {"step": 3}
    queue.put_checkpoint(KEY, {"step": 4})
    assert served.paths == ["GET /jobs/job-1/checkpoint?token=7", "PUT /jobs/job-1/checkpoint"]
    assert served.bodies == [{"token": 7, "value": {"step": 4}}]
    with pytest.raises(InvalidRequest, match="checkpoint is a set"):
        queue.put_checkpoint(KEY, {1})


def test_a_mark_says_where_the_job_is_under_which_claim() -> None:
    served = Served(httpx.Response(204))
    queue_on(served).mark_service(KEY, MARK)
    assert served.paths == ["PUT /jobs/job-1/service"]
    assert served.bodies == [{"token": 7, "external_id": "prompt-1", "status": "submitted"}]


def test_what_a_recovered_result_spared_goes_with_it_and_an_impossible_number_holds_up_no_other() -> None:
    served = Served(finished)
    endings = [Done(KEY, 1, timedelta(seconds=41.2)), Done(OTHER, 2, timedelta(seconds=-1))]
    taken, refused_one = sorted(queue_on(served).finish(endings).told, key=lambda told: told.key.job_id)
    assert (taken.status, refused_one.status, refused_one.stale) == (JobStatus.DONE, None, False)
    assert "saved is -1 seconds" in (refused_one.refused or "")
    assert [each["saved_seconds"] for each in served.bodies[0]["endings"]] == [41.2]


def test_leaving_is_one_word() -> None:
    served = Served(httpx.Response(204))
    queue_on(served).leave()
    assert served.paths == ["POST /workers/w/leave"]


def test_registering_exchanges_one_token_for_another_and_may_be_repeated() -> None:
    registered = {
        "worker_id": "gpu-1",
        "token": "worker-token",
        "expires_at": SOON.isoformat(),
        "heartbeat_seconds": 5,
        "claim_ttl_seconds": 30,
    }
    served = Served(httpx.ReadError("cut"), said(registered, 201), said({"claims": []}))
    transport = httpx.MockTransport(served)
    queue, found = register(
        URL, "boot-token", incarnation="abcdefgh", pool="big", clock=served.clock, transport=transport
    )
    assert (queue.worker_id, found.heartbeat_seconds) == ("gpu-1", 5)
    assert served.bodies[0] == served.bodies[1] == {"pool": "big", "incarnation": "abcdefgh"}
    queue.claim(ClaimRequest())
    sent = [request.headers["Authorization"] for request in served.requests]
    assert sent == ["Bearer boot-token", "Bearer boot-token", "Bearer worker-token"]


def test_a_worker_waits_to_register_while_the_database_of_its_control_plane_is_away() -> None:
    """It must not end because of an outage: nobody starts it again."""
    registered = {
        "worker_id": "gpu-1",
        "token": "worker-token",
        "expires_at": SOON.isoformat(),
        "heartbeat_seconds": 5,
        "claim_ttl_seconds": 30,
    }
    away = [refused(503, "store-unavailable")] * 600
    served = Served(*away, said(registered, 201))
    heard: list[str] = []
    queue, _ = register(
        URL,
        "boot-token",
        incarnation="abcdefgh",
        clock=served.clock,
        transport=httpx.MockTransport(served),
        outage=timedelta(days=1),
        say=heard.append,
    )
    assert queue.worker_id == "gpu-1"
    assert served.clock.monotonic() > 20 * 60
    assert heard[0].startswith("waiting to register: ")
    with pytest.raises(StoreUnavailable):
        register(
            URL,
            "boot-token",
            incarnation="abcdefgh",
            clock=served.clock,
            transport=httpx.MockTransport(Served(*away)),
        )
