"""Events as they happen: all of them, in order, resumed where a client left off, and no slow client in the way."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.errors import Overloaded, StoreUnavailable, TooMany
from herdsman.jobs.commands import cancel_job, last_event
from herdsman.jobs.model import AuditEntry
from herdsman.server import event_stream
from herdsman.server.event_stream import Streams, told
from herdsman.server.limits import Limits
from herdsman.server.state import ServerState
from tests.api.calling import HERE, Client
from tests.api.conftest import Build, Tokens
from tests.support.apps import an_app
from tests.support.builders import a_job, a_worker

PATIENCE = 30


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "LOOK_S", 0.02)


@pytest.fixture
def hub(services: Services, state: ServerState) -> Streams:
    return Streams(services, state.stopping)


def everything(_entry: AuditEntry) -> bool:
    return True


async def soon(told: AsyncIterator[str], *, wanted: str = "data:") -> str:
    """The next piece that says this."""
    async with asyncio.timeout(PATIENCE):
        async for text in told:
            if wanted in text:
                return text
    raise AssertionError(f"it ended without {wanted!r}")


def objects(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: "))["object_id"] for line in lines]


async def closed(stream: AsyncIterator[str]) -> None:
    await stream.aclose()  # type: ignore[attr-defined]  # it is a generator


def in_thread(work: Callable[[], object]) -> Coroutine[Any, Any, object]:
    return asyncio.to_thread(work)


def test_what_happens_is_told(services: Services, hub: Streams) -> None:
    async def scene() -> None:
        stream = told(hub, everything, None)
        assert (await anext(stream)).startswith("retry:")
        first = asyncio.create_task(soon(stream))
        while hub.count == 0:  # noqa: ASYNC110  (it is opened in a thread)
            await asyncio.sleep(0.005)
        await in_thread(lambda: a_job(services, job_id="new"))
        assert objects(await first) == ["new"]
        await closed(stream)
        assert hub.count == 0

    a_job(services, job_id="old")
    asyncio.run(scene())


def test_a_client_that_comes_back_misses_nothing_and_hears_nothing_twice(services: Services, hub: Streams) -> None:
    async def scene() -> None:
        stream = told(hub, everything, 1)
        heard = objects(await soon(stream))
        await in_thread(lambda: a_job(services, job_id="j4"))
        while len(heard) < 3:
            heard += objects(await soon(stream))
        assert heard == ["j2", "j3", "j4"]
        await closed(stream)

    for name in ("j1", "j2", "j3"):
        a_job(services, job_id=name)
    asyncio.run(scene())


def test_what_happens_between_the_past_and_the_present_is_told_once(
    services: Services, hub: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = hub.open

    def late(*asked: Any) -> Any:
        a_job(services, job_id="between")
        return plain(*asked)

    monkeypatch.setattr(hub, "open", late)

    async def scene() -> None:
        stream = told(hub, everything, 0)
        heard = objects(await soon(stream)) + objects(await soon(stream))
        await in_thread(lambda: a_job(services, job_id="after"))
        assert heard + objects(await soon(stream)) == ["before", "between", "after"]
        await closed(stream)

    a_job(services, job_id="before")
    asyncio.run(scene())


def test_a_long_past_is_told_in_pages(services: Services, hub: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "PAGE", 3)

    async def scene() -> None:
        stream = told(hub, everything, 0)
        heard: list[str] = []
        while len(heard) < 10:
            heard += objects(await soon(stream))
        assert heard == names
        await closed(stream)

    names = [a_job(services, job_id=f"j{number}") for number in range(10)]
    asyncio.run(scene())


def test_only_what_is_wanted_is_told_but_the_number_goes_on(services: Services, hub: Streams) -> None:
    async def scene() -> None:
        stream = told(hub, lambda entry: entry.kind == "worker", 0)
        text = await soon(stream)
        assert objects(text) == ["w1", "w1"], "registered, then active"
        assert text.endswith(f"id: {last_event(services)}\n\n")
        await closed(stream)

    a_worker(services, "w1")
    a_job(services)
    asyncio.run(scene())


def test_a_client_that_falls_behind_is_cut_off_and_told_to_come_back(
    services: Services, hub: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "ROOM", 3)

    async def scene() -> None:
        slow, other = (hub.open(everything, asyncio.get_running_loop()) for _ in range(2))
        heard = 0
        async with asyncio.timeout(PATIENCE):
            for _ in range(5):
                await in_thread(lambda: a_job(services))
                await other.news.wait()
                other.news.clear()
                heard += len(other.events)
                other.events.clear()
        assert (heard, other.cut_off, slow.cut_off) == (5, False, True)
        assert len(slow.events) == 3, "what it could still take"
        assert [text async for text in event_stream.live(slow)][-1] == event_stream.CUT_OFF
        for each in (slow, other):
            hub.close(each)

    asyncio.run(scene())


def test_a_silent_stream_is_kept_alive(hub: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.01)

    async def scene() -> None:
        stream = told(hub, everything, None)
        assert await soon(stream, wanted="still here")
        await closed(stream)

    asyncio.run(scene())


def test_streams_end_when_the_server_stops(hub: Streams, state: ServerState) -> None:
    async def scene() -> None:
        stream = told(hub, everything, None)
        await anext(stream)
        rest = asyncio.create_task(soon(stream, wanted=event_stream.STOPPING))
        while hub.count == 0:  # noqa: ASYNC110  (it is opened in a thread)
            await asyncio.sleep(0.005)
        state.stopping.set()
        await rest
        assert [text async for text in stream] == []

    asyncio.run(scene())


def test_one_look_serves_all_streams_and_none_is_taken_when_nobody_listens(
    services: Services, hub: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    plain = event_stream.read_events

    def counted(*arguments: Any, **named: Any) -> Any:
        looks.append(threading.current_thread().name)
        return plain(*arguments, **named)

    monkeypatch.setattr(event_stream, "read_events", counted)

    async def scene() -> None:
        opened = [hub.open(everything, asyncio.get_running_loop()) for _ in range(50)]
        await in_thread(lambda: a_job(services, job_id="new"))
        async with asyncio.timeout(PATIENCE):
            for each in opened:
                await each.news.wait()
        assert all([event.entry.object_id for event in each.events] == ["new"] for each in opened)
        for each in opened:
            hub.close(each)
        async with asyncio.timeout(PATIENCE):
            while hub.looking:  # noqa: ASYNC110  (the thread does it)
                await asyncio.sleep(0.005)

    asyncio.run(scene())
    assert set(looks) == {"events"}


def test_the_past_is_read_once_for_all_who_want_it(
    services: Services, hub: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever in it they begin, and no more than a few pages at a time: the threads are others' too."""
    monkeypatch.setattr(event_stream, "PAGE", 5)
    reads: list[int] = []
    at_once, most = 0, 0
    plain = event_stream.read_events

    def counted(asked: Services, after: int, **how: Any) -> Any:
        nonlocal at_once, most
        reads.append(after)
        at_once += 1
        most = max(most, at_once)
        found = plain(asked, after, **how)
        at_once -= 1
        return found

    async def heard(since: int) -> list[str]:
        stream = told(hub, everything, since)
        found: list[str] = []
        while len(found) < 40 - since:
            found += objects(await soon(stream))
        await closed(stream)
        return found

    async def scene() -> None:
        found = await asyncio.gather(*(heard(since) for since in range(30)))
        assert found == [names[since:] for since in range(30)]

    names = [a_job(services, job_id=f"j{number}") for number in range(40)]
    monkeypatch.setattr(event_stream, "read_events", counted)
    asyncio.run(scene())
    pages = [after for after in reads if after < 40]
    assert sorted(pages) == list(range(0, 40, 5)), "each page once"
    assert most <= event_stream.MOST_READING + 1, "and the thread that looks for news"


