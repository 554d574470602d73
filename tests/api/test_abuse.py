"""X9, A3 on a real socket: whoever means harm gets a clear no, everybody else goes on being served."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from http.client import HTTPConnection
from itertools import chain
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.jobs.commands import count_jobs
from herdsman.json_text import decode
from herdsman.server import request as body_of
from herdsman.server.access import MATRIX
from herdsman.server.http_server import LARGEST_HEAD, MOST_AHEAD, Listening
from herdsman.server.state import ServerState
from herdsman.states import JobStatus
from tests.api.calling import Client
from tests.api.conftest import Tokens, bearer
from tests.api.sockets import (
    MEBI,
    PATIENCE,
    Place,
    chunked,
    ended,
    poured,
    problem_in,
    request,
    resident,
    serving,
    statuses,
    zeros,
)
from tests.support.builders import a_job

WRONG = "authorization: Bearer hm_admin_0123456789abcdef_wrong_0000"
LIVE = "/health/live"
CLOSE = "connection: close"
JSON = "content-type: application/json"


@pytest.fixture
def place(app: FastAPI, state: ServerState) -> Iterator[Place]:
    with serving(app, state, Listening(grace=timedelta(seconds=2))) as found:
        yield found


@pytest.fixture
def admin(tokens: Tokens) -> str:
    return f"authorization: {tokens.header(Role.ADMIN)['authorization']}"


@pytest.mark.parametrize(("path", "limit"), [("/jobs/submit", 2), ("/jobs/submit/batch", 17)])
@pytest.mark.parametrize("length", [True, False], ids=["length", "chunked"])
def test_100_mb_are_refused_without_being_kept(place: Place, admin: str, path: str, limit: int, length: bool) -> None:
    before = resident()
    said = f"content-length: {100 * MEBI}" if length else "transfer-encoding: chunked"
    body = zeros(100) if length else chunked(zeros(100))
    answer = place.told(request(path, admin, JSON, said, method="POST"), *body)
    assert statuses(answer) == [413]
    assert "store the data elsewhere" in problem_in(answer).detail
    assert resident() - before < (limit + 32) * MEBI
    assert place.alive()


def test_many_large_bodies_at_once_are_bounded_too(place: Place, admin: str) -> None:
    head = request("/jobs/submit", admin, JSON, "transfer-encoding: chunked", method="POST")
    before = resident()
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(place.told, head, *chunked(zeros(10))) for _ in range(20)]
    assert {tuple(statuses(each.result())) for each in asked} == {(413,)}
    assert resident() - before < 128 * MEBI


def test_bodies_up_to_the_limit_are_accepted_however_their_pieces_come(place: Place, tokens: Tokens) -> None:
    """The end of a body is no head: 100 of 100, small and large, on one connection."""
    header = {**tokens.header(Role.SUBMITTER), "content-type": "application/json"}
    with closing(HTTPConnection(place.host, place.port, timeout=PATIENCE)) as line:
        for number in range(100):
            size = MEBI - 100 if number % 20 == 0 else 60_000 + 2_000 * number
            line.request("POST", "/jobs/submit", json.dumps({"type": "demo", "payload": "x" * size}), header)
            answer = line.getresponse()
            assert (answer.status, b"job_id" in answer.read()) == (201, True), size


def test_no_route_with_a_body_takes_its_end_for_a_head(app: FastAPI, place: Place, tokens: Tokens) -> None:
    """Each answers with words of its own: the body has a field that no route knows."""
    header = {role: tokens.header(role, f"{role}-1") for role in (Role.ADMIN, Role.WORKER)}
    body = json.dumps({"unheard_of": "x" * 200_000})
    asked = [
        (method.upper(), path)
        for path, operations in app.openapi()["paths"].items()
        for method, operation in operations.items()
        if "requestBody" in operation
    ]
    assert len(asked) > 20
    for method, path in asked:
        role = Role.ADMIN if Role.ADMIN in MATRIX[method, path] else Role.WORKER
        with closing(HTTPConnection(place.host, place.port, timeout=PATIENCE)) as line:
            named = path.replace("{worker_id}", f"{Role.WORKER}-1").replace("{", "").replace("}", "")
            line.request(method, named, body, {**header[role], "content-type": "application/json"})
            answer = line.getresponse()
            assert (answer.status, b"unheard_of" in answer.read()) == (422, True), (method, path)


def test_a_head_without_end_behind_a_body_that_was_refused_is_given_up_too(place: Place) -> None:
    """An answer that comes before the body leaves a line on which the server has not seen the body's end."""
    refused = request("/jobs/submit", JSON, "content-length: 2", method="POST")
    with place.line() as line:
        # It pours on whatever is answered: the first answer may come before the head has begun.
        with suppress(OSError):
            line.sendall(refused + b"{}GET / HTTP/1.1\r\nx: " + b"x" * LARGEST_HEAD * 64)
        answer = ended(line)
    # Whoever goes on to pour may be cut off before it has read the answers.
    assert set(statuses(answer)) <= {401, 431}


