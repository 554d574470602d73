"""What the dashboard reads, over HTTP: shapes, roles, pages, and an empty database."""

from datetime import timedelta
from typing import Any

import pytest

from herdsman import concurrency
from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.explain.wire import EtaOut, TimelineOut, WhyOut
from herdsman.fleet.wire import CostOut, FleetOut, OverviewOut
from herdsman.ids import JobId
from herdsman.jobs.commands import find_job
from herdsman.jobs.worker_commands import fail_job
from herdsman.server.access import MATRIX, VERBS
from herdsman.settings import load_settings, rows
from herdsman.states import JobStatus
from tests.api.calling import Client
from tests.api.conftest import Build, Tokens
from tests.support.apps import an_app
from tests.support.builders import HOPELESS, a_claim, a_job, a_worker, an_ended_job
from tests.support.control_loop import FleetHarness
from tests.support.databases import MovingClock

SETTINGS = {"DATABASE_URL": "postgresql://ann:hunter2@db/herd", "RUNPOD_API_KEY": "rpa_" + "S" * 40}


@pytest.fixture
def viewer(tokens: Tokens) -> dict[str, str]:
    return tokens.header(Role.VIEWER, "vic")


@pytest.fixture
def operator(tokens: Tokens) -> dict[str, str]:
    return tokens.header(Role.OPERATOR, "olga")


def got(client: Client, path: str, who: dict[str, str], **given: Any) -> Any:
    answer = client.get(path, headers=who, **given)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_everything_answers_on_an_empty_database(client: Client, viewer: dict[str, str]) -> None:
    assert OverviewOut.model_validate(got(client, "/overview", viewer)).queue == ()
    assert FleetOut.model_validate(got(client, "/fleet", viewer)) == FleetOut(workers=(), more=0)
    assert got(client, "/decisions", viewer) == {"cycles": [], "next": None}
    assert got(client, "/failures", viewer)["groups"] == []
    assert CostOut.model_validate(got(client, "/cost", viewer)).total_usd == 0


def test_an_overview_is_looked_up_once_for_all_who_ask(
    client: Client, viewer: dict[str, str], services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrency, "FRESH_S", 3600)
    first = got(client, "/overview", viewer)
    a_job(services)
    assert got(client, "/overview", viewer) == first


def test_an_overview_is_soon_looked_up_again(
    client: Client, viewer: dict[str, str], services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrency, "FRESH_S", 0)
    monkeypatch.setattr(concurrency, "SHARE", 0)
    got(client, "/overview", viewer)
    job = a_job(services, type="image")
    found = got(client, "/overview", viewer)
    assert (found["jobs"]["pending"], found["oldest_job"]) == (1, job)
    assert [(each["type"], each["queued"]) for each in found["queue"]] == [("image", 1)]


def test_why_answers_for_a_job_a_worker_and_a_pool(client: Client, viewer: dict[str, str], services: Services) -> None:
    job = a_job(services)
    a_worker(services, "w1", pool="other")
    told = WhyOut.model_validate(got(client, f"/why/job/{job}", viewer))
    assert (told.kind, told.id, told.status) == ("job", job, "pending")
    assert told.because
    assert told.blocker is not None
    assert (told.blocker.code, told.blocker.ends) == ("NO_LEADER", "start a control plane: herdsman up")
    assert told.because[0].startswith(f"Waiting: {told.blocker.text}")
    assert [each.to_status for each in told.history] == ["pending"]
    assert got(client, "/why/worker/w1", viewer)["status"] == "active"
    pool = WhyOut.model_validate(got(client, "/why/pool/default", viewer))
    assert pool.next_worker is not None
    assert pool.next_worker.queued == 1
    for path in ("/why/job/nobody", "/why/worker/nobody", "/why/pool/nobody"):
        assert client.get(path, headers=viewer).status_code == 404
    assert client.get("/why/lease/x", headers=viewer).status_code == 422