def test_streams_are_bounded_by_token_by_address_and_in_all(services: Services, state: ServerState) -> None:
    limits = Limits(streams=5, streams_per_token=2, streams_per_address=3)
    hub = Streams(services, state.stopping, limits)
    with ExitStack() as places:

        def admit(token: str, address: str) -> None:
            places.enter_context(hub.admitted(token, address))

        admit("t1", "a1")
        admit("t1", "a2")
        with pytest.raises(TooMany, match=r"this token has 2 .* API_MAX_STREAMS_PER_TOKEN") as refused:
            admit("t1", "a3")
        assert (refused.value.code, refused.value.retry_after) == ("streams", timedelta(seconds=30))
        admit("t2", "a1")
        admit("t3", "a1")
        with pytest.raises(TooMany, match=r"this address has 3 .* API_MAX_STREAMS_PER_ADDRESS"):
            admit("t4", "a1")
        admit("t4", "a4")
        with pytest.raises(Overloaded, match=r"this server has 5 .* API_MAX_STREAMS"):
            admit("t5", "a5")
    with hub.admitted("t1", "a1"), hub.admitted("t1", "a1"):
        pass


def test_over_http_one_stream_too_many_is_429_and_a_closed_one_makes_room(
    build: Build, tokens: Tokens, services: Services
) -> None:
    app = an_app(build(limits=Limits(streams_per_token=1)))
    viewer = tokens.header(Role.VIEWER)
    a_job(services)

    async def scene() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as other:

            async def too_many(text: str) -> bool:
                if "data:" in text and not answers:
                    answers.append(await other.get("/events", headers=viewer))
                return bool(answers)

            answers: list[httpx.Response] = []
            await listened(app, "since=0", viewer, too_many)
        return answers[0]

    refused = asyncio.run(scene())
    assert (refused.status_code, refused.json()["code"]) == (429, "streams")
    assert int(refused.headers["retry-after"]) == 30
    text = asyncio.run(listened(app, "since=0", viewer, lambda text: "data:" in text))
    assert "data:" in text