_AWKWARD = {
    "a text without end": (b'"', b'\\"'),
    "backslashes": (b"", b"\\"),
    "empty lists": (b"[", b"[],"),
    "opening brackets": (b"", b"["),
    "unknown fields": (b"{", b'"a":1,'),
    "one long text": (b'{"type": "', b"a"),
}


@pytest.mark.parametrize("awkward", _AWKWARD.values(), ids=_AWKWARD)
def test_awkward_bodies_keep_nobody_from_being_served(
    place: Place, tokens: Tokens, admin: str, awkward: tuple[bytes, bytes]
) -> None:
    """Others wait some milliseconds; a body that is looked at on the event loop, or again and again, takes seconds."""
    viewer = f"authorization: {tokens.header(Role.VIEWER)['authorization']}"
    begun, more = awkward
    asked = [
        (method, path, header, size, status)
        for method, path, header, status in (
            ("GET", LIVE, "x-nobody: 1", 413),
            ("POST", "/jobs/submit/batch", viewer, 403),
            ("POST", "/jobs/submit/batch", admin, 422),
        )
        for size in (16_384, MEBI, 16 * MEBI - 100)
    ]

    def send() -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for method, path, header, size, status in asked:
            body = begun + more * ((size - len(begun)) // len(more))
            head = request(path, header, JSON, CLOSE, f"content-length: {len(body)}", method=method)
            found.append((statuses(place.told(head, body))[0], status))
        return found

    with (
        ThreadPoolExecutor(1) as pool,
        closing(HTTPConnection(place.host, place.port, timeout=PATIENCE)) as line,
    ):
        sent, longest = pool.submit(send), 0.0
        while not sent.done():
            began = time.monotonic()
            line.request("GET", LIVE)
            assert line.getresponse().read() == b'{"status":"healthy"}'
            longest = max(longest, time.monotonic() - began)
    assert [found for found, _ in sent.result()] == [wanted for _, wanted in sent.result()]
    assert longest < 5


def test_a_large_body_is_taken_apart_off_the_event_loop_and_only_for_those_who_may_send_it(
    client: Client, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def decoded(text: bytes, **how: Any) -> Any:
        threads.append(threading.current_thread().name)
        return decode(text, **how)

    monkeypatch.setattr(body_of, "decode", decoded)
    here = {"content-type": "application/json"}
    large = json.dumps({"type": "demo", "payload": "x" * body_of.SMALL}).encode()
    for role in (Role.VIEWER, Role.WORKER, Role.METRICS, Role.BOOTSTRAP):
        header = {**here, **tokens.header(role, f"{role}-1")}
        assert client.post("/jobs/submit", content=large, headers=header).status_code == 403
    assert client.request("GET", LIVE, content=large, headers=here).status_code == 413
    assert client.request("HEAD", LIVE, content=large, headers=here).status_code == 413
    assert client.post("/jobs/submit", content=large, headers=here).status_code == 401
    assert threads == []
    header = {**here, **tokens.header(Role.SUBMITTER)}
    assert client.post("/jobs/submit", content=large, headers=header).status_code == 201
    assert len(threads) == 1
    assert threads[0] != threading.current_thread().name


def test_a_body_from_nobody_is_not_read(place: Place) -> None:
    head = request("/jobs/submit", JSON, f"content-length: {100 * MEBI}", method="POST")
    assert problem_in(place.told(head, *zeros(100))).status == 401


def test_10_000_wrong_tokens_cost_next_to_nothing_and_lock_out_nobody_who_was_let_in(
    place: Place, tokens: Tokens
) -> None:
    """Only the one who guesses is asked to wait."""
    good = tokens.header(Role.VIEWER)
    assert httpx.get(f"{place.url}/jobs", headers=good, timeout=PATIENCE).status_code == 200
    before = resident()
    guess = request("/jobs", WRONG) * 49 + request("/jobs", WRONG, CLOSE)
    answers = [found for _ in range(200) for found in statuses(place.told(guess))]
    assert len(answers) == 10_000
    assert set(answers) == {401, 429}
    assert answers.count(401) < 1_000
    assert resident() - before < 64 * MEBI
    assert httpx.get(f"{place.url}/jobs", headers=good, timeout=PATIENCE).status_code == 200
    refused = httpx.get(f"{place.url}/jobs", headers=bearer("guess"), timeout=PATIENCE)
    assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    "flood",
    [
        (b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ", b"x" * MEBI),
        (b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n", b"a: b\r\n" * 100_000),
        (b"GET /", b"a" * MEBI),
        (b"", b"X" * MEBI),
    ],
    ids=["one header", "many headers", "the path", "the method"],
)
def test_a_head_without_end_is_given_up_early(place: Place, flood: tuple[bytes, bytes]) -> None:
    begun, more = flood
    before, sent = resident(), 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield begun
        for _ in range(64):
            sent += len(more)
            yield more

    with place.line() as line:
        answer = poured(line, endless())
    assert set(statuses(answer)) <= {400, 431}
    assert sent < 32 * MEBI
    assert resident() - before < 32 * MEBI
    assert place.alive()


def test_a_head_without_end_behind_a_long_poll_is_given_up_too(place: Place, tokens: Tokens) -> None:
    who = f"authorization: {tokens.header(Role.WORKER, 'w1')['authorization']}"
    body = b'{"wait_seconds": 50}'
    poll = request("/jobs/claim", who, JSON, f"content-length: {len(body)}", method="POST") + body
    began = time.monotonic()
    with place.line() as line:
        answer = poured(line, [poll, b"GET / HTTP/1.1\r\nx: ", *([b"x" * LARGEST_HEAD] * 64)])
    assert set(statuses(answer)) <= {431}
    assert time.monotonic() - began < 40


@pytest.mark.parametrize(("count", "header"), [(1, "x" * 17_000), (110, "y")])
def test_headers_beyond_the_limit_get_a_problem(place: Place, count: int, header: str) -> None:
    many = [f"x-{number}: {header}" for number in range(count)]
    assert problem_in(place.told(request(LIVE, CLOSE, *many))).status == 431


def test_requests_sent_ahead_are_answered_in_their_order(place: Place) -> None:
    sent = (request(LIVE) + request("/jobs")) * (MOST_AHEAD // 2 - 1) + request(LIVE, CLOSE)
    assert statuses(place.told(sent)) == [200, 401] * (MOST_AHEAD // 2 - 1) + [200]


def test_a_flood_of_requests_sent_ahead_is_cut_off(place: Place) -> None:
    before = resident()
    answer = place.told(*[request(LIVE) * 10_000] * 40)
    assert set(statuses(answer)) <= {200, 400}
    assert resident() - before < 64 * MEBI
    assert place.alive()


_ODD_IDS = [
    "..",
    "%2e%2e",
    "..%2f..%2fetc%2fpasswd",
    "a%2Fb",
    "a/../../tokens",
    "%00",
    "a%00b",
    "%ff%fe",
    "%ed%a0%80",
    "%0d%0aset-cookie:%20a=b",
    "'%20OR%201=1;%20DROP%20TABLE%20jobs;--",
    "%22;SELECT%20pg_sleep(10);--",
    "${jndi:ldap://a}",
    "{{7*7}}",
    "%F0%9F%90%91",
    "a" * 129,
    "a" * 8_000,
    "-",
    "%20",
]


@pytest.mark.parametrize("odd", _ODD_IDS, ids=lambda odd: odd[:40])
def test_an_id_that_is_none_is_refused(place: Place, services: Services, admin: str, odd: str) -> None:
    a_job(services, job_id="j1")
    for target in (f"/jobs/{odd}", f"/jobs/{odd}/result", f"/jobs/{odd}/logs", f"/workers/{odd}"):
        answer = place.told(request(target, admin, CLOSE))
        assert problem_in(answer).status in (404, 422), target
        assert b"set-cookie" not in answer.partition(b"\r\n\r\n")[0]
    gone = place.told(request(f"/tokens/{odd}", admin, CLOSE, method="DELETE"))
    assert problem_in(gone).status in (404, 405, 422)
    assert count_jobs(services)[JobStatus.PENDING] == 1


_ODD_QUERIES = [
    "%00",
    "%ff",
    "%ed%a0%80",
    "'%20OR%201=1--",
    "1e400",
    str(2**70),
    "-1",
    "NaN",
    "%0d%0a",
    "",
    "a" * 9_000,
]


@pytest.mark.parametrize("odd", _ODD_QUERIES, ids=lambda odd: odd[:20])
def test_an_odd_query_is_answered_clearly(place: Place, services: Services, admin: str, odd: str) -> None:
    a_job(services, job_id="j1")
    names = ("status", "type", "agent", "pool", "tag", "failure_class", "after", "limit")
    targets = [
        *(f"/jobs?{name}={odd}" for name in names),
        *(f"/jobs/j1/{what}?{name}={odd}" for what in ("logs", "events") for name in ("since", "limit")),
        *(f"/tokens?{name}={odd}" for name in ("after", "limit")),
        f"/workers?limit={odd}",
    ]
    for target in targets:
        (status,) = statuses(place.told(request(target, admin, CLOSE)))
        assert status in (200, 422), target


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /\xff\xfe HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"GET health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"GET /health/live HTTP/9.9\r\nhost: 127.0.0.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"NONSENSE / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nx: a\x00b\r\n\r\n",
        b"POST /jobs/submit HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /jobs/submit HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1e3\r\n\r\n",
        b"POST /jobs/submit HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"POST /jobs/submit HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"POST /jobs/submit HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00" * 100,
    ],
)
def test_what_is_no_http_of_ours_is_a_4xx_and_closed(place: Place, raw: bytes) -> None:
    found = statuses(place.told(raw))
    assert found
    assert all(400 <= status < 500 for status in found), found
    assert place.alive()


def test_a_request_hidden_in_the_body_of_another_is_not_served(place: Place, services: Services, admin: str) -> None:
    hidden = request("/jobs/j1/cancel", admin, method="POST")
    a_job(services, job_id="j1")
    said = (f"content-length: {len(hidden)}", "transfer-encoding: chunked")
    place.told(request("/jobs", admin, *said, method="POST") + b"0\r\n\r\n" + hidden)
    assert count_jobs(services)[JobStatus.PENDING] == 1


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "HEAD", "PATCH", "PROPFIND"])
def test_another_method_is_a_405(place: Place, admin: str, method: str) -> None:
    assert statuses(place.told(request("/jobs", admin, CLOSE, method=method))) == [405]


def test_http_1_0_is_answered_and_closed(place: Place, admin: str) -> None:
    answer = place.told(request("/jobs", admin, version="1.0"))
    assert statuses(answer) == [200]
    assert answer.endswith(b'{"jobs":[],"next":null}')


def test_an_offer_to_speak_something_else_is_declined(place: Place) -> None:
    for kind in ("websocket", "h2c"):
        upgrade = request(LIVE, "connection: upgrade, close", f"upgrade: {kind}", "sec-websocket-version: 13")
        (status,) = statuses(place.told(upgrade))
        assert status in (200, 400), kind


def test_200_slow_lines_keep_nobody_from_being_served(place: Place, admin: str) -> None:
    before = resident()
    head = request("/jobs/submit", admin, JSON, "content-length: 100000", method="POST")
    half = request(LIVE)[:-2]
    with ExitStack() as lines:
        opened = [lines.enter_context(place.line()) for _ in range(200)]
        for line, sent in zip(opened, chain.from_iterable([(b"", half, head, head + b"{")] * 50), strict=True):
            line.sendall(sent)
        assert place.alive()
        answer = place.told(request("/jobs", admin, CLOSE))
    assert statuses(answer) == [200]
    assert resident() - before < 64 * MEBI
