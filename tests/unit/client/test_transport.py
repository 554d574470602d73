"""One place sends requests: it repeats what may be repeated, gives up in time, and trusts no stranger."""

import json
from collections.abc import Iterator

import httpx
import pytest

from herdsman.client import Client
from herdsman.client import transport as sending
from herdsman.errors import (
    Conflict,
    Forbidden,
    HerdsmanError,
    InvalidRequest,
    NotFound,
    StaleWrite,
    StoreUnavailable,
    TooLarge,
    TooMany,
    Unauthenticated,
    Unreachable,
)
from tests.unit.client.local_server import URL, Served, a_job, page, refused, said, submitted

CUT = httpx.ReadError("cut")


def test_the_token_travels_in_one_header_and_in_no_message() -> None:
    served = Served(submitted(), page())
    client = served.client()
    client.submit("image")
    assert served.requests[0].headers["Authorization"] == "Bearer secret-token"
    with pytest.raises(Unreachable) as raised:
        client.submit("image")
    assert "secret-token" not in f"{raised.value!r} {client!r}"


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "schlüssel"])
def test_a_token_that_would_break_the_header_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(InvalidRequest, match="copy it again") as raised:
        Client(URL, token)
    assert not token or token not in str(raised.value)


@pytest.mark.parametrize("url", ["", "herdsman:80", "ftp://host", "http://", "http://me:pw@host", "http://h?a=b"])
def test_a_url_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidRequest, match="URL of the server"):
        Client(url)


@pytest.mark.parametrize("broken", [CUT, page(502), page(503), page(504), refused(503, "store-unavailable")])
def test_a_request_that_may_not_have_arrived_is_sent_again_as_the_same_job(
    broken: httpx.Response | Exception,
) -> None:
    served = Served(broken, broken, submitted())
    served.client().submit("image")
    assert len(served.requests) == 3
    assert len({body["job_id"] for body in served.bodies}) == 1


def test_repeating_ends_with_the_patience() -> None:
    served = Served(CUT)
    with pytest.raises(Unreachable, match="got no answer: ReadError"):
        served.client(patience=10).submit("image")
    assert 3 < len(served.requests) < 30
    assert sum(served.clock.slept) < 10
    assert max(served.clock.slept) <= 5


def test_without_patience_a_request_is_sent_once() -> None:
    served = Served(CUT)
    with pytest.raises(Unreachable):
        served.client(patience=0).submit("image")
    assert len(served.requests) == 1


def test_a_busy_server_is_left_alone_for_as_long_as_it_asks() -> None:
    served = Served(refused(429, "too-many", headers={"Retry-After": "7"}), submitted())
    served.client().submit("image")
    assert 7 <= served.clock.slept[0] < 8


def test_a_wait_longer_than_the_patience_is_told_instead_of_waited() -> None:
    served = Served(refused(429, "too-many", headers={"Retry-After": "3600"}))
    with pytest.raises(TooMany) as raised:
        served.client().submit("image")
    assert raised.value.retry_after is not None
    assert raised.value.retry_after.total_seconds() == 3600
    assert served.clock.slept == []


@pytest.mark.parametrize("after", ["nan", "inf", "-1", "soon", "Wed, 21 Oct 2026 07:28:00 GMT", "1e999"])
def test_a_wait_that_makes_no_sense_is_ignored(after: str) -> None:
    served = Served(refused(429, "too-many", headers={"Retry-After": after}), submitted())
    served.client().submit("image")
    assert served.clock.slept[0] < 1


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "unauthenticated", Unauthenticated),
        (403, "forbidden", Forbidden),
        (404, "not-found", NotFound),
        (409, "conflict", Conflict),
        (409, "stale", StaleWrite),
        (413, "too-large", TooLarge),
        (422, "invalid-request", InvalidRequest),
        (500, "internal", StoreUnavailable),
        (418, "of-a-newer-server", InvalidRequest),
    ],
)
def test_a_refusal_is_the_same_error_here_and_is_not_repeated(
    status: int, code: str, kind: type[HerdsmanError]
) -> None:
    served = Served(refused(status, code, "this is why"))
    with pytest.raises(kind, match="this is why"):
        served.client().submit("image")
    assert len(served.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        page(200),
        page(404),
        said({"detail": "Not Found"}, 404),
        said({"type": "about:blank", "title": "t", "status": 404, "detail": "d"}, 404),
        said({"ok": True}),
        said([]),
        httpx.Response(302, headers={"Location": "http://elsewhere/login"}),
        httpx.Response(204),
        httpx.Response(304),
        httpx.Response(200, content=b"\xff\xfe", headers={"Content-Type": "application/json"}),
    ],
)
def test_what_is_not_herdsman_is_named_with_its_url_and_is_never_taken_for_an_answer(
    answer: httpx.Response,
) -> None:
    served = Served(answer)
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:1/jobs/job-1 was answered with") as raised:
        served.client().job("job-1").look()
    assert len(served.requests) == 1
    assert "elsewhere/login" in str(raised.value) or answer.status_code != 302


