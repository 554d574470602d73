"""The life of a worker over HTTP. Its token says who it is, and the claim's token what it may touch."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn

import httpx
import pytest

from herdsman.access.authenticator import Keyring
from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.errors import StoreUnavailable
from herdsman.fleet import workers_sql
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.commands import cancel_job, find_job
from herdsman.loops.loop_group import LoopHealth
from herdsman.states import JobStatus
from tests.api.calling import Client
from tests.api.conftest import Build, Tokens, bearer
from tests.support.apps import an_app
from tests.support.builders import a_job, claimed
from tests.support.worker_calls import claim_job


@dataclass(frozen=True, slots=True)
class Hand:
    """One worker, as a program on a rented machine."""

    client: Client
    name: str
    who: dict[str, str]

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body, headers=self.who)

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path, headers=self.who)

    def claim(self, **ask: Any) -> list[dict[str, Any]]:
        answer = self.post("/jobs/claim", **ask)
        assert answer.status_code == 200, answer.text
        return answer.json()["claims"]


@pytest.fixture
def hand(client: Client, tokens: Tokens) -> Hand:
    return Hand(client, "w1", tokens.header(Role.WORKER, "w1"))


@pytest.fixture
def other(client: Client, tokens: Tokens) -> Hand:
    return Hand(client, "w2", tokens.header(Role.WORKER, "w2"))


def test_a_whole_life(hand: Hand, services: Services) -> None:
    job_id = a_job(services, payload={"n": 1})
    (claim,) = hand.claim()
    assert (claim["job_id"], claim["payload"], claim["worker_id"]) == (job_id, {"n": 1}, "w1")
    token = claim["token"]
    assert hand.post(f"/jobs/{job_id}/start", token=token).status_code == 204
    assert hand.post(f"/jobs/{job_id}/progress", token=token, done=0.5, note="half").status_code == 204
    beat = hand.post("/workers/w1/heartbeat", holding=[{"job_id": job_id, "token": token}])
    assert (beat.status_code, beat.json()["drain"], beat.json()["lost"]) == (200, False, [])
    ended = hand.post(f"/jobs/{job_id}/complete", token=token, result={"ok": True})
    assert (ended.status_code, ended.json()["status"]) == (200, "done")
    assert find_job(services, job_id).result == {"ok": True}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("start", {}),
        ("progress", {"done": 0.5}),
        ("complete", {"result": 1}),
        ("fail", {"error": "no"}),
        ("release", {}),
    ],
)
def test_another_worker_cannot_touch_the_job_even_with_its_token(
    hand: Hand, other: Hand, services: Services, path: str, body: dict[str, Any]
) -> None:
    """X2, X7: the right worker and the right claim."""
    job_id = a_job(services)
    (claim,) = hand.claim()
    stolen = other.post(f"/jobs/{job_id}/{path}", token=claim["token"], **body)
    assert (stolen.status_code, stolen.json()["type"]) == (409, "urn:herdsman:stale")
    old = hand.post(f"/jobs/{job_id}/{path}", token=claim["token"] - 1, **body)
    assert (old.status_code, old.json()["type"]) == (409, "urn:herdsman:stale")
    assert find_job(services, job_id).status is JobStatus.CLAIMED


def test_another_worker_cannot_reach_the_checkpoint_or_finish_the_job(
    hand: Hand, other: Hand, services: Services
) -> None:
    job_id = a_job(services)
    (claim,) = hand.claim()
    put = {"token": claim["token"], "value": {"step": 3}}
    path = f"/jobs/{job_id}/checkpoint"
    assert other.client.put(path, json=put, headers=other.who).status_code == 409
    assert hand.client.put(path, json=put, headers=hand.who).status_code == 204
    asked = {"token": claim["token"]}
    assert other.client.get(path, params=asked, headers=other.who).status_code == 409
    assert hand.client.get(path, params=asked, headers=hand.who).json() == {"value": {"step": 3}}
    ending = {"job_id": job_id, "token": claim["token"], "outcome": "done"}
    (told,) = other.post("/jobs/finish", endings=[ending]).json()["told"]
    assert (told["stale"], told["status"]) == (True, None)


@pytest.mark.parametrize("word", ["heartbeat", "leave"])
def test_a_worker_speaks_for_itself_only(hand: Hand, other: Hand, word: str) -> None:
    assert hand.post(f"/workers/{other.name}/{word}").status_code == 403
    assert hand.post(f"/workers/{hand.name}/{word}").status_code in (200, 204)


def test_a_claim_whose_answer_was_lost_is_given_again(hand: Hand, services: Services) -> None:
    job_id = a_job(services)
    lost = claimed(services, WorkerId("w1"))
    assert hand.claim() == [], "it holds a job that it does not know of"
    (again,) = hand.claim(resume=True)
    assert (again["job_id"], again["token"]) == (job_id, lost.key.token)


def test_a_worker_finds_what_it_holds_and_nobody_else_does(hand: Hand, other: Hand, services: Services) -> None:
    job_id = a_job(services)
    (claim,) = hand.claim(begin=True)
    assert hand.claim(begin=True, resume=True) == [], "it counts as begun (J11)"
    found = hand.get(f"/workers/{hand.name}/claims").json()
    assert found == {"claims": [{"job_id": job_id, "token": claim["token"]}]}
    assert other.get(f"/workers/{hand.name}/claims").status_code == 403


def test_jobs_are_finished_and_the_next_one_is_given_in_one_word(hand: Hand, services: Services) -> None:
    first = a_job(services, job_id="first")
    (claim,) = hand.claim(begin=True)
    a_job(services, job_id="second")
    ending = {"job_id": first, "token": claim["token"], "outcome": "done", "result": 7}
    answer = hand.post("/jobs/finish", endings=[ending], then={"begin": True}).json()
    assert [each["status"] for each in answer["told"]] == ["done"]
    assert [each["job_id"] for each in answer["claims"]] == ["second"]
    assert find_job(services, JobId("second")).status is JobStatus.RUNNING


def test_a_job_that_is_given_back_goes_to_who_waits(hand: Hand, other: Hand, services: Services) -> None:
    job_id = a_job(services)
    (claim,) = hand.claim()
    back = hand.post(f"/jobs/{job_id}/release", token=claim["token"], reason="leaving")
    assert (back.status_code, back.json()["status"]) == (200, "pending")
    assert [each["job_id"] for each in other.claim(wait_seconds=10)] == [job_id]


def test_starting_many_says_which_may_not(hand: Hand, services: Services) -> None:
    job_id = a_job(services)
    (claim,) = hand.claim()
    wanted = [{"job_id": job_id, "token": claim["token"]}, {"job_id": "unknown", "token": 1}]
    refused = hand.post("/jobs/start", claims=wanted).json()["refused"]
    assert [each["job_id"] for each in refused] == ["unknown"]


def test_a_cancelled_job_is_called_off_by_the_next_beat(hand: Hand, services: Services) -> None:
    """J7."""
    job_id = a_job(services)
    (claim,) = hand.claim(begin=True)
    cancel_job(services, job_id)
    held = {"job_id": job_id, "token": claim["token"]}
    beat = hand.post("/workers/w1/heartbeat", holding=[held]).json()
    assert [each["job_id"] for each in beat["cancel"]] == [job_id]
    ended = hand.post(f"/jobs/{job_id}/complete", token=claim["token"], result=1)
    assert ended.json()["status"] == "cancelled"


def test_a_beat_tells_which_claims_are_lost(hand: Hand, services: Services) -> None:
    job_id = a_job(services)
    beat = hand.post("/workers/w1/heartbeat", holding=[{"job_id": job_id, "token": 1}]).json()
    assert [each["job_id"] for each in beat["lost"]] == [job_id]


def test_who_leaves_gets_no_more_jobs(hand: Hand, services: Services) -> None:
    assert hand.post("/workers/w1/leave").status_code == 204
    a_job(services)
    assert claim_job(services, WorkerId("w1")) is None


def test_a_machine_becomes_its_worker_with_the_bootstrap_token(client: Client, tokens: Tokens) -> None:
    start = tokens.header(Role.BOOTSTRAP, "w1")
    body = {"incarnation": "first-life"}
    answer = client.post("/workers/register", json=body, headers=start)
    assert (answer.status_code, answer.json()["worker_id"]) == (201, "w1")
    assert answer.json()["heartbeat_seconds"] * 4 <= answer.json()["claim_ttl_seconds"]
    mine = bearer(answer.json()["token"])
    assert client.post("/jobs/claim", json={}, headers=mine).json() == {"claims": []}
    twin = client.post("/workers/register", json={"incarnation": "another-life"}, headers=start)
    assert twin.status_code == 403
    foreign = client.post("/workers/register", json={**body, "worker_id": "w2"}, headers=start)
    assert foreign.status_code == 403


def test_an_operator_adds_a_worker_by_hand(client: Client, tokens: Tokens, services: Services) -> None:
    body = {"incarnation": "first-life", "pool": "mine"}
    answer = client.post("/workers/register", json=body, headers=tokens.header(Role.OPERATOR))
    assert answer.status_code == 201
    made = services.database.read(lambda tx: workers_sql.get_worker(tx, answer.json()["worker_id"]))
    assert made.pool == "mine"


def test_a_token_that_grows_old_is_renewed_by_a_beat(
    client: Client, tokens: Tokens, keyring: Keyring, clock: Any, hands: Any
) -> None:
    mine = tokens.header(Role.WORKER, "w1")
    assert client.post("/workers/w1/heartbeat", json={}, headers=mine).json()["token"] is None
    clock.advance(keyring.worker_life * 0.6)
    hands.advance(keyring.worker_life * 0.6)
    renewed = client.post("/workers/w1/heartbeat", json={}, headers=mine).json()
    assert renewed["token"] is not None
    assert client.post("/workers/w1/heartbeat", json={}, headers=bearer(renewed["token"])).status_code == 200


def test_people_see_workers(client: Client, tokens: Tokens) -> None:
    tokens.of(Role.WORKER, "w1")
    viewer = tokens.header(Role.VIEWER)
    (listed,) = client.get("/workers", headers=viewer).json()["workers"]
    assert listed == client.get("/workers/w1", headers=viewer).json()
    assert (listed["worker_id"], listed["status"]) == ("w1", "active")
    assert client.get("/workers/unknown", headers=viewer).status_code == 404
    assert client.get("/workers?limit=0", headers=viewer).status_code == 422


def mark(hand: Hand, claim: dict[str, Any], **said: Any) -> httpx.Response:
    body = {"token": claim["token"], "external_id": "p-1", "status": "submitted", **said}
    return hand.client.put(f"/jobs/{claim['job_id']}/service", json=body, headers=hand.who)


def test_a_mark_is_kept_and_told_to_the_next_claim(hand: Hand, other: Hand, services: Services, tokens: Tokens) -> None:
    job_id = a_job(services)
    (claim,) = hand.claim()
    assert mark(other, claim).status_code == 409, "X7: the claim is not its own"
    assert mark(hand, claim, token=claim["token"] - 1).status_code == 409
    for bad in ({"external_id": ""}, {"external_id": "x" * 256}, {"external_id": "a\n"}, {"status": "lost"}):
        assert mark(hand, claim, **bad).status_code == 422, bad
    assert find_job(services, job_id).service_job_id is None
    assert mark(hand, claim).status_code == 204
    shown = hand.client.get(f"/jobs/{job_id}", headers=tokens.header(Role.ADMIN)).json()
    assert (shown["service_job_id"], shown["service_status"]) == ("p-1", "submitted")
    hand.post(f"/jobs/{job_id}/release", token=claim["token"])
    (again,) = other.claim()
    assert again["service_job_id"] == "p-1"


@pytest.mark.parametrize("together", [True, False])
def test_a_recovered_result_is_shown_with_what_it_saved(
    hand: Hand, services: Services, tokens: Tokens, together: bool
) -> None:
    job_id = a_job(services)
    (claim,) = hand.claim()
    said = {"token": claim["token"], "result": 1, "saved_seconds": 41.2}
    ending = {"job_id": job_id, "outcome": "done", **said}
    for bad in (-1, 1e12, "NaN"):
        spoilt = {**ending, "saved_seconds": bad}
        assert hand.post("/jobs/finish", endings=[spoilt]).status_code == 422
    path, body = ("/jobs/finish", {"endings": [ending]}) if together else (f"/jobs/{job_id}/complete", said)
    assert hand.post(path, **body).status_code == 200
    who = tokens.header(Role.ADMIN)
    job, result = (hand.client.get(f"/jobs/{job_id}{part}", headers=who).json() for part in ("", "/result"))
    assert (job["status"], job["reason"], job["saved_gpu_seconds"]) == ("done", "recovered", 41.2)
    assert (result["result"], result["saved_gpu_seconds"]) == (1, 41.2)


def test_the_version_of_a_worker_is_known_from_its_registration(client: Client, tokens: Tokens) -> None:
    admin = tokens.header(Role.ADMIN)
    body = {"worker_id": "w9", "incarnation": "first-life"}
    told = {**admin, "user-agent": "herdsman/99.1.0"}
    assert client.post("/workers/register", json=body, headers=told).status_code == 201
    shown = client.get("/workers/w9", headers=admin).json()
    assert shown["version"] == "99.1.0"
    assert "the server" in shown["warning"]
    body["worker_id"] = "w10"
    assert client.post("/workers/register", json=body, headers=admin).status_code == 201
    assert client.get("/workers/w10", headers=admin).json()["version"] is None


@pytest.mark.parametrize("held", [True, False])
def test_in_an_outage_a_heartbeat_is_answered_at_once_with_what_a_worker_needs_to_know(
    build: Build, hand: Hand, services: Services, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    """W5: without a look at the database, which may take longer than the worker has."""
    leads = SimpleNamespace(leadership=SimpleNamespace(holds_claims=held), loops=LoopHealth())
    asked: list[object] = []

    def away(work: object) -> NoReturn:
        asked.append(work)
        raise StoreUnavailable("it is away")

    monkeypatch.setattr(services.database, "transact", away)
    monkeypatch.setattr(services.database, "read", away)
    with Client(an_app(build(control=leads))) as client:
        answer = client.post("/workers/w1/heartbeat", json={}, headers=hand.who)
    code = "claims-held" if held else "store-unavailable"
    assert (answer.status_code, answer.json()["type"]) == (503, f"urn:herdsman:{code}")
    assert bool(asked) is not held
