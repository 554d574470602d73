"""X2, X7: a submitter has its own jobs, a worker its own name and claims; what a body says changes nothing."""

from starlette.status import HTTP_403_FORBIDDEN, HTTP_404_NOT_FOUND

from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.server.access import MATRIX
from tests.api.calling import Client
from tests.api.conftest import Tokens
from tests.support.builders import a_job, claimed


def test_a_submitter_does_not_see_the_jobs_of_another(client: Client, services: Services, tokens: Tokens) -> None:
    bobs, anns = a_job(services, agent="bob"), a_job(services, agent="ann")
    ann = tokens.header(Role.SUBMITTER, "ann")
    for end in ("", "/result", "/attempts", "/events", "/logs"):
        assert client.get(f"/jobs/{bobs}{end}", headers=ann).status_code == HTTP_404_NOT_FOUND, end
    for verb in ("cancel", "retry"):
        answer = client.post(f"/jobs/{bobs}/{verb}", headers=ann, json={})
        assert answer.status_code == HTTP_404_NOT_FOUND, verb
    assert client.get(f"/jobs/{anns}", headers=ann).status_code == 200
    listed = client.get("/jobs", headers=ann).json()["jobs"]
    assert [each["job_id"] for each in listed] == [anns]
    assert client.get("/jobs?agent=bob", headers=ann).json().get("jobs", []) in ([], listed)


def test_to_a_submitter_the_job_of_another_is_as_unknown_as_one_that_never_was(
    client: Client, services: Services, tokens: Tokens
) -> None:
    """On every route that names a job, in the same words."""
    a_job(services, job_id="theirs", agent="bob")
    ann = {**tokens.header(Role.SUBMITTER, "ann"), "content-type": "application/json"}
    routes = [
        (method, path) for (method, path), roles in MATRIX.items() if "{job_id}" in path and Role.SUBMITTER in roles
    ]
    assert len(routes) >= 9
    for method, path in [*routes, ("GET", "/why/job/{job_id}")]:
        answers: list[tuple[int, str]] = []
        for job_id in ("theirs", "nobodys"):
            named = path.replace("{job_id}", job_id).replace("{name}", "a.png")
            answer = client.request(method, named, content=b"{}" if "retry" in path else b"", headers=ann)
            answers.append((answer.status_code, answer.text.replace(job_id, "JOB")))
        assert answers[0] == answers[1], (method, path)
        assert answers[0][0] == 404, (method, path)


def test_the_jobs_of_a_submitter_are_its_own_whatever_it_says(client: Client, tokens: Tokens) -> None:
    ann = tokens.header(Role.SUBMITTER, "ann")
    answer = client.post("/jobs/submit", json={"type": "demo", "agent": "bob"}, headers=ann)
    if answer.status_code != HTTP_403_FORBIDDEN:
        job = client.get(f"/jobs/{answer.json()['job_id']}", headers=ann).json()
        assert job["agent"] == "ann"


def test_a_worker_cannot_speak_for_another(client: Client, services: Services, tokens: Tokens) -> None:
    a_job(services)
    good, bad = tokens.of(Role.WORKER, "good"), tokens.header(Role.WORKER, "bad")
    assert good.token.worker_id is not None
    claim = claimed(services, good.token.worker_id)
    job, token = claim.key.job_id, claim.key.token
    assert client.post("/workers/good/heartbeat", json={}, headers=bad).status_code == HTTP_403_FORBIDDEN
    assert client.post("/workers/good/leave", headers=bad).status_code == HTTP_403_FORBIDDEN
    for verb, said in (
        ("start", {}),
        ("progress", {"done": 0.5}),
        ("complete", {"result": 1}),
        ("fail", {}),
        ("release", {}),
    ):
        answer = client.post(f"/jobs/{job}/{verb}", json={"token": token, **said}, headers=bad)
        assert answer.status_code in (403, 404, 409), verb
    marked = {"external_id": "p-1", "status": "submitted"}
    for place, said in (("checkpoint", {"value": 1}), ("service", marked)):
        answer = client.put(f"/jobs/{job}/{place}", json={"token": token, **said}, headers=bad)
        assert answer.status_code in (403, 404, 409), place
    good_one = {"authorization": f"Bearer {good.secret}"}
    answer = client.post(f"/jobs/{job}/complete", json={"token": token, "result": 1}, headers=good_one)
    assert answer.json()["status"] == "done"


def test_a_bootstrap_token_makes_only_its_own_worker(client: Client, tokens: Tokens) -> None:
    tokens.of(Role.WORKER, "other")
    mine = tokens.header(Role.BOOTSTRAP, "mine")
    asked = {"worker_id": "other", "incarnation": "12345678"}
    assert client.post("/workers/register", json=asked, headers=mine).status_code == HTTP_403_FORBIDDEN
    made = client.post("/workers/register", json={"incarnation": "12345678"}, headers=mine)
    assert made.json()["worker_id"] == "mine"
    worker = {"authorization": f"Bearer {made.json()['token']}"}
    assert client.post("/workers/mine/heartbeat", json={}, headers=worker).status_code == 200
    again = client.post("/workers/register", json={"incarnation": "another-life"}, headers=mine)
    assert again.status_code == HTTP_403_FORBIDDEN