def test_a_database_that_is_away_is_waited_for(
    services: Services, hub: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, failures = event_stream.read_events, [StoreUnavailable("away")] * 3

    def sometimes(*arguments: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return plain(*arguments, **named)

    monkeypatch.setattr(event_stream, "read_events", sometimes)

    async def scene() -> None:
        opened = hub.open(everything, asyncio.get_running_loop())
        await in_thread(lambda: a_job(services))
        async with asyncio.timeout(PATIENCE):
            await opened.news.wait()
        hub.close(opened)

    asyncio.run(scene())
    assert not failures


def test_a_client_that_comes_while_the_database_is_away_is_told_to_come_back(
    hub: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_arguments: Any, **_named: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(event_stream, "read_events", away)
    monkeypatch.setattr(event_stream, "last_event", away)

    async def scene(since: int | None) -> list[str]:
        return [text async for text in told(hub, everything, since)]

    for since in (0, None):
        assert asyncio.run(scene(since))[-1] == event_stream.AWAY
    assert hub.count == 0


async def listened(
    app: FastAPI, query: str, headers: dict[str, str], enough: Callable[[str], bool | Awaitable[bool]]
) -> str:
    """What a client hears over HTTP until it has heard enough and hangs up."""
    body, heard, hung_up = bytearray(), asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not heard.is_set():
            heard.set()
            return {"type": "http.request", "body": b"", "more_body": False}
        await hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200
        body.extend(message.get("body", b""))
        done = enough(body.decode())
        if done if isinstance(done, bool) else await done:
            hung_up.set()

    raw = [(name.encode(), value.encode()) for name, value in {**headers, "host": "localhost"}.items()]
    scope = {"type": "http", "method": "GET", "path": "/events", "query_string": query.encode()}
    about = {"headers": raw, "client": ("127.0.0.1", 1), "http_version": "1.1", "asgi": {"version": "3.0"}}
    async with asyncio.timeout(PATIENCE):
        await app({**scope, **about}, receive, send)  # type: ignore[arg-type]
    return body.decode()


def test_over_http_a_job_is_followed_from_an_event_on(app: FastAPI, tokens: Tokens, services: Services) -> None:
    one, two = a_job(services), a_job(services)
    cancel_job(services, one)
    viewer = {**tokens.header(Role.VIEWER), "last-event-id": "1"}
    text = asyncio.run(listened(app, f"job_id={one}&kind=job", viewer, lambda text: "data:" in text))
    assert objects(text) == [one]
    assert '"to_status":"cancelled"' in text
    assert two not in text
    assert app.state.server.streams.count == 0


@pytest.mark.parametrize("said", ["-1", "x", "99999999999999999999", "1.5"])
def test_a_place_that_is_none_is_422(client: Client, tokens: Tokens, said: str) -> None:
    viewer = tokens.header(Role.VIEWER)
    assert client.get("/events", headers={**viewer, "last-event-id": said}).status_code == 422
    assert client.get("/events", params={"since": said}, headers=viewer).status_code == 422
