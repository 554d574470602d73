"""Many holders, some of them stopped past the end of their leases: no GPU is ever used twice (L1, L2, L3)."""

import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from herdsman.access.authenticator import Keyring
from herdsman.access.commands import create_token
from herdsman.access.rules import Role
from herdsman.client import Client
from herdsman.context import Services
from herdsman.jobs.sweep import end_overdue_leases
from herdsman.leases.commands import list_gpus, list_leases
from herdsman.server.app import create_app
from herdsman.server.http_server import ApiServer, Listening, bind
from herdsman.server.state import build_state
from herdsman.testing.simulation.checks import violations
from herdsman.testing.simulation.checks.history import Use
from herdsman.testing.simulation.event_log import read_history
from tests.chaos.children import Children, children
from tests.chaos.lease_holders import (
    GPUS,
    TOTAL_MB,
    TTL_S,
    LeaseCluster,
    holders,
    http_holder,
    node,
    services_at,
)
from tests.support.amounts import amount
from tests.support.builders import scalar

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

KEYRING = Keyring(pepper=b"p" * 32)
GRANTS = amount("GRANTS", 120, soak=2000)
PROCESSES = amount("LEASE_PROCESSES", 4)
HOLDERS = amount("LEASE_HOLDERS", 8)
BY_HTTP = 2
PATIENCE = 60 + GRANTS * 0.1
STOPPED_S = (TTL_S * 1.2, TTL_S * 2.2)


@pytest.fixture
def cluster(url: str, tmp_path: Path) -> Iterator[LeaseCluster]:
    with services_at(url) as services:
        secret = create_token(services, KEYRING, role=Role.OPERATOR, name="chaos").secret
    server = an_api(url)
    yield LeaseCluster(url, tmp_path, server.url, secret)
    server.stop()


def an_api(url: str) -> ApiServer:
    """Serves until it is stopped, or its process dies."""
    opened = services_at(url)
    services = opened.__enter__()
    state = build_state(services, KEYRING)

    def end() -> None:
        state.stop_waiting()
        opened.__exit__(None, None, None)

    server = ApiServer(create_app(state), bind(Listening(host="127.0.0.1", port=0)), on_stop=end)
    server.start()
    return server


def test_l1_l2_l3_no_gpu_is_ever_used_twice_and_no_lease_is_left(cluster: LeaseCluster) -> None:
    chance, everybody = random.Random(GRANTS), HOLDERS + BY_HTTP
    by_http = min(200, GRANTS // 20)
    share = -(-(GRANTS - BY_HTTP * by_http) // HOLDERS)
    with children("tests.chaos.lease_holders") as family:
        family.start("node", node, cluster, everybody)
        for number in range(PROCESSES):
            numbers = range(number, HOLDERS, PROCESSES)
            family.start(f"holders-{number}", holders, cluster, numbers, everybody, share)
        for number in range(HOLDERS, everybody):
            family.start(f"http-{number}", http_holder, cluster, number, everybody, by_http)
        began = time.monotonic()
        stopped = stop_some_until_done(family, chance)
        took = time.monotonic() - began
        with services_at(cluster.database_url) as services:
            until_nothing_is_held(services)
            family.ask_to_stop("node")
            found = the_uses(cluster)
            check(services, found)
    most = json.loads(cluster.story("node").read_text())["most"]
    assert most <= TOTAL_MB, f"{most} MB were really in use on one GPU"
    late = sum(use.late == "gone" for use in found)
    print(f"{len(found)} grants, {stopped} stops, {late} late heartbeats refused, {took:.0f} s, most {most} MB")
    assert stopped > 0
    assert len(found) >= GRANTS


def stop_some_until_done(family: Children, chance: random.Random) -> int:
    """One after the other holders stand still past the end of their leases, and wake up."""
    count, deadline = 0, time.monotonic() + PATIENCE
    while busy := [name for name in family.names if name != "node" and family.alive(name)]:
        assert time.monotonic() < deadline, f"{busy} took too long"
        # Those that speak to the database themselves stop with its locks: it happens, but not all the time.
        outside = [name for name in busy if name.startswith("http")]
        victim = chance.choice(outside if outside and chance.random() < 0.9 else busy)
        with suppress(ProcessLookupError):  # it has just ended by itself
            family.pause(victim)
            time.sleep(chance.uniform(*STOPPED_S))
            family.resume(victim)
            count += 1
        time.sleep(chance.uniform(0, TTL_S / 2))
    return count


def until_nothing_is_held(services: Services) -> None:
    waited_for(lambda: end_overdue_leases(services) == 0 and not _live(services), 4 * TTL_S)


def _live(services: Services) -> tuple[object, ...]:
    return list_leases(services, agent=None, ended=False, after=None, limit=10).leases


def waited_for(fact: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def the_uses(cluster: LeaseCluster) -> list[Use]:
    stories = [*cluster.directory.glob("holder-*.jsonl"), *cluster.directory.glob("http-*.jsonl")]
    return [Use(**json.loads(line)) for story in stories for line in story.read_text().splitlines()]


def check(services: Services, uses: list[Use]) -> None:
    database = services.database
    gpus = [gpu for gpu, _ in list_gpus(services, after=None, limit=50).gpus]
    assert len(gpus) == GPUS
    history = read_history(database, zero=datetime.now(UTC))
    total_mb = {gpu.uuid: TOTAL_MB for gpu in gpus}
    assert violations(replace(history, uses=tuple(uses), gpu_mb=total_mb)) == []
    for gpu in gpus:
        counted = "SELECT {} FROM orchestrator_leases WHERE gpu_uuid = :uuid"
        numbers = [
            int(scalar(database, counted.format(what), uuid=gpu.uuid) or 0)
            for what in ("COUNT(*)", "COUNT(DISTINCT lease_seq)", "MAX(lease_seq)")
        ]
        assert numbers == [gpu.lease_seq] * 3, "every number was given once, and none was left out"


def serve(url: str, where: str) -> None:
    server = an_api(url)
    Path(where).write_text(server.url)
    signal.pause()


def test_a_lease_survives_the_kill_of_the_server_with_the_same_end(url: str, tmp_path: Path) -> None:
    with services_at(url) as services:
        secret = create_token(services, KEYRING, role=Role.OPERATOR, name="chaos").secret
    where = tmp_path / "address"
    with children("tests.chaos.lease_holders") as family:
        family.start("one", serve, url, str(where))
        waited_for(where.exists, 30)
        with Client(where.read_text(), secret, agent="ann", patience=20) as client:
            told(where.read_text(), secret)
            lease = client.lease(memory_mb=8000, ttl=60)
            with lease:
                before = lease.expires
                family.kill("one")
                where.unlink()
                family.start("two", serve, url, str(where))
                waited_for(where.exists, 30)
                (found,) = leases_of(where.read_text(), secret)
                assert before is not None
                assert (found["token"], datetime.fromisoformat(found["expires_at"])) == (lease.token, before)


def told(url: str, secret: str) -> None:
    device = {"index": 0, "uuid": "GPU-0", "name": "Fake", "total_mb": TOTAL_MB, "used_mb": 0}
    answer = httpx.post(f"{url}/nodes/n1/gpus", json={"gpus": [device]}, headers=bearer(secret), timeout=30)
    assert answer.status_code == 200, answer.text


def leases_of(url: str, secret: str) -> list[dict[str, str]]:
    answer = httpx.get(f"{url}/leases", headers=bearer(secret), timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()["leases"]


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}
