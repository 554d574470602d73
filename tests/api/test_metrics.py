"""Metrics: what Prometheus reads, at a price that does not depend on how often it asks (A5)."""

from datetime import timedelta
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import insert

from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.db.connection import Database, Tx
from herdsman.db.schema import gpus
from herdsman.errors import StoreUnavailable
from herdsman.fleet.stats_sql import BOUNDS, Took
from herdsman.jobs.worker_commands import complete_job
from herdsman.limits.commands import pause
from herdsman.limits.rules import scope_of
from herdsman.server import metrics as look
from herdsman.server.metrics import JobLatency
from herdsman.states import LEASE, LeaseStatus
from herdsman.telemetry import metric_families as metrics
from tests.api.calling import Client
from tests.api.conftest import Tokens
from tests.support.builders import a_claim, a_job, a_worker, claimed
from tests.support.databases import NOON, MovingClock
from tests.support.rows import add_row, move_row


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


def test_jobs_queues_and_workers_are_counted(client: Client, scraper: dict[str, str], services: Services) -> None:
    """The depth of the queue."""
    a_job(services)
    a_job(services)
    a_worker(services)
    found = scrape(client, scraper)
    assert found["herdsman_jobs", ("pending",)] == 2
    assert found["herdsman_jobs", ("done",)] == 0
    assert found["herdsman_queue_depth", ("default",)] == 2
    assert found["gpu_orchestrator_job_queue_depth", ("default",)] == 2
    assert found["herdsman_workers", ("active",)] == 1
    assert found["herdsman_queue_oldest_seconds", ()] >= 0
    assert found["herdsman_database_up", ()] == 1
    assert found["herdsman_claims_waiting", ()] == 0


def test_requests_are_counted_by_route_and_status(client: Client, scraper: dict[str, str], tokens: Tokens) -> None:
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


OLDER_NAMES = {
    "gpu_orchestrator_leases_active",
    "gpu_orchestrator_leases_free",
    "gpu_orchestrator_worker_pools_total",
    "gpu_orchestrator_worker_pool_workers",
    "gpu_orchestrator_job_queue_depth",
    "gpu_orchestrator_gpu_mem_used_pct",
    "gpu_orchestrator_job_latency_seconds",
}


def test_the_metrics_have_the_names_that_dashboards_know(client: Client, scraper: dict[str, str]) -> None:
    """Each is there before anything has happened."""
    text = client.get("/metrics", headers=scraper).text
    assert {family.name for family in text_string_to_metric_families(text)} >= OLDER_NAMES


def a_gpu(services: Services, uuid: str, **values: Any) -> None:
    usual = {"node_id": "n1", "gpu_index": 0, "name": "H", "total_mb": 1000, "used_mb": 250, "outside_mb": 0}

    def write(tx: Tx) -> None:
        tx.execute(
            insert(gpus).values({**usual, "uuid": uuid, "measured_at": tx.now(), "proven_at": tx.now(), **values})
        )

    services.database.transact(write)


def test_gpus_and_their_leases_are_counted(client: Client, scraper: dict[str, str], services: Services) -> None:
    now = services.database.read(lambda tx: tx.now())
    a_gpu(services, "leased")
    a_gpu(services, "free", gpu_index=1)
    a_gpu(services, "sick", gpu_index=2, quarantined_at=now)
    a_gpu(services, "used", gpu_index=3, used_mb=900, outside_mb=900, utilisation=7)
    a_gpu(services, "silent", gpu_index=4, measured_at=now - timedelta(hours=1))
    soon = now + timedelta(minutes=1)
    add_row(services.database, LEASE, "l1", gpu_uuid="leased", expires_at=soon)
    add_row(services.database, LEASE, "l2", gpu_uuid="free", expires_at=soon)
    move_row(services.database, LEASE, LeaseStatus.EXPIRED, "l2")
    found = scrape(client, scraper)
    assert found["gpu_orchestrator_leases_active", ()] == 1
    assert found["gpu_orchestrator_leases_free", ()] == 1
    assert found["herdsman_leases_expired_last_hour", ()] == 1
    assert found["herdsman_gpus_quarantined", ()] == 1
    assert found["gpu_orchestrator_gpu_mem_used_pct", ("0", "n1")] == 25
    assert found["gpu_orchestrator_gpu_mem_used_pct", ("3", "n1")] == 90
    assert ("gpu_orchestrator_gpu_mem_used_pct", ("4", "n1")) not in found
    assert found["herdsman_gpu_utilisation_pct", ("3", "n1")] == 7


