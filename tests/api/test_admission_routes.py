"""What a submitter is told when a limit is reached, and what is counted (J10)."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from herdsman.access.rules import Role
from herdsman.client.call import Answer, refusal
from herdsman.context import Services
from herdsman.errors import Overloaded, TooMany
from herdsman.jobs import sql as jobs_sql
from herdsman.limits.commands import PolicyBook, set_policy
from herdsman.limits.wire import written
from herdsman.ports import SystemClock
from herdsman.states import JobStatus
from tests.api.calling import HERE, Client
from tests.api.conftest import Tokens

JOB = {"type": "demo"}


@pytest.fixture
def services(services: Services) -> Services:
    return replace(services, rules=PolicyBook(services.database, SystemClock()))


@pytest.fixture
def ann(tokens: Tokens) -> dict[str, str]:
    return tokens.header(Role.SUBMITTER, "ann")


def limit(services: Services, **policy: Any) -> None:
    set_policy(services, written(policy))


def submit(client: Client, who: dict[str, str], **more: Any) -> httpx.Response:
    return client.post("/jobs/submit", json=JOB | more, headers=who)


def pending(services: Services) -> int:
    return services.database.read(jobs_sql.count_by_state)[JobStatus.PENDING]


def test_an_agent_over_its_rate_gets_429_with_a_code_and_a_time(
    client: Client, ann: dict[str, str], services: Services, tokens: Tokens
) -> None:
    limit(services, agents={"ann": {"rate_per_second": 0.1, "burst": 2}})
    answers = [submit(client, ann) for _ in range(4)]
    assert [each.status_code for each in answers] == [201, 201, 429, 429]
    refused = answers[-1]
    assert refused.json()["code"] == "rate_limited"
    assert refused.json()["type"] == "urn:herdsman:too-many"
    assert 9 <= int(refused.headers["retry-after"]) <= 10
    assert submit(client, tokens.header(Role.SUBMITTER, "bob")).status_code == 201
    assert pending(services) == 3


def test_the_time_that_is_asked_for_is_enough(client: Client, ann: dict[str, str], services: Services) -> None:
    """1.4 s are two seconds in a header of whole ones: after one it would be refused again."""
    limit(services, agents={"ann": {"rate_per_second": 0.7, "burst": 1}})
    submit(client, ann)
    assert submit(client, ann).headers["retry-after"] == "2"


def test_x2_a_submitter_cannot_use_another_s_rate(client: Client, ann: dict[str, str], services: Services) -> None:
    limit(services, agents={"ann": {"rate_per_second": 0.1, "burst": 1}})
    assert submit(client, ann, agent="bob").status_code == 201
    assert submit(client, ann, agent="carl").status_code == 429


def test_j2_a_lost_answer_may_be_asked_for_again(client: Client, ann: dict[str, str], services: Services) -> None:
    limit(services, agents={"ann": {"rate_per_second": 0.1, "burst": 1}})
    assert submit(client, ann, job_id="one").status_code == 201
    assert submit(client, ann).status_code == 429
    assert submit(client, ann, job_id="one").status_code == 200


def test_a_gate_answers_503(client: Client, ann: dict[str, str], services: Services) -> None:
    limit(services, gates={"queue_high": 1})
    assert submit(client, ann).status_code == 201
    refused = submit(client, ann)
    assert (refused.status_code, refused.json()["code"]) == (503, "queue_depth_gate")
    assert refused.json()["type"] == "urn:herdsman:overloaded"
    assert refused.headers["retry-after"] == "5"


def test_the_client_s_error_carries_the_code_and_the_time(
    client: Client, ann: dict[str, str], services: Services
) -> None:
    limit(services, agents={"ann": {"max_queued": 1}}, gates={"queue_high": 2})

    def error() -> Exception:
        answer = submit(client, ann)
        return refusal(Answer(asked="", status=answer.status_code, headers=dict(answer.headers), body=answer.content))

    submit(client, ann)
    found = error()
    assert isinstance(found, TooMany)
    assert (found.code, found.retry_after is not None) == ("queue_quota", True)
    limit(services, gates={"queue_high": 1})
    found = error()
    assert isinstance(found, Overloaded)
    assert found.code == "queue_depth_gate"


def test_a_job_that_was_put_off_or_sent_away_says_so(client: Client, ann: dict[str, str], services: Services) -> None:
    limit(services, agents={"ann": {"rate_per_second": 0.1, "burst": 1}}, cpu_pool="cpu")
    assert submit(client, ann).json().keys() == {"job_id", "created"}
    away = submit(client, ann, allow_cpu=True)
    assert (away.status_code, away.json()["admission"], away.json()["pool"]) == (201, "rate_limited", "cpu")
    late = submit(client, ann, max_defer_seconds=60)
    assert (late.status_code, late.json()["admission"]) == (201, "rate_limited")
    found = client.get(f"/jobs/{late.json()['job_id']}", headers=ann).json()
    assert (found["status"], found["run_at"]) == ("scheduled", late.json()["run_at"])
    assert found["admission"] == "rate_limited"


def test_a_batch_is_refused_whole(client: Client, ann: dict[str, str], services: Services) -> None:
    limit(services, agents={"ann": {"rate_per_second": 0.1, "burst": 3}})
    batch = client.post("/jobs/submit/batch", json={"jobs": [JOB] * 2}, headers=ann)
    assert batch.status_code == 201
    again = client.post("/jobs/submit/batch", json={"jobs": [JOB] * 2}, headers=ann)
    assert (again.status_code, again.json()["code"], pending(services)) == (429, "rate_limited", 2)
    never = client.post("/jobs/submit/batch", json={"jobs": [JOB] * 4}, headers=ann)
    assert never.status_code == 422
    assert "never more than 3" in never.json()["detail"]


def test_decisions_are_counted(client: Client, ann: dict[str, str], services: Services, tokens: Tokens) -> None:
    limit(services, agents={"ann": {"rate_per_second": 0.1, "burst": 3}}, cpu_pool="cpu")
    submit(client, ann, job_id="one")
    submit(client, ann, job_id="one")
    client.post("/jobs/submit/batch", json={"jobs": [JOB] * 2}, headers=ann)
    submit(client, ann)
    submit(client, ann, allow_cpu=True)
    submit(client, ann, max_defer_seconds=60)
    client.post("/jobs/submit/batch", json={"jobs": [JOB] * 2}, headers=ann)
    text = client.get("/metrics", headers=tokens.header(Role.METRICS, "m")).text
    counted = {
        (sample.labels["decision"], sample.labels["code"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "herdsman_admission_total"
    }
    assert counted == {
        ("accepted", ""): 3,
        ("rerouted", "rate_limited"): 1,
        ("deferred", "rate_limited"): 1,
        ("rejected", "rate_limited"): 3,
    }


def test_submissions_that_come_together_are_judged_one_by_one(
    app: FastAPI, ann: dict[str, str], services: Services, tokens: Tokens
) -> None:
    """One agent's flood is in the same transaction as another's jobs, and refuses none of them."""
    limit(services, agents={"ann": {"rate_per_second": 0.001, "burst": 5}})
    bob = tokens.header(Role.SUBMITTER, "bob")

    async def flood() -> list[int]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=("192.0.2.1", 50_000))
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as many:
            sent = [many.post("/jobs/submit", json=JOB, headers=who) for _ in range(30) for who in (ann, bob)]
            return [answer.status_code for answer in await asyncio.gather(*sent)]

    answers = asyncio.run(flood())
    assert (answers[::2].count(201), answers[::2].count(429)) == (5, 25)
    assert answers[1::2] == [201] * 30
