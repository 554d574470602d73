"""Jobs that are not simply given to whoever comes: turns, keys, models, pauses."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert

from herdsman.control.commands import claim_for, complete_job, find_job, submit_jobs
from herdsman.control.services import Services
from herdsman.core.control_policy import AgentLimits, ControlPolicy
from herdsman.core.model import Claim, JobId, NewJob, PoolId, WorkerId
from herdsman.core.work import Ask
from herdsman.store.database import Tx
from herdsman.store.schema_resources import holds, worker_models
from tests.builders import a_job, a_worker
from tests.databases import MovingClock
from tests.threads import at_once

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def ruled(services: Services, rules: ControlPolicy) -> Services:
    return replace(services, rules=lambda: rules)


def queued(services: Services, agent: str, count: int, **wanted: Any) -> None:
    submit_jobs(services, [NewJob(type="demo", agent=agent, **wanted) for _ in range(count)])


def one(services: Services, worker: WorkerId, **asked: Any) -> Claim | None:
    found = claim_for(services, {worker: Ask(**asked)})
    return found[0] if found else None


def served(services: Services, worker: WorkerId, count: int) -> list[str]:
    """The agents whose jobs a worker gets, one after the other."""
    agents: list[str] = []
    for _ in range(count):
        claim = one(services, worker)
        assert claim is not None
        agents.append(_agent(services, claim))
        complete_job(services, claim.key)
    return agents


def _agent(services: Services, claim: Claim) -> str:
    return find_job(services, claim.key.job_id).agent


def test_agents_that_wait_are_served_in_turn(services: Services) -> None:
    queued(services, "flood", 20)
    queued(services, "small", 3)
    agents = served(services, a_worker(services), 8)
    assert sorted(agents[:6]) == ["flood"] * 3 + ["small"] * 3
    assert agents[6:] == ["flood", "flood"]


def test_many_workers_are_dealt_the_jobs_of_all_agents(services: Services) -> None:
    queued(services, "flood", 50)
    queued(services, "small", 2)
    workers = [a_worker(services, f"w{index}") for index in range(6)]
    claims = claim_for(services, {worker: Ask() for worker in workers})
    assert sorted(_agent(services, claim) for claim in claims) == ["flood"] * 4 + ["small"] * 2


def test_a_batch_is_filled_from_all_agents(services: Services) -> None:
    queued(services, "flood", 50)
    queued(services, "small", 2)
    claims = claim_for(services, {a_worker(services): Ask(types=("demo",), most={"demo": 6})})
    assert len(claims) == 6
    assert [_agent(services, claim) for claim in claims].count("small") == 2


def test_without_fairness_who_came_first_is_served_first(services: Services) -> None:
    unfair = ruled(services, ControlPolicy(fair=False))
    queued(unfair, "flood", 5)
    queued(unfair, "small", 1)
    assert served(unfair, a_worker(unfair), 6) == ["flood"] * 5 + ["small"]


def test_without_fairness_the_careful_choice_keeps_the_line_too(services: Services) -> None:
    unfair = ruled(services, ControlPolicy(fair=False))
    for name in ("z", "a"):
        queued(unfair, name, 2, model="m")
    assert served(unfair, a_worker(unfair), 4) == ["z", "z", "a", "a"]


def test_an_agent_keeps_the_order_of_its_own_jobs(services: Services) -> None:
    for index in range(4):
        a_job(services, job_id=JobId(f"a{index}"), agent="a")
        a_job(services, job_id=JobId(f"b{index}"), agent="b")
    worker, ran = a_worker(services), list[str]()
    while (claim := one(services, worker)) is not None:
        ran.append(claim.key.job_id)
        complete_job(services, claim.key)
    assert [each for each in ran if each[0] == "a"] == ["a0", "a1", "a2", "a3"]
    assert [each for each in ran if each[0] == "b"] == ["b0", "b1", "b2", "b3"]


def test_only_so_many_jobs_of_a_key_run_at_a_time(services: Services) -> None:
    two = ruled(services, ControlPolicy(concurrency={"gpu-farm": 2}))
    queued(two, "a", 5, concurrency_key="gpu-farm")
    workers = [a_worker(two, f"w{index}") for index in range(4)]
    first = claim_for(two, {worker: Ask() for worker in workers})
    assert len(first) == 2
    complete_job(two, first[0].key)
    assert len(claim_for(two, {worker: Ask() for worker in workers})) == 1


def test_a_key_that_is_full_does_not_hold_up_what_stands_behind_it(services: Services) -> None:
    a_job(services, job_id=JobId("k1"), concurrency_key="k")
    a_job(services, job_id=JobId("k2"), concurrency_key="k")
    free = a_job(services)
    first, second = a_worker(services, "w1"), a_worker(services, "w2")
    assert (given := one(services, first)) is not None
    assert given.key.job_id == "k1"
    assert (other := one(services, second)) is not None
    assert other.key.job_id == free


def test_the_limit_of_a_key_holds_for_claims_at_the_same_moment(services: Services) -> None:
    """Counted while the key is locked: two replicas cannot both give out its last place."""
    queued(services, "a", 12, concurrency_key="k")
    workers = [a_worker(services, f"w{index}") for index in range(6)]
    given = at_once(len(workers), lambda number: claim_for(services, {workers[number]: Ask()}))
    assert sum(len(claims) for claims in given) == 1


def test_an_agent_runs_no_more_jobs_than_it_may(services: Services) -> None:
    limits = ControlPolicy(agents={"a": AgentLimits(max_running=2)})
    limited = ruled(services, limits)
    queued(limited, "a", 10)
    queued(limited, "b", 10)
    workers = [a_worker(limited, f"w{index}") for index in range(6)]
    agents = [_agent(limited, claim) for claim in claim_for(limited, {worker: Ask() for worker in workers})]
    assert sorted(agents) == ["a"] * 2 + ["b"] * 4


def loads(services: Services, worker: WorkerId, model: str) -> None:
    services.database.transact(
        lambda tx: tx.execute(insert(worker_models).values(worker_id=worker, model=model))
    )


def test_a_job_waits_for_the_worker_that_has_its_model_and_not_for_ever(
    services: Services, clock: MovingClock
) -> None:
    clock.stop(at=NOON)
    warm, cold = a_worker(services, "warm"), a_worker(services, "cold")
    loads(services, warm, "org/sdxl")
    a_job(services, model="org/sdxl")
    assert one(services, cold) is None
    clock.advance(services.policy.model_wait + timedelta(seconds=1))
    assert (claim := one(services, cold)) is not None
    assert claim.model == "org/sdxl"


def test_a_worker_prefers_what_it_has_loaded(services: Services) -> None:
    worker = a_worker(services)
    a_job(services, job_id=JobId("other"), model="b")
    mine = a_job(services, job_id=JobId("mine"), model="a")
    assert (claim := one(services, worker, models=("a",))) is not None
    assert claim.key.job_id == mine


def test_a_model_that_nobody_has_loaded_is_taken_at_once(services: Services) -> None:
    a_job(services, model="b")
    assert one(services, a_worker(services), models=("a",)) is not None


def hold(services: Services, scope: str, until: timedelta | None = None) -> None:
    def write(tx: Tx) -> None:
        values = {"scope": scope, "kind": "pause", "why": "test", "actor": "test", "since": tx.now()}
        tx.execute(insert(holds).values(**values, until=None if until is None else tx.now() + until))

    services.database.transact(write)


@pytest.mark.parametrize("scope", ["all", "pool:default", "type:demo"])
def test_nothing_is_given_out_while_it_is_paused(services: Services, scope: str) -> None:
    hold(services, scope)
    a_job(services)
    assert one(services, a_worker(services)) is None


@pytest.mark.parametrize("scope", ["pool:other", "type:other", "pool:defaul"])
def test_what_is_not_paused_goes_on(services: Services, scope: str) -> None:
    hold(services, scope)
    a_job(services)
    assert one(services, a_worker(services)) is not None


def test_jobs_behind_those_of_a_paused_type_go_on(services: Services) -> None:
    hold(services, "type:demo")
    a_job(services)
    a_job(services, type="other")
    assert (claim := one(services, a_worker(services))) is not None
    assert claim.type == "other"


def test_a_pause_ends_by_itself(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    hold(services, "all", until=timedelta(minutes=1))
    a_job(services)
    worker = a_worker(services)
    assert one(services, worker) is None
    clock.advance(timedelta(minutes=2))
    assert one(services, worker) is not None


def test_pools_are_served_each_for_itself(services: Services) -> None:
    queued(services, "a", 3, pool=PoolId("one"))
    queued(services, "b", 3, pool=PoolId("two"))
    assert (claim := one(services, a_worker(services, "w", pool="two"))) is not None
    assert _agent(services, claim) == "b"