def test_a_submitter_asks_about_its_own_jobs_and_nothing_else(
    client: Client, tokens: Tokens, services: Services
) -> None:
    ann = tokens.header(Role.SUBMITTER, "ann")
    mine, theirs = a_job(services, agent="ann"), a_job(services, agent="bob")
    for path in ("/why/job/{}", "/jobs/{}/eta", "/jobs/{}/timeline"):
        assert client.get(path.format(mine), headers=ann).status_code == 200
        hidden, missing = (client.get(path.format(each), headers=ann) for each in (theirs, "nobody"))
        assert (hidden.status_code, missing.status_code) == (404, 404)
        assert hidden.json()["detail"] == missing.json()["detail"].replace("nobody", theirs)
    for path in ("/why/worker/w1", "/why/pool/default"):
        assert client.get(path, headers=ann).status_code == 403


def test_a_job_is_told_its_outlook_and_its_timeline(client: Client, viewer: dict[str, str], services: Services) -> None:
    job = a_job(services)
    assert EtaOut.model_validate(got(client, f"/jobs/{job}/eta", viewer)).position == 1
    found = got(client, f"/jobs/{job}/timeline", viewer)
    TimelineOut.model_validate(found)
    (queue,) = found["segments"]
    assert (queue["what"], queue["to"]) == ("queue", None)
    assert "from" in queue


def test_many_jobs_are_changed_at_once_each_answered_by_itself(
    client: Client, tokens: Tokens, services: Services
) -> None:
    ann = tokens.header(Role.SUBMITTER, "ann")
    mine, theirs = a_job(services, agent="ann"), a_job(services, agent="bob")
    done = client.post("/jobs/cancel", headers=ann, json={"ids": [mine, theirs]})
    assert done.status_code == 200
    assert [each["status"] for each in done.json()["jobs"]] == ["cancelled", None]
    assert done.json()["jobs"][1]["refused"] == f"there is no job {theirs!r}"
    again = client.post("/jobs/retry", headers=ann, json={"ids": [mine, theirs]}).json()
    assert (again["changed"], again["jobs"][0]["status"]) == (1, "pending")
    assert find_job(services, theirs).status is JobStatus.PENDING
    odd = client.post("/jobs/cancel", headers=ann, json={"ids": ["bad\nname"]}).json()
    assert (odd["changed"], odd["jobs"][0]["status"]) == (0, None)
    assert client.post("/jobs/cancel", headers=ann, json={"ids": []}).status_code == 422
    assert client.post("/jobs/retry", headers=ann, json={"ids": ["x"] * 501}).status_code == 422


def test_a_viewer_changes_nothing(client: Client, viewer: dict[str, str], services: Services) -> None:
    job = a_job(services)
    for path in ("/jobs/cancel", "/jobs/retry", "/failures/requeue", "/workers/w1/drain"):
        assert client.post(path, headers=viewer, json={"ids": [job]}).status_code == 403
    assert client.get("/settings", headers=viewer).status_code == 403


def test_decisions_are_paged_and_one_is_told_in_full(
    client: Client, viewer: dict[str, str], harness: FleetHarness
) -> None:
    harness.with_policy(min_workers=1)
    replica = harness.replica()
    for _ in range(3):
        harness.cycle(replica)
    first = got(client, "/decisions", viewer, params={"limit": 2})
    rest = got(client, "/decisions", viewer, params={"limit": 2, "after": first["next"]})
    numbers = [each["cycle"] for each in (*first["cycles"], *rest["cycles"])]
    assert (numbers, rest["next"]) == (sorted(numbers, reverse=True), None)
    assert len(numbers) == 3
    (spawned,) = rest["cycles"]
    found = got(client, f"/decisions/{spawned['cycle']}", viewer)
    assert found["actions"] == spawned["actions"]
    assert found["pools"][0]["would"]
    acted = got(client, "/decisions", viewer, params={"only": "acted", "pool": "default"})
    assert {each["done"] for cycle in acted["cycles"] for each in cycle["actions"]} == {True}
    assert client.get("/decisions/99999", headers=viewer).status_code == 404
    for bad in ({"after": "x"}, {"limit": "0"}, {"only": "nothing"}):
        assert client.get("/decisions", headers=viewer, params=bad).status_code == 422


