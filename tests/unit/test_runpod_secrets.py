"""Keys and the environment of pods: in no log, no error and no repr (X5)."""

import json
import logging
import traceback
from collections.abc import Callable, Iterator

import httpx
import pytest
import structlog
from pydantic import SecretStr

from herdsman.errors import HerdsmanError
from herdsman.fleet.model import InstanceRef
from herdsman.ports import SystemClock
from herdsman.providers.runpod import RunpodProvider
from herdsman.testing.clocks import ManualClock
from herdsman.testing.fakes.runpod import FakeRunpod
from tests.support.runpod import KEY, a_request, some_options

TOKEN = "canary-bootstrap-7f3a9c"
EXTRA = "canary-extra-51be02"
SECRETS = (KEY, TOKEN, EXTRA)

Handler = Callable[[httpx.Request], httpx.Response]


def echo(status: int, kind: str) -> Handler:
    """A server that repeats what it was sent."""

    def answer(request: httpx.Request) -> httpx.Response:
        seen = f"{request.headers['authorization']} {request.content.decode()}"
        problem = {"title": seen, "status": status, "detail": seen, "errors": [seen]}
        page = f"<title>{seen}</title>"
        content = json.dumps(problem) if "json" in kind else page
        return httpx.Response(status, content=content, headers={"content-type": kind})

    return answer


def broken(error: type[httpx.TransportError]) -> Handler:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error(f"{request.headers['authorization']} {request.content!r}")

    return answer


HANDLERS: dict[str, Handler] = {
    **{str(status): echo(status, "application/problem+json") for status in (400, 401, 403, 404, 422, 429, 500)},
    "capacity": lambda request: httpx.Response(
        400,
        json={"title": "", "status": 400, "detail": f"not enough disk space {request.content.decode()}"},
    ),
    "a page": echo(502, "text/html"),
    "nonsense": lambda request: httpx.Response(201, content=request.content),
    "a protocol error": broken(httpx.RemoteProtocolError),
}


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS.keys())
def test_no_error_and_no_log_shows_a_secret(
    handler: Handler, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    options = some_options(environment={"EXTRA": SecretStr(EXTRA)})
    provider = RunpodProvider(options, ManualClock(), transport=httpx.MockTransport(handler))
    with structlog.testing.capture_logs() as events, pytest.raises(HerdsmanError) as raised:
        provider.spawn(a_request(TOKEN=TOKEN))
    shown = [str(raised.value), repr(raised.value), repr(events), caplog.text, *capsys.readouterr()]
    shown.extend(traceback.format_exception(raised.value))
    assert not [secret for secret in SECRETS for text in shown if secret in text]


def test_no_object_shows_a_secret() -> None:
    options = some_options(environment={"EXTRA": SecretStr(EXTRA)})
    provider = RunpodProvider(options, ManualClock())
    shown = "".join(f"{each!r} {each}" for each in parts(provider, depth=4))
    provider.close()
    assert "Headers(" in shown, "the header with the key was not even looked at"
    assert not [secret for secret in SECRETS if secret in shown]


def parts(thing: object, depth: int) -> Iterator[object]:
    """The thing, and whatever of ours or of httpx it holds."""
    yield thing
    for each in getattr(thing, "__dict__", {}).values() if depth else ():
        if type(each).__module__.startswith(("herdsman", "httpx")):
            yield from parts(each, depth - 1)


def test_a_real_exchange_logs_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """Also not in the logs of the libraries, at their most talkative."""
    caplog.set_level(logging.DEBUG)
    options = some_options(environment={"EXTRA": SecretStr(EXTRA)})
    with FakeRunpod(key=KEY) as fake, structlog.testing.capture_logs() as events:
        provider = RunpodProvider(
            some_options(api_url=fake.url, environment=options.environment),
            SystemClock(),
            transport=httpx.HTTPTransport(),
        )
        instance = provider.spawn(a_request(TOKEN=TOKEN))
        provider.find(instance.ref)
        provider.list_instances()
        provider.terminate(InstanceRef(instance.ref))
        provider.close()
        ledger = json.dumps(fake.ledger.shown(), default=str)
    assert "/v2/pods" in caplog.text
    assert not [secret for secret in SECRETS if secret in caplog.text + repr(events) + repr(instance) + ledger]
