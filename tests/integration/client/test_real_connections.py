"""The client on real sockets: cut lines, pages of strangers, busy, slow and endless servers."""

import asyncio
import json
import threading
import time
from datetime import timedelta

import pytest

from herdsman.client import AsyncClient, Client
from herdsman.client.queue import HttpQueue
from herdsman.errors import Unreachable
from herdsman.ids import WorkerId
from herdsman.jobs.protocol import ClaimRequest, WorkerHeartbeat
from tests.integration.client.odd_server import Asked, Cut, Send, body, head, reply, serving
from tests.unit.client.local_server import SOON_ORDERS, an_event_text

SUBMITTED = {"job_id": "job-1", "created": True}


def test_a_line_that_is_cut_in_the_middle_of_an_answer_is_tried_again_as_the_same_job() -> None:
    async def answer(_: Asked, send: Send) -> None:
        if len(server.asked) < 3:
            await head(send, 201, "application/json", content_length="1000")
            await body(send, b'{"job_id"', more=True)
            raise Cut
        await reply(send, SUBMITTED, 201)

    with serving(answer) as server, Client(server.url) as client:
        assert client.submit("image", {"n": 1}).id == "job-1"
    assert len(server.asked) == 3
    assert len({each.body for each in server.asked}) == 1


def test_a_busy_server_is_asked_again_after_its_time() -> None:
    async def answer(_: Asked, send: Send) -> None:
        if len(server.asked) == 1:
            await reply(send, b"busy", 429, "text/plain", retry_after="1")
        else:
            await reply(send, SUBMITTED, 201)

    with serving(answer) as server, Client(server.url) as client:
        began = time.monotonic()
        client.submit("image")
        assert time.monotonic() - began >= 1


def test_a_page_is_not_an_answer() -> None:
    async def answer(_: Asked, send: Send) -> None:
        await reply(send, b"<html><title>nginx</title></html>", 200, "text/html")

    with serving(answer) as server, Client(server.url) as client:
        with pytest.raises(Unreachable, match="text/html"):
            client.submit("image")
        assert len(server.asked) == 1


def test_nobody_there_is_told_in_one_sentence() -> None:
    with Client("http://127.0.0.1:1", patience=0) as client, pytest.raises(Unreachable, match="ConnectError"):
        client.submit("image")


def test_a_server_that_says_nothing_is_left_after_the_timeout() -> None:
    async def answer(_: Asked, send: Send) -> None:
        await asyncio.sleep(3)
        await reply(send, SUBMITTED)

    with (
        serving(answer) as server,
        Client(server.url, timeout=0.2, patience=0) as client,
        pytest.raises(Unreachable, match="ReadTimeout"),
    ):
        client.submit("image")


def test_a_server_that_drips_is_left_too() -> None:
    """Each piece comes in time, the answer never: the timeout counts for the whole of it (W6)."""

    async def answer(_asked: Asked, send: Send) -> None:
        await head(send, 200, "application/json")
        for _ in range(200):
            await body(send, b" ", more=True)
            await asyncio.sleep(0.05)
        await body(send, b"")

    with (
        serving(answer) as server,
        Client(server.url, timeout=0.5, patience=0) as client,
        pytest.raises(Unreachable, match="still being answered"),
    ):
        client.submit("image")


def test_an_answer_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herdsman.client.transport.LARGEST_ANSWER", 1_000_000)

    async def answer(_asked: Asked, send: Send) -> None:
        await head(send, 200, "application/json")
        for _ in range(1000):
            await body(send, b"x" * 65_536, more=True)

    with serving(answer) as server, Client(server.url) as client:
        with pytest.raises(Unreachable, match="still being answered"):
            client.submit("image")
        assert len(server.asked) == 1


def test_events_go_on_behind_the_last_one_after_a_cut() -> None:
    async def answer(asked: Asked, send: Send) -> None:
        last = int(asked.headers.get("last-event-id", "0"))
        if last >= 4:
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await body(send, b"")
            return
        await head(send, 200, "text/event-stream")
        text = an_event_text(last + 1) + an_event_text(last + 2) + an_event_text(last + 3)[:20]
        await body(send, text.encode(), more=True)
        raise Cut

    with serving(answer) as server, Client(server.url) as client:
        assert [event.id for event in client.events()] == [1, 2, 3, 4]


def test_a_loop_that_is_left_early_gives_its_connection_back() -> None:
    async def answer(_: Asked, send: Send) -> None:
        await head(send, 200, "text/event-stream")
        await body(send, an_event_text(1).encode(), more=True)
        await asyncio.sleep(2)

    with serving(answer) as server, Client(server.url) as client:
        for event in client.events():
            assert event.id == 1
            break


def test_a_long_poll_never_delays_a_beat() -> None:
    released = threading.Event()

    async def answer(asked: Asked, send: Send) -> None:
        if asked.path == "/jobs/claim":
            await asyncio.to_thread(released.wait, 60)
            await reply(send, {"claims": []})
        else:
            await reply(send, SOON_ORDERS)

    with serving(answer) as server:
        queue = HttpQueue(server.url, "token", WorkerId("w"))
        polling = threading.Thread(target=lambda: queue.claim(ClaimRequest(), timedelta(seconds=30)))
        polling.start()
        try:
            while not server.asked:
                threading.Event().wait(0.01)
            for _ in range(5):
                queue.beat(WorkerHeartbeat())
            assert polling.is_alive()
        finally:
            released.set()
            polling.join(30)
            queue.close()


def test_the_async_client_does_many_things_at_once() -> None:
    async def answer(asked: Asked, send: Send) -> None:
        await asyncio.sleep(0.05)
        await reply(send, {"job_id": asked.path.split("/")[2], "status": "done", "result": asked.path})

    async def go(url: str) -> list[object]:
        async with AsyncClient(url) as client:
            return list(await asyncio.gather(*(client.job(f"j{each}").result() for each in range(20))))

    with serving(answer) as server:
        assert asyncio.run(go(server.url)) == [f"/jobs/j{each}/result" for each in range(20)]


def test_a_connection_is_kept_and_one_that_the_server_closed_is_not_used_again() -> None:
    """However many requests are sent, none of them is lost on a line that is gone."""

    async def answer(_: Asked, send: Send) -> None:
        await head(send, 201, "application/json", connection="close" if len(server.asked) == 2 else "keep-alive")
        await body(send, json.dumps(SUBMITTED).encode())

    with serving(answer) as server, Client(server.url, patience=0) as client:
        for _ in range(4):
            client.submit("image")
    assert len(server.asked) == 4


def test_a_proxy_is_asked_where_one_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(_: Asked, send: Send) -> None:
        await reply(send, SUBMITTED, 201)

    with serving(answer) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with Client("http://nowhere.invalid:80", patience=0) as client:
            assert client.submit("image").id == "job-1"
    assert len(proxy.asked) == 1
