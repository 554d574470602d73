"""A whole job over HTTP on each database: from the submission to the end, with answers lost on the way."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI

from herdsman.access.authenticator import Keyring
from herdsman.access.commands import create_token
from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.fleet.commands import move_worker
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.commands import find_job
from herdsman.jobs.worker_wire import ClaimOut
from herdsman.server.state import ServerState, build_state
from herdsman.states import JobStatus, Reason, WorkerStatus
from tests.api.calling import Client
from tests.chaos.waiting import waited_for
from tests.support.apps import an_app
from tests.support.builders import replayed
from tests.support.worker_calls import claim_job

Header = dict[str, str]


@pytest.fixture
def app(services: Services) -> Iterator[FastAPI]:
    state = build_state(services, Keyring(pepper=b"p" * 32))
    yield an_app(state)
    state.stop_waiting()


@pytest.fixture
def client(app: FastAPI) -> Iterator[Client]:
    with Client(app) as client:
        yield client


@pytest.fixture
def admin(app: FastAPI) -> Header:
    state: ServerState = app.state.server
    issued = create_token(state.services, state.keyring, role=Role.ADMIN, name="ann")
    return {"authorization": f"Bearer {issued.secret}"}


@pytest.fixture
def worker(client: Client, admin: Header, services: Services) -> Header:
    body = {"worker_id": "w1", "incarnation": "first-life"}
    answer = client.post("/workers/register", json=body, headers=admin)
    assert answer.status_code == 201, answer.text
    move_worker(services, WorkerId("w1"), WorkerStatus.ACTIVE, Reason.READY)
    return {"authorization": f"Bearer {answer.json()['token']}"}


def submit(client: Client, who: Header, job_id: str) -> None:
    answer = client.post("/jobs/submit", json={"type": "demo", "job_id": job_id}, headers=who)
    assert answer.status_code == 201, answer.text


def claims(client: Client, who: Header, **ask: Any) -> list[dict[str, Any]]:
    answer = client.post("/jobs/claim", json=ask, headers=who)
    assert answer.status_code == 200, answer.text
    return answer.json()["claims"]


def test_from_the_submission_to_the_end(client: Client, admin: Header, worker: Header, services: Services) -> None:
    submit(client, admin, "j1")
    (claim,) = claims(client, worker, wait_seconds=20)
    token = {"token": claim["token"]}
    assert client.post("/jobs/j1/start", json=token, headers=worker).status_code == 204
    beat = {"holding": [{"job_id": "j1", **token, "done": 0.5, "log_lines": ["hello"]}]}
    assert client.post("/workers/w1/heartbeat", json=beat, headers=worker).status_code == 200
    assert client.get("/jobs/j1", headers=admin).json()["progress"] == 0.5
    done = {**token, "result": {"ok": True}}
    for _ in range(2):  # the answer may be lost
        ended = client.post("/jobs/j1/complete", json=done, headers=worker)
        assert (ended.status_code, ended.json()["status"]) == (200, "done")
    assert client.get("/jobs/j1/result", headers=admin).json()["result"] == {"ok": True}
    assert client.get("/jobs/j1/logs", headers=admin).json()["pieces"][0]["lines"] == ["hello"]
    assert replayed(services, JobId("j1")) == JobStatus.DONE


def test_a_claim_tells_for_whom_the_job_runs(client: Client, admin: Header, worker: Header) -> None:
    """The files of other agents are not for it."""
    wanted = {"type": "demo", "job_id": "j1", "agent": "ann"}
    assert client.post("/jobs/submit", json=wanted, headers=admin).status_code == 201
    (told,) = claims(client, worker, types=["demo"])
    assert ClaimOut.model_validate(told).claim().agent == "ann"


def test_an_old_token_is_409_and_changes_nothing(
    client: Client, admin: Header, worker: Header, services: Services
) -> None:
    """J3."""
    submit(client, admin, "j1")
    (claim,) = claims(client, worker)
    old = {"token": claim["token"]}
    assert client.post("/jobs/j1/release", json=old, headers=worker).status_code == 200
    (again,) = claims(client, worker)
    assert again["token"] > claim["token"]
    for word, body in (("start", {}), ("complete", {"result": 1}), ("fail", {}), ("release", {})):
        answer = client.post(f"/jobs/j1/{word}", json={**old, **body}, headers=worker)
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:herdsman:stale"), word
    assert find_job(services, JobId("j1")).status is JobStatus.CLAIMED


def test_a_cancelled_job_is_never_done(client: Client, admin: Header, worker: Header) -> None:
    """J7."""
    submit(client, admin, "j1")
    (claim,) = claims(client, worker, begin=True)
    assert client.post("/jobs/j1/cancel", headers=admin).status_code == 202
    late = {"token": claim["token"], "result": 1}
    ended = client.post("/jobs/j1/complete", json=late, headers=worker)
    assert ended.json()["status"] == "cancelled"
    assert client.get("/jobs/j1/result", headers=admin).json()["status"] == "cancelled"


def test_a_claim_whose_answer_was_lost_is_the_same_claim_again(
    client: Client, admin: Header, worker: Header, services: Services
) -> None:
    submit(client, admin, "j1")
    lost = claim_job(services, WorkerId("w1"))
    assert lost is not None
    (again,) = claims(client, worker, resume=True, wait_seconds=20)
    assert (again["job_id"], again["token"]) == ("j1", lost.key.token)
    assert find_job(services, JobId("j1")).attempts == 1


def test_what_a_vanished_connection_was_given_goes_back(
    app: FastAPI, client: Client, admin: Header, worker: Header, services: Services
) -> None:
    submit(client, admin, "j1")
    asyncio.run(vanish(app, worker))
    job = waited_for(lambda: given_back(services))
    assert (job.attempts, job.interruptions) == (1, 1), "the attempt does not count against it"
    (claim,) = claims(client, worker)
    assert claim["job_id"] == "j1"


def given_back(services: Services) -> Any:
    job = find_job(services, JobId("j1"))
    return job if job.status is JobStatus.PENDING and job.claim_token > 0 else None


async def vanish(app: FastAPI, who: Header) -> None:
    """A claim by a client that hangs up when its job was found, and before the answer could be written."""
    writer: Any = app.state.server.writer
    found, over, body = asyncio.Event(), threading.Event(), [json.dumps({"wait_seconds": 60}).encode()]
    loop, plain = asyncio.get_running_loop(), writer._write

    def write(*asked: Any) -> Any:
        given = plain(*asked)
        loop.call_soon_threadsafe(found.set)
        assert over.wait(30)
        return given

    async def receive() -> dict[str, Any]:
        if body:
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        await found.wait()
        return {"type": "http.disconnect"}

    async def send(_message: Any) -> None:
        return

    writer._write = write
    headers = {**who, "host": "localhost", "content-type": "application/json"}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/jobs/claim", "query_string": b"", "headers": raw}
    about = {"client": ("127.0.0.1", 1), "http_version": "1.1", "asgi": {"version": "3.0"}}
    async with asyncio.timeout(20):
        await app({**scope, **about}, receive, send)
    writer._write = plain
    over.set()