def test_failures_are_grouped_and_requeued(client: Client, operator: dict[str, str], services: Services) -> None:
    jobs: list[JobId] = []
    for number in range(2):
        claim = a_claim(services, f"w{number}")
        fail_job(services, claim.key, HOPELESS)
        jobs.append(claim.key.job_id)
    (group,) = got(client, "/failures", operator)["groups"]
    assert (group["count"], group["cause"]) == (2, "no such model")
    done = client.post("/failures/requeue", headers=operator, json={"key": group["key"]}).json()
    assert sorted(each["job_id"] for each in done["jobs"]) == sorted(jobs)
    assert got(client, "/failures", operator)["groups"] == []
    gone = client.post("/failures/requeue", headers=operator, json={"key": group["key"]})
    assert gone.status_code == 404
    assert client.get("/failures?since_hours=0", headers=operator).status_code == 422


def test_a_worker_is_drained(client: Client, operator: dict[str, str], services: Services) -> None:
    a_worker(services, "w1")
    answers = [client.post("/workers/w1/drain", headers=operator).json() for _ in range(2)]
    assert [(each["status"], each["already"]) for each in answers] == [
        ("terminating", False),
        ("terminating", True),
    ]
    assert client.post("/workers/nobody/drain", headers=operator).status_code == 404


@pytest.mark.parametrize("role", Role)
def test_everybody_may_ask_who_it_is_and_what_it_may_do(client: Client, tokens: Tokens, role: Role) -> None:
    found = got(client, "/me", tokens.header(role, "ann"))
    assert found["role"] == role
    assert set(found["can"]) == {verb for verb, line in VERBS.items() if role in MATRIX[line]}


def test_what_a_person_may_do_is_told_by_name(client: Client, tokens: Tokens) -> None:
    can = {role: got(client, "/me", tokens.header(role, f"a-{role}"))["can"] for role in Role}
    assert can[Role.VIEWER] == ["look", "jobs"]
    assert can[Role.SUBMITTER] == ["jobs", "submit", "cancel", "retry", "lease"]
    assert "tokens" in can[Role.ADMIN]
    assert "tokens" not in can[Role.OPERATOR]
    assert can[Role.WORKER] == can[Role.METRICS] == []
    assert client.get("/me", headers={"authorization": "Bearer nobody"}).status_code == 401


def test_in_safe_mode_nothing_is_offered_but_looks(build: Build, tokens: Tokens) -> None:
    with Client(an_app(build(safe_mode=True))) as client:
        assert got(client, "/me", tokens.header(Role.ADMIN))["can"] == ["look", "jobs", "settings"]


def test_settings_are_shown_without_their_secrets(build: Build, operator: dict[str, str]) -> None:
    settings = load_settings(given=SETTINGS)
    with Client(an_app(build(settings=settings))) as client:
        answer = client.get("/settings", headers=operator)
    found = {each["name"]: each for each in answer.json()["settings"]}
    assert list(found) == [row.name for row in rows(settings)]
    assert "hunter2" not in answer.text
    assert "SSSS" not in answer.text
    assert found["DATABASE_URL"]["origin"] != "default"
    assert all(each["description"] and each["group"] for each in found.values())


def test_a_replica_that_was_not_told_its_settings_shows_none(client: Client, operator: dict[str, str]) -> None:
    assert got(client, "/settings", operator) == {"settings": []}


def test_a_herd_is_told_with_what_it_holds(client: Client, viewer: dict[str, str], services: Services) -> None:
    claim = a_claim(services, "w1", type="image")
    (worker,) = got(client, "/fleet", viewer)["workers"]
    assert (worker["worker_id"], [each["job_id"] for each in worker["jobs"]]) == ("w1", [claim.key.job_id])


def test_what_cost_nothing_and_a_done_job_are_told(
    client: Client, viewer: dict[str, str], services: Services, clock: MovingClock
) -> None:
    an_ended_job(services, JobStatus.DONE)
    clock.advance(timedelta(seconds=1))
    found = got(client, "/cost?days=1", viewer)
    assert (found["done_jobs"], found["per_done_job_usd"], len(found["by_hour"])) == (1, 0.0, 24)
    for days in ("0", "367", "x"):
        assert client.get(f"/cost?days={days}", headers=viewer).status_code == 422
