"""What calls that nobody thought of have found, each as one plain case."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest
from fastapi import FastAPI

import herdsman
from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.ids import WorkerId
from herdsman.jobs.commands import last_event
from herdsman.jobs.model import ClaimKey
from herdsman.jobs.protocol import ClaimRequest
from herdsman.server.app import REFUSALS
from herdsman.server.event_stream import Streams, told
from herdsman.server.state import ServerState
from herdsman.wire import MEDIA_TYPE, TABLE, VERSION_HEADER
from tests.api.calling import Client
from tests.api.conftest import Tokens
from tests.support.builders import a_claim

PATIENCE = 30


@pytest.mark.parametrize("wait", [timedelta(0), timedelta(milliseconds=50)])
def test_who_resumes_with_other_types_is_answered(state: ServerState, services: Services, wait: timedelta) -> None:
    """It used to wait for ever: what it held was none of its types, and nothing else was free for it."""

    async def asked(kind: str) -> list[ClaimKey]:
        ask = ClaimRequest(types=(kind,), resume=True)
        async with asyncio.timeout(PATIENCE):
            claims = await state.writer.wait(WorkerId("w1"), ask, wait, asyncio.Event().wait)
        return [each.key for each in claims]

    held = a_claim(services, "w1", type="demo")
    assert asyncio.run(asked("other")) == []
    assert asyncio.run(asked("demo")) == [held.key]


def test_every_answer_says_our_version(client: Client, tokens: Tokens) -> None:
    viewer = tokens.header(Role.VIEWER)
    answers = [
        client.get("/health/live"),
        client.get("/jobs"),
        client.get("/jobs", headers=viewer),
        client.get("/nothing", headers=viewer),
        client.get("/health/live", headers={"host": "evil.example"}),
    ]
    assert {each.headers[VERSION_HEADER] for each in answers} == {herdsman.__version__}


@pytest.fixture
def hub(services: Services, state: ServerState) -> Iterator[Streams]:
    yield Streams(services, state.stopping)
    state.stopping.set()


def test_who_is_cut_off_before_the_first_event_knows_where_to_go_on(services: Services, hub: Streams) -> None:
    async def opening() -> list[str]:
        stream = told(hub, lambda _: True, None)
        async with asyncio.timeout(PATIENCE):
            begun = [await anext(stream), await anext(stream)]
        await stream.aclose()  # type: ignore[attr-defined]  # it is a generator
        return begun

    a_claim(services)
    assert asyncio.run(opening()) == ["retry: 1000\n\n", f"id: {last_event(services)}\n\n"]


def test_every_refusal_is_described_as_a_problem(app: FastAPI) -> None:
    shown = app.openapi()
    assert {int(status) for status in shown["components"]["responses"]} == REFUSALS.keys()
    alone = {status for _, status, _ in TABLE} - REFUSALS.keys()
    assert alone == {410, 502}, "only leases end like the first, and only a provider is behind the second"
    for path, operations in shown["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                found = shown["components"]["responses"][status] if "$ref" in answer else answer
                assert status < "400" or MEDIA_TYPE in found["content"], f"{method} {path} {status}"


def test_all_but_liveness_ask_for_a_token(app: FastAPI) -> None:
    paths = app.openapi()["paths"]
    open_to_all = [path for path, each in paths.items() for shown in each.values() if "security" not in shown]
    assert open_to_all == ["/health/live"]
