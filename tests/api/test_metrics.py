"""Metrics: what Prometheus reads, at a price that does not depend on how often it asks (A5)."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from herdsman.api.routes import look
from herdsman.control.services import Services
from herdsman.core.access import Role
from herdsman.core.errors import StoreUnavailable
from herdsman.store.database import Database
from tests.api.calling import Client
from tests.api.conftest import Tokens
from tests.builders import a_job, a_worker


@pytest.fixture
def scraper(tokens: Tokens) -> dict[str, str]:
    return tokens.header(Role.METRICS)


def scrape(client: Client, who: dict[str, str]) -> dict[tuple[str, tuple[str, ...]], float]:
    answer = client.get("/metrics", headers=who)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_jobs_queues_and_workers_are_counted(
    client: Client, scraper: dict[str, str], services: Services
) -> None:
    """S2-36 for the depth of the queue."""
    a_job(services)
    a_job(services)
    a_worker(services)
    found = scrape(client, scraper)
    assert found["herdsman_jobs", ("pending",)] == 2
    assert found["herdsman_jobs", ("done",)] == 0
    assert found["herdsman_queue_depth", ("",)] == 2
    assert found["gpu_orchestrator_job_queue_depth", ("",)] == 2
    assert found["herdsman_workers", ("active",)] == 1
    assert found["herdsman_queue_oldest_seconds", ()] >= 0
    assert found["herdsman_database_up", ()] == 1
    assert found["herdsman_claims_waiting", ()] == 0


def test_requests_are_counted_by_route_and_status(
    client: Client, scraper: dict[str, str], tokens: Tokens
) -> None:
    admin = tokens.header(Role.ADMIN)
    for name in ("a", "b"):
        client.get(f"/jobs/{name}", headers=admin)
    client.post("/jobs/submit", json={"type": "demo"}, headers=admin)
    client.post("/jobs/submit", json={}, headers=admin)
    client.post("/jobs/submit", json={}, headers=scraper)
    found = scrape(client, scraper)
    assert found["herdsman_requests_total", ("GET", "/jobs/{job_id}", "404")] == 2
    for status in ("201", "422", "403"):
        assert found["herdsman_requests_total", ("POST", "/jobs/submit", status)] == 1
    assert found["herdsman_request_seconds_count", ("POST", "/jobs/submit")] == 3


def test_the_rounds_of_the_dispatcher_are_measured(
    client: Client, scraper: dict[str, str], tokens: Tokens, services: Services
) -> None:
    a_job(services)
    worker = tokens.header(Role.WORKER, "w1")
    client.get("/health/live")
    assert client.post("/jobs/claim", json={}, headers=worker).json()["claims"]
    found = scrape(client, scraper)
    assert found["herdsman_dispatch_workers_count", ()] == 1
    assert found["herdsman_dispatched_workers_total", ()] == 1


def test_however_often_it_is_asked_the_database_is_looked_at_once(
    client: Client, scraper: dict[str, str], services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A5."""
    looks: list[int] = []
    plain = look.count_jobs

    def counted(given: Services) -> Any:
        looks.append(1)
        return plain(given)

    monkeypatch.setattr(look, "count_jobs", counted)
    for _ in range(20):
        a_job(services)
        assert scrape(client, scraper)["herdsman_jobs", ("pending",)] == 1
    assert looks == [1]


def test_without_the_database_the_last_numbers_stay_and_say_their_age(
    client: Client, scraper: dict[str, str], services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "OFTEN_S", 0.0)
    monkeypatch.setattr(look, "SHARE", 0)
    a_job(services)
    scrape(client, scraper)

    def away(_self: Database, _work: Any) -> Any:
        raise StoreUnavailable("it is away")

    monkeypatch.setattr(Database, "read", away)
    found = scrape(client, scraper)
    assert found["herdsman_database_up", ()] == 0
    assert found["herdsman_jobs", ("pending",)] == 1
    assert found["herdsman_look_age_seconds", ()] > 0
