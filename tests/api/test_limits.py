"""X9, A3: every request is bounded, and whatever comes in, the answer is one of ours and never a 5xx."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from herdsman.access.rules import Role
from herdsman.server.limits import Limits
from herdsman.wire import Request
from tests.api.calling import Client
from tests.api.conftest import Build, Tokens
from tests.support.apps import an_app

MEBI = 1_048_576
JSON = {"content-type": "application/json"}


def submitted(client: Client, tokens: Tokens, content: Any, **headers: str) -> Any:
    given = {**tokens.header(Role.SUBMITTER), **JSON, **headers}
    return client.post("/jobs/submit", content=content, headers=given)


def test_a_body_of_100_mb_is_refused_by_its_length(client: Client, tokens: Tokens) -> None:
    answer = submitted(client, tokens, b"[]", **{"content-length": str(100 * MEBI)})
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_body_of_100_mb_without_a_length_is_read_no_further_than_its_limit(client: Client, tokens: Tokens) -> None:
    sent = 0

    async def streamed() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += MEBI
            yield b" " * MEBI

    assert submitted(client, tokens, streamed()).status_code == 413
    assert sent <= 4 * MEBI


def test_without_a_token_next_to_nothing_of_a_body_is_read(client: Client) -> None:
    sent = 0

    async def streamed() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 65_536
            yield b" " * 65_536

    answer = client.post("/jobs/submit", content=streamed(), headers=JSON)
    assert answer.status_code == 401
    assert answer.headers["connection"] == "close"
    assert sent <= 5 * 65_536


def test_a_batch_may_be_larger_than_a_job(client: Client, tokens: Tokens) -> None:
    body = json.dumps({"jobs": [{"type": "demo", "payload": "x" * 500_000}] * 4}).encode()
    header = {**tokens.header(Role.SUBMITTER), **JSON}
    assert client.post("/jobs/submit/batch", content=body, headers=header).status_code in (200, 201)
    assert client.post("/jobs/submit", content=body, headers=header).status_code == 413


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"type": "demo", "payload": NaN}', 422),
        (b'{"type": "demo", "payload": -Infinity}', 422),
        (b'{"type": "demo", "payload": 1e999}', 422),
        (b'{"type": "demo", "payload": "NaN and Infinity"}', 201),
        (b'{"type": "demo", "payload": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", 422),
        (b'{"type": "demo", "payload": ' + b"[" * 100_000, 422),
        (b'{"type": "demo", "payload": "' + b"[" * 10_000 + b'"}', 201),
        (b'{"type": "demo", "payload": ' + b"[" * 33 + b"]" * 33 + b"}", 422),
        (b'{"type": "demo", "payload": ' + b"[" * 32 + b"]" * 32 + b"}", 201),
        (b'{"type": "demo", "payload": "\\u0000"}', 422),
        (b'{"type": "demo\\u0000"}', 422),
        (b'{"type": "demo", "payload": "\\ud800"}', 422),
        (b'{"type": "\\ud800"}', 422),
        (b'{"type": "demo", "payload": "\xff\xfe"}', 422),
        (b'{"type": "demo", "payload": ' + b"9" * 10_000 + b"}", 422),
        (b'{"type": "demo", "payload": 9007199254740992}', 422),
        (b'{"type": "demo", "payload": 9007199254740991}', 201),
        (b'{"type": "demo", "type": "demo"}', 422),
        (b'{"type": "demo", "payload": {"a": 1, "a": 1}}', 422),
        (b'{"type": "demo", "typo": 1}', 422),
        (b'{"type": "demo"', 422),
        (b"null", 422),
        (b"[]", 422),
        (b"\x00", 422),
    ],
)
def test_odd_json_gets_a_clear_answer(client: Client, tokens: Tokens, body: bytes, status: int) -> None:
    answer = submitted(client, tokens, body)
    assert answer.status_code == status, answer.text
    if status >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status


def test_compressed_bodies_are_refused(client: Client, tokens: Tokens) -> None:
    assert submitted(client, tokens, b"{}", **{"content-encoding": "gzip"}).status_code == 415
    assert submitted(client, tokens, b'{"type":"demo"}', **{"content-encoding": "identity"}).status_code == 201


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-www-form-urlencoded", "application/jsonx"])
def test_only_json_is_taken(client: Client, tokens: Tokens, kind: str) -> None:
    assert submitted(client, tokens, b'{"type":"demo"}', **{"content-type": kind}).status_code == 415


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/x+json"])
def test_json_by_any_of_its_names_is_taken(client: Client, tokens: Tokens, kind: str) -> None:
    assert submitted(client, tokens, b'{"type":"demo"}', **{"content-type": kind}).status_code == 201


@pytest.mark.parametrize("host", ["evil.example", "", "127.0.0.1.evil.example", "localhost@evil.example"])
def test_another_host_is_refused(client: Client, host: str) -> None:
    assert client.get("/health/live", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "[::1]"])
def test_the_machine_s_own_names_are_taken(client: Client, host: str) -> None:
    assert client.get("/health/live", headers={"host": host}).status_code == 200


def test_a_configured_host_is_taken(build: Build) -> None:
    named = build(limits=Limits(hosts=frozenset({"Herd.example"})))
    with Client(an_app(named)) as client:
        assert client.get("/health/live", headers={"host": "herd.example:443"}).status_code == 200


def test_huge_and_many_headers_are_refused(client: Client) -> None:
    assert client.get("/health/live", headers={"x-big": "x" * 20_000}).status_code == 431
    assert client.get("/health/live", headers={f"x-{n}": "1" for n in range(120)}).status_code == 431


def test_every_answer_tells_browsers_to_be_careful(client: Client, tokens: Tokens) -> None:
    answers = [
        client.get("/health/live"),
        client.get("/leader"),
        client.get("/nothing", headers=tokens.header(Role.VIEWER)),
        client.get("/health/live", headers={"host": "evil.example", "origin": "http://evil.example"}),
    ]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers


def test_a_path_or_method_that_is_not_there_is_a_problem_too(client: Client, tokens: Tokens) -> None:
    header = tokens.header(Role.VIEWER)
    for answer, status in (
        (client.get("/nothing", headers=header), 404),
        (client.put("/jobs", headers=header), 405),
    ):
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"


def test_what_we_did_not_expect_says_nothing_about_us(
    client: Client, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_given: object, **_named: object) -> None:
        raise RuntimeError("secret-detail in /some/file")

    header = tokens.header(Role.ADMIN)
    monkeypatch.setattr("herdsman.access.commands.list_tokens", broken)
    with capture_logs() as logs:
        answer = client.get("/tokens", headers=header)
    assert [(each["event"], each["path"]) for each in logs] == [("api.unexpected", "/tokens")]
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    assert "secret-detail" not in answer.text


def test_a_body_that_trickles_is_given_up(build: Build, tokens: Tokens) -> None:
    quick = build(limits=Limits(body_deadline=timedelta(milliseconds=50)))

    async def trickled() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30)

    with Client(an_app(quick)) as client:
        header = {**tokens.header(Role.SUBMITTER), **JSON}
        assert client.post("/jobs/submit", content=trickled(), headers=header).status_code == 408


def requests(kind: type[Request] = Request) -> Iterator[type[Request]]:
    for each in kind.__subclasses__():
        yield each
        yield from requests(each)


@pytest.mark.parametrize(
    ("model", "field"),
    [
        pytest.param(model, name, id=f"{model.__name__}.{name}")
        for model in dict.fromkeys(requests())
        for name, field in model.model_fields.items()
        if "tuple[" in str(field.annotation) or "list[" in str(field.annotation)
    ],
)
def test_a_list_of_mistakes_is_not_made_for_a_list_of_values(model: type[Request], field: str) -> None:
    """Each mistake costs far more than the three bytes that made it: the first is enough."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate({field: [{}] * 2_000})
    assert caught.value.error_count() < 100


def test_thousands_of_mistakes_are_counted_not_listed(client: Client, tokens: Tokens) -> None:
    body = json.dumps({"type": "demo", **{f"unknown_{number}": 1 for number in range(5_000)}}).encode()
    answer = submitted(client, tokens, body)
    assert answer.status_code == 422
    assert "5,000 fields are wrong or not known here" in answer.json()["detail"]
