"""Each answer of Runpod becomes one error, named by who must act."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

import httpx
import pytest

from herdsman.errors import (
    CapacityUnavailable,
    HerdsmanError,
    ProviderRejected,
    ProviderUnavailable,
    SpawnUnknown,
)
from herdsman.fleet.model import InstanceRef
from herdsman.providers.runpod import RunpodProvider
from herdsman.providers.runpod.answers import NO_CAPACITY
from herdsman.testing.clocks import ManualClock
from tests.support.runpod import KEY, a_request, some_options

Handler = Callable[[httpx.Request], httpx.Response]
REF = InstanceRef("pod1")
PAGE = "<html><head><title>Attention Required!</title></head><body>blocked</body></html>"


def a_provider(handler: Handler) -> RunpodProvider:
    return RunpodProvider(some_options(), ManualClock(), transport=httpx.MockTransport(handler))


def answering(status: int, detail: str = "no", **headers: str) -> Handler:
    problem = {"title": "t", "status": status, "detail": detail}
    headers = {"content-type": "application/problem+json", "x-request-id": "req-7", **headers}
    return lambda _: httpx.Response(status, content=json.dumps(problem), headers=headers)


def page(status: int) -> Handler:
    return lambda _: httpx.Response(status, html=PAGE, headers={"x-request-id": "req-7"})


def raising(error: Exception) -> Handler:
    def handler(_: httpx.Request) -> httpx.Response:
        raise error

    return handler


def failure(handler: Handler, verb: str) -> HerdsmanError:
    provider = a_provider(handler)
    calls: dict[str, Callable[[], object]] = {
        "spawn": lambda: provider.spawn(a_request()),
        "find": lambda: provider.find(REF),
        "terminate": lambda: provider.terminate(REF),
        "list": provider.list_instances,
        "logs": lambda: provider.logs(REF, 10),
    }
    with pytest.raises(HerdsmanError) as raised:
        calls[verb]()
    return raised.value


OTHERS = ("find", "terminate", "list", "logs")


@pytest.mark.parametrize("verb", ["spawn", *OTHERS])
@pytest.mark.parametrize("status", [400, 401, 402, 403, 409, 410, 422])
def test_what_a_person_must_mend_is_rejected(status: int, verb: str) -> None:
    error = failure(answering(status, "so it is"), verb)
    assert isinstance(error, ProviderRejected)
    assert f"runpod answered {status} to " in str(error)
    assert str(error).endswith(": so it is (request req-7)")


@pytest.mark.parametrize("verb", ["spawn", "list"])
def test_a_404_where_nothing_can_be_missing_is_rejected(verb: str) -> None:
    assert isinstance(failure(answering(404), verb), ProviderRejected)


def test_a_404_of_the_api_means_that_there_is_no_such_pod() -> None:
    provider = a_provider(answering(404, "pod not found"))
    assert provider.find(REF) is None
    assert provider.logs(REF, 10) == []
    provider.terminate(REF)


@pytest.mark.parametrize("verb", OTHERS)
def test_a_404_of_somebody_else_proves_nothing(verb: str) -> None:
    assert type(failure(page(404), verb)) is ProviderUnavailable


@pytest.mark.parametrize("phrase", NO_CAPACITY)
def test_empty_shelves_are_told_from_a_wrong_request(phrase: str) -> None:
    error = failure(answering(400, f"Sorry, {phrase.upper()}."), "spawn")
    assert type(error) is CapacityUnavailable
    assert "runpod has none of: NVIDIA L4" in str(error)


@pytest.mark.parametrize("verb", ["spawn", *OTHERS])
@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "12"}, 12),
        ({"retry-after": "12", "ratelimit": '"minute";r=0;t=9, "hour";r=0;t=1812, "day";r=3;t=45012'}, 1812),
        ({"ratelimit": '"minute";r=5;t=9'}, None),
        ({"retry-after": "99999999"}, 86400),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "٣"}, None),
        ({}, None),
    ],
)
def test_too_many_requests_say_how_long_to_wait(verb: str, headers: dict[str, str], wait: int | None) -> None:
    raw = {name.encode(): value.encode() for name, value in headers.items()}
    error = failure(lambda _: httpx.Response(429, content=b"", headers=raw), verb)
    assert type(error) is ProviderUnavailable
    assert error.retry_after == (None if wait is None else timedelta(seconds=wait))


UNCLEAR: dict[str, Handler] = {
    "500": answering(500),
    "503": answering(503),
    "408": answering(408),
    "a 400 that passes on a failure inside": answering(400, "Something went wrong. Please try again later."),
    "html 403": page(403),
    "html 400": page(400),
    "html 502": page(502),
    "a redirect": lambda _: httpx.Response(302, headers={"location": "https://elsewhere.example"}),
    "a read timeout": raising(httpx.ReadTimeout("slow")),
    "a write timeout": raising(httpx.WriteTimeout("slow")),
    "a cut": raising(httpx.RemoteProtocolError("disconnected")),
    "a reset": raising(httpx.ReadError("reset")),
}


@pytest.mark.parametrize("handler", UNCLEAR.values(), ids=UNCLEAR.keys())
def test_an_unclear_create_is_unknown_and_anything_else_unavailable(handler: Handler) -> None:
    assert type(failure(handler, "spawn")) is SpawnUnknown
    assert {type(failure(handler, verb)) for verb in OTHERS} == {ProviderUnavailable}


@pytest.mark.parametrize("verb", ["spawn", *OTHERS])
@pytest.mark.parametrize(
    "error", [httpx.ConnectError("refused"), httpx.ConnectTimeout("silent"), httpx.PoolTimeout("busy")]
)
def test_what_was_never_sent_has_started_nothing(error: Exception, verb: str) -> None:
    assert type(failure(raising(error), verb)) is ProviderUnavailable


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"null",
        b'{"id": "x"}',
        b'{"id": 7, "name": "n", "status": "RUNNING"}',
        b"[" * 100_000,
    ],
)
def test_a_success_that_makes_no_sense_is_unclear(body: bytes) -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        return httpx.Response(201, content=body)

    assert type(failure(handler, "spawn")) is SpawnUnknown
    assert type(failure(handler, "find")) is ProviderUnavailable
    assert type(failure(handler, "list")) is ProviderUnavailable


def test_a_pod_under_another_name_is_unclear() -> None:
    pod = {"id": "p", "name": "gpu--test--other", "status": "PROVISIONING"}
    assert type(failure(lambda _: httpx.Response(201, json=pod), "spawn")) is SpawnUnknown


def test_a_page_is_named_by_its_title_only() -> None:
    said = str(failure(page(403), "list"))
    assert "text/html" in said
    assert "titled Attention Required!" in said
    assert "<body>" not in said


def test_a_refusal_is_one_short_line_without_secrets() -> None:
    detail = f"line\r\none \x00 {KEY} " + "x" * 10_000
    said = str(failure(answering(422, detail), "list"))
    assert KEY not in said
    assert said.isprintable()
    assert len(said) < 600


def test_the_errors_of_a_body_are_shown() -> None:
    problem = {"title": "t", "status": 422, "detail": "no", "errors": ["$: additional properties 'bogus'"]}
    error = failure(lambda _: httpx.Response(422, json=problem), "spawn")
    assert "$: additional properties 'bogus'" in str(error)


@pytest.mark.parametrize("ref", ["", ".", "..", "a/b", "../network-volumes/v", "a?b", "x" * 101, "ä"])
def test_what_is_no_id_is_never_put_into_a_path(ref: str) -> None:
    asked: list[httpx.Request] = []
    provider = a_provider(lambda request: asked.append(request) or httpx.Response(204))
    for call in (provider.find, provider.terminate, partial(provider.logs, lines=5)):
        with pytest.raises(ProviderRejected, match="is not the id of a pod"):
            call(InstanceRef(ref))
    assert asked == []


def test_an_answer_without_end_is_left() -> None:
    def drip() -> Iterator[bytes]:
        while True:
            clock.advance(timedelta(seconds=1))
            yield b" "

    clock = ManualClock()
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=drip()))
    provider = RunpodProvider(some_options(), clock, transport=transport)
    with pytest.raises(ProviderUnavailable, match="to the end"):
        provider.list_instances()