def test_an_answer_without_end_is_given_up_and_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "LARGEST_ANSWER", 1000)
    served = Served(said(a_job(progress_note="x" * 2000)))
    with pytest.raises(Unreachable, match="still being answered"):
        served.client().job("job-1").look()
    assert len(served.requests) == 1


def in_pieces(served: Served, *pieces: tuple[float, bytes]) -> httpx.Response:
    """Each comes so many seconds after the one before."""

    def arriving() -> Iterator[bytes]:
        for seconds, piece in pieces:
            served.clock.now += seconds
            yield piece

    return httpx.Response(200, content=arriving(), headers={"Content-Type": "application/json"})


@pytest.mark.parametrize("late", [0.0, 11.0, 3600.0])
def test_an_answer_that_is_whole_but_late_is_an_answer(late: float) -> None:
    """This process may have stood still meanwhile; what the answer brings was committed."""
    body = json.dumps(a_job(progress_note="x" * 2000)).encode()
    served = Served(submitted())
    served.answers[0] = in_pieces(served, (late, body[:700]), (0, body[700:1400]), (0, body[1400:]))
    assert served.client(timeout=10).job("job-1").look().progress_note == "x" * 2000
    assert len(served.requests) == 1


def test_an_answer_that_drips_for_ever_is_given_up() -> None:
    served = Served(submitted())
    served.answers[0] = in_pieces(served, *[(0.5, b" ")] * 1000)
    with pytest.raises(Unreachable, match="still being answered after 2"):
        served.client(timeout=10).job("job-1").look()
    assert served.clock.now < 100 + 10 + 3


def test_every_request_has_a_timeout() -> None:
    served = Served(said(a_job("done")))
    served.client(timeout=3).job("job-1").look()
    limits = served.requests[0].extensions["timeout"]
    assert set(limits) == {"connect", "read", "write", "pool"}
    assert set(limits.values()) == {3.0}


def test_the_version_of_the_server_is_handed_on_once_and_again_when_it_changes() -> None:
    seen: list[str] = []
    versions = ("9.9", "9.9", "10.0", "9.9")
    served = Served(*(said(a_job(), headers={"Herdsman-Version": each}) for each in versions))
    client = served.client(on_version=seen.append)
    for _ in versions:
        client.job("job-1").look()
    assert seen == ["9.9", "10.0", "9.9"]


@pytest.mark.parametrize("job_id", ["../tokens", "a/b", "", "a b", ".", "x" * 129, "a\nb"])
def test_an_id_that_is_a_path_asks_nothing(job_id: str) -> None:
    served = Served(said(a_job()))
    with pytest.raises(InvalidRequest, match="job_id"):
        served.client().job(job_id).look()
    assert served.requests == []


def test_a_server_behind_a_prefix_is_asked_there() -> None:
    served = Served(said(a_job()))
    transport = httpx.MockTransport(served)
    Client("http://host/fleet/", clock=served.clock, transport=transport).job("a:b@c+d").look()
    assert served.paths == ["GET /fleet/jobs/a%3Ab%40c%2Bd"]
    assert "Authorization" not in served.requests[0].headers
