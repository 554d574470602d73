"""Jobs over HTTP: submitted once, seen by whom they concern, stopped and run again."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.jobs.commands import find_job
from herdsman.jobs.protocol import LogLines, WorkerHeartbeat
from herdsman.jobs.worker_commands import complete_job, fail_job, record_heartbeat, report_progress
from herdsman.jobs.writer import Round, Written
from herdsman.server.state import ServerState
from herdsman.states import JobStatus
from tests.api.calling import HERE, Client
from tests.api.conftest import Tokens
from tests.support.builders import HOPELESS, a_claim, a_job, a_worker, an_ended_job
from tests.support.worker_calls import claim_job

Header = dict[str, str]


@pytest.fixture
def admin(tokens: Tokens) -> Header:
    return tokens.header(Role.ADMIN)


def submit(client: Client, who: Header, **body: Any) -> httpx.Response:
    return client.post("/jobs/submit", json={"type": "demo", **body}, headers=who)


def test_a_new_job_is_201_and_the_same_again_is_200(client: Client, admin: Header) -> None:
    """J2"""
    first, again = (submit(client, admin, job_id="j1", payload={"n": 1}) for _ in range(2))
    assert (first.status_code, first.json()) == (201, {"job_id": "j1", "created": True})
    assert (again.status_code, again.json()) == (200, {"job_id": "j1", "created": False})
    assert first.headers["location"] == again.headers["location"] == "/jobs/j1"


def test_the_same_id_with_another_body_is_409(client: Client, admin: Header) -> None:
    submit(client, admin, job_id="j1", payload=1)
    refused = submit(client, admin, job_id="j1", payload=2)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:herdsman:conflict")


def at_once(app: FastAPI, who: Header, bodies: Sequence[Mapping[str, Any]]) -> list[httpx.Response]:
    """All of them while the database is busy with something else, so that they come together."""

    writer: Any = app.state.server.writer
    begun, write = [0], writer._write

    def counted(services: Services, wanted: Round) -> Written:
        begun[0] += len(wanted.news)
        return write(services, wanted)

    writer._write = counted

    async def calling() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=HERE, headers=who) as caller:
            await caller.get("/jobs")  # the token is known from here on
            with app.state.server.services.database.alone():
                calls = [asyncio.create_task(caller.post("/jobs/submit", json=body)) for body in bodies]
                async with asyncio.timeout(9):
                    while begun[0] + writer.calls < len(bodies):  # noqa: ASYNC110  (they wait in a thread)
                        await asyncio.sleep(0.005)
            return await asyncio.gather(*calls)

    return asyncio.run(calling())


def test_jobs_that_come_together_are_stored_in_one_transaction(app: FastAPI, admin: Header, services: Services) -> None:
    answers = at_once(app, admin, [{"type": "demo"}] * 50)
    assert {each.status_code for each in answers} == {201}
    instants = {find_job(services, each.json()["job_id"]).created_at for each in answers}
    assert len(instants) == 2, "the first alone, then all that came meanwhile"


def test_a_bad_job_spoils_no_other_that_came_with_it(app: FastAPI, admin: Header, services: Services) -> None:
    a_job(services, job_id="taken", payload="another body")
    names = ["j1", "taken", "j2", "no good name!", "j3", "j3"]
    answers = at_once(app, admin, [{"type": "demo", "job_id": name} for name in names])
    said = [each.status_code for each in answers]
    assert (said[:4], sorted(said[4:])) == ([201, 409, 201, 422], [200, 201])


def test_a_batch_is_stored_whole_or_not_at_all(client: Client, admin: Header) -> None:
    good = {"jobs": [{"type": "demo", "job_id": "a"}, {"type": "demo", "job_id": "b"}]}
    stored = client.post("/jobs/submit/batch", json=good, headers=admin)
    assert (stored.status_code, len(stored.json()["jobs"])) == (201, 2)
    assert client.post("/jobs/submit/batch", json=good, headers=admin).status_code == 200
    bad = {"jobs": [{"type": "demo", "job_id": "c"}, {"type": "demo", "job_id": "a", "payload": 1}]}
    assert client.post("/jobs/submit/batch", json=bad, headers=admin).status_code == 409
    assert client.get("/jobs/c", headers=admin).status_code == 404


@pytest.mark.parametrize(
    "body",
    [{}, {"type": "demo", "kind": "typo"}, {"type": "x" * 65}, {"type": "demo", "priority": "high"}],
)
def test_a_body_that_is_wrong_is_422_and_says_where(client: Client, admin: Header, body: dict[str, Any]) -> None:
    refused = client.post("/jobs/submit", json=body, headers=admin)
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"


def test_a_submitter_submits_for_its_own_agent_whatever_the_body_says(
    client: Client, admin: Header, tokens: Tokens
) -> None:
    """X2."""
    ann = tokens.header(Role.SUBMITTER, "ann")
    assert submit(client, ann, job_id="j1", agent="bob").status_code == 201
    assert client.get("/jobs/j1", headers=admin).json()["agent"] == "ann"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jobs/theirs"),
        *(("GET", f"/jobs/theirs/{what}") for what in ("result", "attempts", "events", "logs")),
        *(("POST", f"/jobs/theirs/{what}") for what in ("cancel", "retry")),
    ],
)
def test_the_jobs_of_others_do_not_exist_for_a_submitter(
    client: Client, tokens: Tokens, services: Services, method: str, path: str
) -> None:
    a_job(services, job_id="theirs", agent="bob")
    ann = tokens.header(Role.SUBMITTER, "ann")
    answer = client.request(method, path, headers=ann)
    unknown = client.request(method, path.replace("theirs", "unknown"), headers=ann)
    assert answer.status_code == unknown.status_code == 404
    assert answer.json()["detail"].replace("theirs", "unknown") == unknown.json()["detail"]


def test_a_submitter_lists_its_own_jobs_only(client: Client, tokens: Tokens, services: Services) -> None:
    a_job(services, job_id="theirs", agent="bob")
    a_job(services, job_id="mine", agent="ann")
    ann = tokens.header(Role.SUBMITTER, "ann")
    for query in ("", "?agent=bob", "?agent=ann"):
        found = client.get(f"/jobs{query}", headers=ann).json()["jobs"]
        assert [each["job_id"] for each in found] == ["mine"]


def test_a_list_is_paged_and_filtered(client: Client, admin: Header, services: Services) -> None:
    """A4."""
    for number in range(5):
        a_job(services, job_id=f"j{number}", type="even" if number % 2 == 0 else "odd", tags=(f"t{number}",))
    first = client.get("/jobs?limit=2", headers=admin).json()
    rest = client.get("/jobs", params={"limit": 200, "after": first["next"]}, headers=admin).json()
    assert [each["job_id"] for each in (*first["jobs"], *rest["jobs"])] == ["j4", "j3", "j2", "j1", "j0"]
    assert rest["next"] is None
    for query, count in (("type=odd", 2), ("tag=t3", 1), ("status=done", 0), ("pool=elsewhere", 0)):
        assert len(client.get(f"/jobs?{query}", headers=admin).json()["jobs"]) == count, query


def test_states_have_both_of_their_names(client: Client, admin: Header, services: Services) -> None:
    a_job(services, job_id="waits")
    an_ended_job(services, JobStatus.DONE, job_id="ended", priority=-5)
    names = {
        query: [each["job_id"] for each in client.get(f"/jobs?{query}", headers=admin).json()["jobs"]]
        for query in (
            "status=pending",
            "status=Complete&status=done",
            "status=Queued",
            "status=In%20Progress",
        )
    }
    assert sum(map(len, names.values())) == 3
    assert client.get("/jobs?status=sleeping", headers=admin).status_code == 422


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "after=nonsense", "failure_class=bad", "type=%00"])
def test_a_question_that_makes_no_sense_is_422(client: Client, admin: Header, query: str) -> None:
    """A3."""
    assert client.get(f"/jobs?{query}", headers=admin).status_code == 422


def test_a_job_that_did_not_change_is_304_until_it_does(client: Client, admin: Header, services: Services) -> None:
    claim = a_claim(services, job_id="j1")
    seen = client.get("/jobs/j1", headers=admin)
    known = {**admin, "if-none-match": seen.headers["etag"]}
    assert client.get("/jobs/j1", headers=known).status_code == 304
    report_progress(services, claim.key, 0.5)
    changed = client.get("/jobs/j1", headers=known)
    assert (changed.status_code, changed.json()["progress"]) == (200, 0.5)


def test_the_result_comes_with_the_end_and_not_before(client: Client, admin: Header, services: Services) -> None:
    claim = a_claim(services, job_id="j1")
    early = client.get("/jobs/j1/result", headers=admin)
    assert (early.status_code, early.json()["type"]) == (409, "urn:herdsman:not-finished")
    complete_job(services, claim.key, {"answer": 42})
    ended = client.get("/jobs/j1/result", headers=admin)
    assert (ended.status_code, ended.json()["status"], ended.json()["result"]) == (
        200,
        "done",
        {"answer": 42},
    )


def test_the_result_of_a_job_that_failed_says_why(client: Client, admin: Header, services: Services) -> None:
    claim = a_claim(services, job_id="j1")
    fail_job(services, claim.key, HOPELESS)
    found = client.get("/jobs/j1/result", headers=admin)
    assert found.status_code == 200
    assert (found.json()["status"], found.json()["last_error"]) == ("dead_letter", HOPELESS.error)


def test_attempts_events_and_logs_tell_the_story(client: Client, admin: Header, services: Services) -> None:
    worker = a_worker(services)
    a_job(services, job_id="j1")
    claim = claim_job(services, worker)
    assert claim is not None
    lines = LogLines(first=0, lines=("one", "two"))
    record_heartbeat(services, worker, WorkerHeartbeat(keys=(claim.key,), logs={claim.key: lines}))
    (attempt,) = client.get("/jobs/j1/attempts", headers=admin).json()["attempts"]
    assert attempt["worker_id"] == worker
    told = client.get("/jobs/j1/events?limit=1", headers=admin).json()
    assert [each["to_status"] for each in told["events"]] == ["pending"]
    later = client.get(f"/jobs/j1/events?since={told['next']}", headers=admin).json()
    assert [each["to_status"] for each in later["events"]] == ["claimed"]
    logs = client.get("/jobs/j1/logs", headers=admin).json()
    assert [line for piece in logs["pieces"] for line in piece["lines"]] == ["one", "two"]
    assert logs["ended"] is False
    assert client.get(f"/jobs/j1/logs?since={logs['next']}", headers=admin).json()["pieces"] == []


def test_a_waiting_job_is_cancelled_at_once_and_a_held_one_is_asked_to_stop(
    client: Client, admin: Header, services: Services
) -> None:
    """J7."""
    a_claim(services, job_id="held")
    a_job(services, job_id="waits")
    answers = {name: client.post(f"/jobs/{name}/cancel", headers=admin) for name in ("held", "waits")}
    assert {name: each.status_code for name, each in answers.items()} == {"held": 202, "waits": 202}
    assert answers["waits"].json()["status"] == "cancelled"
    assert client.get("/jobs/held", headers=admin).json()["cancel_requested"] is True


def test_an_ended_job_runs_again_also_with_another_payload(
    client: Client, admin: Header, services: Services, state: ServerState
) -> None:
    an_ended_job(services, JobStatus.DEAD_LETTER, job_id="j1", payload={"n": 1})
    again = client.post("/jobs/j1/retry", headers=admin)
    assert (again.status_code, again.json()["status"]) == (200, "pending")
    assert client.post("/jobs/j1/retry", headers=admin).status_code == 422, "it waits"
    client.post("/jobs/j1/cancel", headers=admin)
    edited = client.post("/jobs/j1/retry", json={"edit": True, "payload": {"n": 2}}, headers=admin)
    assert edited.status_code == 200
    assert client.get("/jobs/j1", headers=admin).json()["payload"] == {"n": 2}
    assert state.writer.waiting == 0
