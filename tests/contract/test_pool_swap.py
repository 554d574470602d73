"""A pool changes what it serves while it serves, and workers follow one after the other."""

from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from herdsman.context import Services
from herdsman.errors import InvalidRequest
from herdsman.fleet import sql as fleet_sql
from herdsman.fleet.model import Instance, SpawnRequest
from herdsman.ids import WorkerId
from herdsman.jobs.protocol import Load, WorkerHeartbeat
from herdsman.jobs.worker_commands import record_heartbeat
from herdsman.pools.commands import evict_pool, find_pool, swap_pool
from herdsman.pools.rules import PoolRules, Serves
from herdsman.ports import Provider
from tests.support.builders import a_worker, scalar
from tests.support.control_loop import FleetHarness
from tests.support.databases import every_database, one_database
from tests.support.pools import LLM, a_pool, alive, cycles

pytestmark = one_database


@dataclass(frozen=True)
class Listening:
    """A provider that remembers what was asked of it."""

    real: Any
    asked: list[SpawnRequest]

    @property
    def name(self) -> str:
        return self.real.name

    def spawn(self, request: SpawnRequest) -> Instance:
        self.asked.append(request)
        return self.real.spawn(request)


def says(services: Services, worker: str, revision: int | None = None, **said: object) -> Load | None:
    heartbeat = WorkerHeartbeat(revision=revision, **said)  # type: ignore[arg-type]  # a test names real fields
    return record_heartbeat(services, WorkerId(worker), heartbeat).load


@every_database
def test_a_new_worker_begins_with_what_its_pool_serves(pool_loop: FleetHarness) -> None:
    """Its machine is told, and so the first beat brings no second order."""
    rules = PoolRules(preload=("org/embed", "org/rank"))
    a_pool(
        pool_loop.services,
        desired_workers=1,
        rules=rules,
        serves=Serves(model="org/m", adapter="a", variant="fp16"),
    )
    replica = pool_loop.replica()
    asked: list[SpawnRequest] = []
    executor = replica.executor
    listening = cast("Provider", Listening(executor.provider, asked))
    replica = replace(replica, executor=replace(executor, provider=listening))
    for _ in range(3):
        pool_loop.cycle(replica)
    (request,) = asked
    given = request.environment
    assert given["HERDSMAN_MODEL"] == "org/m"
    assert given["HERDSMAN_ADAPTER"] == "a"
    assert given["HERDSMAN_VARIANT"] == "fp16"
    assert given["HERDSMAN_PRELOAD"] == "org/embed,org/rank"
    assert given["HERDSMAN_REVISION"] == "1"
    (worker,) = alive(pool_loop.services)
    assert says(pool_loop.services, worker, revision=1) is None
    assert find_pool(pool_loop.services, LLM).at_revision == 1


def test_workers_follow_one_after_the_other(pool_loop: FleetHarness) -> None:
    services = pool_loop.services
    a_pool(services)
    cycles(pool_loop)
    fleet = alive(services)
    for worker in fleet:
        assert says(services, worker, revision=1) is None
    swapped = swap_pool(services, LLM, {"model": "org/new", "variant": "int8"})
    assert (swapped.pool.revision, swapped.at_revision, swapped.swapping) == (2, 0, True)
    followed: list[str] = []
    for number in range(1, 3):
        cycles(pool_loop, 2)
        reply = {worker: says(services, worker) for worker in fleet}
        told = [worker for worker, order in reply.items() if order is not None]
        assert len(told) == 1, "the other one serves"
        assert reply[told[0]] == Load(revision=2, model="org/new", variant="int8")
        assert says(services, told[0], revision=2) is None
        followed += told
        assert find_pool(services, LLM).at_revision == number
    assert sorted(followed) == fleet
    assert not find_pool(services, LLM).swapping
    cycles(pool_loop, 2)
    assert [says(services, worker) for worker in fleet] == [None, None]


def test_a_worker_that_cannot_follow_stalls_the_swap_and_says_why(pool_loop: FleetHarness) -> None:
    services = pool_loop.services
    a_pool(services)
    cycles(pool_loop)
    fleet = alive(services)
    for worker in fleet:
        says(services, worker, revision=1)
    swap_pool(services, LLM, {"model": "org/broken"})
    cycles(pool_loop, 2)
    (told,) = [worker for worker in fleet if says(services, worker) is not None]
    says(services, told, trouble="revision 2 could not be loaded: no such model")
    cycles(pool_loop, 3)
    seen = find_pool(services, LLM)
    assert (seen.swapping, seen.at_revision) == (True, 0)
    assert seen.troubles == ("revision 2 could not be loaded: no such model",)
    assert len([worker for worker in fleet if says(services, worker) is not None]) == 1
    swap_pool(services, LLM, {"model": "org/mended"})
    cycles(pool_loop, 2)
    order = says(services, told)
    assert order is not None, "what it was told last is what counts"
    assert (order.revision, order.model) == (3, "org/mended")
    says(services, told, trouble="revision 3 could not be loaded: the disk was full")
    assert swap_pool(services, LLM, {"model": "org/mended"}).pool.revision == 4, "asked again, they try again"


@every_database
def test_a_swap_to_the_same_changes_nothing_and_null_takes_away(services: Services) -> None:
    a_pool(services, serves=Serves(model="m", adapter="a"))
    assert swap_pool(services, LLM, {"adapter": "a"}).pool.revision == 1
    swapped = swap_pool(services, LLM, {"adapter": None}, who="ann")
    assert (swapped.pool.revision, swapped.pool.serves) == (2, Serves(model="m"))
    with pytest.raises(InvalidRequest, match="model_id"):
        swap_pool(services, LLM, {"model": "not a name"})
    noted = scalar(services.database, "SELECT metadata FROM worker_pools")
    assert "ann" in str(noted)


@every_database
def test_what_a_worker_has_loaded_is_known_and_bounded(services: Services) -> None:
    """X9"""
    worker = a_worker(services)
    count = "SELECT COUNT(*) FROM worker_models WHERE worker_id = 'w1'"
    says(services, worker, models=("org/a", "org/b"))
    says(services, worker)
    assert scalar(services.database, count) == 2
    says(services, worker, models=("org/b", *(f"m{number}" for number in range(500))))
    assert scalar(services.database, count) == fleet_sql.MOST_MODELS
    says(services, worker, models=())
    assert scalar(services.database, count) == 0


@every_database
def test_a_worker_that_is_gone_has_nothing_loaded(pool_loop: FleetHarness) -> None:
    services = pool_loop.services
    a_pool(services, desired_workers=1)
    cycles(pool_loop)
    (worker,) = alive(services)
    says(services, worker, models=("org/a",))
    assert scalar(services.database, "SELECT COUNT(*) FROM worker_models") == 1
    evict_pool(services, LLM)
    cycles(pool_loop, 5)
    assert scalar(services.database, "SELECT COUNT(*) FROM worker_models") == 0