def test_pools_and_holds_are_counted(client: Client, scraper: dict[str, str], services: Services) -> None:
    a_worker(services, pool="by-hand")
    pause(services, scope_of(pool="by-hand"))
    found = scrape(client, scraper)
    assert found["gpu_orchestrator_worker_pools_total", ()] == 2
    assert found["gpu_orchestrator_worker_pool_workers", ("by-hand",)] == 1
    assert found["gpu_orchestrator_worker_pool_workers", ("default",)] == 0
    assert (found["herdsman_holds", ("pause",)], found["herdsman_holds", ("drain",)]) == (1, 0)


def test_a_claim_that_nobody_took_back_is_seen(
    client: Client, scraper: dict[str, str], services: Services, clock: MovingClock
) -> None:
    a_claim(services)
    clock.advance(timedelta(minutes=10))
    assert scrape(client, scraper)["herdsman_claims_overdue", ()] == 1


def test_recovered_results_are_counted_with_what_they_saved(
    client: Client, scraper: dict[str, str], services: Services
) -> None:
    complete_job(services, a_claim(services).key, 1, saved=timedelta(seconds=41.5))
    found = scrape(client, scraper)
    assert (found["herdsman_recovered_jobs", ()], found["herdsman_saved_gpu_seconds", ()]) == (1, 41.5)


def test_however_many_pools_there_are_few_are_shown() -> None:
    """X9: a name that users choose must not make series without end."""
    shown = metrics.bounded({f"p{number}": number for number in range(10)}, 3)
    assert shown == [(("p9",), 9), (("p8",), 8), (("p7",), 7), (("other",), 21)]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request looks again."""
    monkeypatch.setattr(look, "OFTEN_S", 0.0)
    monkeypatch.setattr(look, "SHARE", 0)


LATENCY = "gpu_orchestrator_job_latency_seconds"


@pytest.mark.usefixtures("eager")
def test_the_time_that_jobs_took_is_counted_once_and_never_down(
    client: Client, scraper: dict[str, str], services: Services, clock: MovingClock
) -> None:
    """The mean of the last minutes is the rate of the sum by that of the count."""
    clock.stop(at=NOON)
    worker = a_worker(services)
    for took in (timedelta(seconds=3), timedelta(seconds=20)):
        a_job(services, type="demo")
        clock.advance(took)
        complete_job(services, claimed(services, worker).key, None)
    first = scrape(client, scraper)
    assert first[f"{LATENCY}_count", ("demo",)] == 1, "others may have ended just now that are not committed yet"
    clock.advance(timedelta(seconds=5))
    for _ in range(3):
        found = scrape(client, scraper)
        assert found[f"{LATENCY}_count", ("demo",)] == 2
        assert found[f"{LATENCY}_sum", ("demo",)] == pytest.approx(23, abs=0.01)
        assert found[f"{LATENCY}_bucket", ("2.0", "demo")] == 0
        assert found[f"{LATENCY}_bucket", ("5.0", "demo")] == 1
        assert found[f"{LATENCY}_bucket", ("+Inf", "demo")] == 2
        clock.advance(timedelta(minutes=3))


def test_only_so_many_types_have_a_name() -> None:
    spans = JobLatency()
    for number in range(60):
        spans.add([Took(f"t{number}", 1, 1.0, (1,) * len(BOUNDS))])
    counts = {s.labels["type"]: s.value for s in spans.metric().samples if s.name.endswith("_count")}
    assert len(counts) == 51
    assert counts["other"] == 10
