"""Pools with everything that a test does not name filled in, and a control loop that keeps them."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import text

from herdsman.context import Services
from herdsman.ids import PoolId
from herdsman.pools.commands import find_pool, start_pool
from herdsman.pools.rules import NewPool, PoolReport, Serves
from herdsman.states import PoolStatus
from tests.support.control_loop import POLICY, FleetHarness, a_harness
from tests.support.databases import MovingClock

LLM = PoolId("llm")
SERVES = Serves(model="org/llama-8b")


@contextmanager
def a_pool_harness(services: Services, clock: MovingClock) -> Generator[FleetHarness]:
    """Nothing is kept but what is asked for by name."""
    with a_harness(services, clock) as harness:
        harness.policy = replace(POLICY, min_workers=0, max_workers=6)
        yield harness


def a_pool(services: Services, name: str = LLM, **asked: Any) -> PoolReport:
    given: dict[str, Any] = {"serves": SERVES, "desired_workers": 2, **asked}
    return start_pool(services, NewPool(pool_id=PoolId(name), **given)).status


def state(services: Services, name: str = LLM) -> PoolStatus:
    return find_pool(services, PoolId(name)).pool.status


def rented(harness: FleetHarness) -> int:
    """Machines that cost money now."""
    return len(harness.fake.ledger.alive)


def alive(services: Services, name: str = LLM) -> list[str]:
    query = text("SELECT id FROM workers WHERE pool = :pool AND status <> 'terminated' ORDER BY id")
    return services.database.read(lambda tx: [row[0] for row in tx.execute(query, {"pool": name})])


def cycles(harness: FleetHarness, count: int = 3) -> None:
    """By a new control plane, which knows nothing but what is written down."""
    replica = harness.replica()
    for _ in range(count):
        harness.cycle(replica)


def history(services: Services, name: str = LLM) -> list[tuple[str, str]]:
    """The states that it went through, and why; without a gap (A1)."""
    query = text(
        "SELECT seq, to_status, reason FROM orchestrator_audit"
        " WHERE object_kind = 'pool' AND object_id = :name ORDER BY seq"
    )
    rows = services.database.read(lambda tx: [tuple(row) for row in tx.execute(query, {"name": name})])
    assert [seq for seq, _, _ in rows] == list(range(1, len(rows) + 1)), "the audit has a gap"
    return [(to, reason) for _, to, reason in rows]
