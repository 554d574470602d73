"""Jobs that are not simply given to whoever comes: turns, keys, models, pauses."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from sqlalchemy import insert

from herdsman.connectors.registry import Around, ConnectorManager
from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.db.schema import holds, worker_models
from herdsman.fleet.model import GpuReport
from herdsman.ids import DEFAULT_POOL, HIGHEST, LOWEST, JobId, PoolId, WorkerId
from herdsman.jobs import claim_sql
from herdsman.jobs.assign import claim_for
from herdsman.jobs.commands import find_job, list_jobs, submit_jobs
from herdsman.jobs.model import Claim, NewJob
from herdsman.jobs.protocol import ClaimRequest
from herdsman.jobs.rules import JobSelector, Loaded
from herdsman.jobs.worker_commands import complete_job
from herdsman.jobs.writer import Writer
from herdsman.limits.control_policy import AgentLimits, ControlPolicy
from herdsman.ports import SystemClock
from herdsman.states import JobStatus
from herdsman.worker.health import ServiceHealth
from tests.support.builders import a_job, a_worker
from tests.support.databases import NOON, MovingClock
from tests.support.memory_results import MemoryResults
from tests.support.selector import accepts
from tests.support.servers.server import free_port
from tests.support.threads import at_once
from tests.support.worker_calls import beat


def ruled(services: Services, rules: ControlPolicy) -> Services:
    return replace(services, rules=lambda: rules)


def queued(services: Services, agent: str, count: int, **wanted: Any) -> None:
    submit_jobs(services, [NewJob(type="demo", agent=agent, **wanted) for _ in range(count)])


def one(services: Services, worker: WorkerId, **asked: Any) -> Claim | None:
    found = claim_for(services, {worker: ClaimRequest(**asked)})
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
    claims = claim_for(services, {worker: ClaimRequest() for worker in workers})
    assert sorted(_agent(services, claim) for claim in claims) == ["flood"] * 4 + ["small"] * 2


def test_a_batch_is_filled_from_all_agents(services: Services) -> None:
    queued(services, "flood", 50)
    queued(services, "small", 2)
    claims = claim_for(services, {a_worker(services): ClaimRequest(types=("demo",), most={"demo": 6})})
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
    first = claim_for(two, {worker: ClaimRequest() for worker in workers})
    assert len(first) == 2
    complete_job(two, first[0].key)
    assert len(claim_for(two, {worker: ClaimRequest() for worker in workers})) == 1


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
    given = at_once(len(workers), lambda number: claim_for(services, {workers[number]: ClaimRequest()}))
    assert sum(len(claims) for claims in given) == 1


def test_an_agent_runs_no_more_jobs_than_it_may(services: Services) -> None:
    limits = ControlPolicy(agents={"a": AgentLimits(max_running=2)})
    limited = ruled(services, limits)
    queued(limited, "a", 10)
    queued(limited, "b", 10)
    workers = [a_worker(limited, f"w{index}") for index in range(6)]
    agents = [_agent(limited, claim) for claim in claim_for(limited, {worker: ClaimRequest() for worker in workers})]
    assert sorted(agents) == ["a"] * 2 + ["b"] * 4


def loads(services: Services, worker: WorkerId, model: str) -> None:
    services.database.transact(lambda tx: tx.execute(insert(worker_models).values(worker_id=worker, model=model)))


def test_a_job_waits_for_the_worker_that_has_its_model_and_not_for_ever(services: Services, clock: MovingClock) -> None:
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
        values = {"scope": scope, "kind": "pause", "reason": "test", "actor": "test", "since": tx.now()}
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


def finds(services: Services, worker: WorkerId, wanted: JobId, **asked: Any) -> None:
    """J13: whatever else waits, this one is given out."""
    claim = one(services, worker, **asked)
    assert claim is not None, "a worker was free and a job that it may take waited: nothing was given out"
    assert claim.key.job_id == wanted


def test_j13_a_job_that_nobody_takes_holds_up_no_other_agent(services: Services) -> None:
    """Its agent comes first in the circle, and would for ever: it is never served."""
    a_job(services, type="nobody", agent="a")
    worker, mine = a_worker(services), a_job(services, agent="b")
    finds(services, worker, mine, types=("demo",))


def test_j13_agents_without_a_fitting_job_take_no_places_of_those_who_are_looked_at(
    services: Services,
) -> None:
    for number in range(6):
        a_job(services, type="nobody", agent=f"a{number}")
    for number in range(3):
        a_job(services, agent=f"b{number}")
    workers = [a_worker(services, f"w{number}") for number in range(2)]
    assert len(claim_for(services, {each: ClaimRequest(types=("demo",)) for each in workers})) == 2


def test_j13_a_batch_is_filled_past_agents_that_have_nothing_for_it(services: Services) -> None:
    for number in range(3):
        a_job(services, type="nobody", agent=f"a{number}")
    queued(services, "b", 4)
    claims = claim_for(services, {a_worker(services): ClaimRequest(types=("demo",), most={"demo": 4})})
    assert len(claims) == 4


def test_j13_more_models_elsewhere_than_are_looked_at_hide_no_job(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_sql, "MOST_MODELS", 2)
    warm, cold = a_worker(services, "warm"), a_worker(services, "cold")
    for name in ("a", "b", "c"):
        loads(services, warm, name)
        a_job(services, model=name)
    mine = a_job(services, model="z")
    finds(services, cold, mine)


def test_j13_what_a_worker_has_loaded_is_found_behind_many_other_models(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_sql, "MOST_MODELS", 2)
    for name in ("a", "b", "c"):
        a_job(services, model=name)
    mine = a_job(services, model="z")
    finds(services, a_worker(services), mine, models=("z",))


def test_j13_a_job_that_waited_long_enough_is_not_hidden_by_a_more_urgent_one_of_its_model(
    services: Services, clock: MovingClock
) -> None:
    clock.stop(at=NOON)
    warm, cold = a_worker(services, "warm"), a_worker(services, "cold")
    loads(services, warm, "m")
    late = a_job(services, model="m", priority=LOWEST)
    clock.advance(services.policy.model_wait + timedelta(seconds=1))
    a_job(services, model="m", priority=HIGHEST)
    finds(services, cold, late)


def test_j13_agents_whose_jobs_cannot_be_taken_do_not_use_up_the_look(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each for another reason, and more of them than are looked at."""
    monkeypatch.setattr(claim_sql, "MOST_AGENTS", 2)
    limits = {f"a{number}": AgentLimits(max_running=1) for number in range(4)}
    limited = ruled(services, ControlPolicy(agents=limits))
    for agent in limits:
        queued(limited, agent, 2)
    for number in range(4):
        a_job(limited, agent=f"b{number}", concurrency_key="k")
        a_job(limited, agent=f"c{number}", type="nobody")
        a_job(limited, agent=f"d{number}", model="m")
    loads(limited, a_worker(limited, "warm"), "m")
    mine = a_job(limited, agent="z")
    given = [one(limited, a_worker(limited, f"w{number}"), types=("demo",)) for number in range(6)]
    assert all(given)
    assert mine in [claim.key.job_id for claim in given if claim is not None]


def test_j13_all_full_keys_are_learned_with_the_first(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locked and counted one by one, a thousand of them would hold up everybody who asks."""
    for number in range(8):
        queued(services, "a", 2, concurrency_key=f"k{number}")
        assert one(services, a_worker(services, f"w{number}")) is not None
    mine, worker = a_job(services, agent="a"), a_worker(services, "last")
    locked: list[str] = []
    lock = claim_sql.lock_key

    def counted(tx: Tx, key: str) -> None:
        locked.append(key)
        lock(tx, key)

    monkeypatch.setattr(claim_sql, "lock_key", counted)
    finds(services, worker, mine)
    assert len(locked) == 1


def starts_within_a_second(services: Services, worker: WorkerId, types: Sequence[str]) -> None:
    """A worker waits for work, as it does with a server; then the other agent hands a job in."""
    writer = Writer(services, SystemClock())

    async def never() -> None:
        await asyncio.Event().wait()

    async def scene() -> None:
        asked = writer.wait(worker, ClaimRequest(types=tuple(types)), timedelta(seconds=30), never)
        waiting = asyncio.create_task(asked)
        await asyncio.sleep(0)
        assert writer.waiting == 1
        mine = await asyncio.to_thread(a_job, services, agent="b")
        writer.ring()
        handed_in = time.monotonic()
        (claim,) = await waiting
        assert claim.key.job_id == mine
        assert time.monotonic() - handed_in < 1

    try:
        asyncio.run(scene())
    finally:
        writer.stop()


def test_j13_beside_a_job_that_nobody_can_take_that_of_another_agent_starts_within_a_second(
    services: Services,
) -> None:
    a_job(services, type="nobody", agent="a")
    starts_within_a_second(services, a_worker(services), ["demo"])


def test_j13_beside_a_job_for_a_comfyui_that_is_down_that_of_another_agent_starts_within_a_second(
    services: Services,
) -> None:
    a_job(services, type="comfyui", agent="a")
    options = {"comfyui": {"connector": "comfyui", "url": f"http://127.0.0.1:{free_port()}"}}
    standing = ServiceHealth(
        manager=ConnectorManager(services=options, around=Around(clock=SystemClock(), results=MemoryResults())),
        interval=timedelta(hours=1),
        stall=timedelta(hours=1),
    )
    standing.look()
    assert "comfyui" in standing.unfit()
    types = [kind for kind in ("comfyui", "demo") if kind not in standing.unfit()]
    starts_within_a_second(services, a_worker(services), types)


AGENTS, TYPES, MODELS, KEYS = ("a", "b", "c", "d"), ("t1", "t2", "t3"), ("m1", "m2", "m3"), ("k1", "k2")


def crowd(services: Services, chance: Random, count: int) -> list[NewJob]:
    made = [
        NewJob(
            job_id=JobId(f"j{number}"),
            type=chance.choice(TYPES),
            agent=chance.choice(AGENTS),
            model=chance.choice([None, None, *MODELS]),
            concurrency_key=chance.choice([None, None, *KEYS]),
            gpu_memory_mb=chance.choice([None, 1000, 4000]),
            allow_cpu=chance.random() < 0.3,
        )
        for number in range(count)
    ]
    submit_jobs(services, made)
    return made


def some_of(chance: Random, names: Sequence[str]) -> frozenset[str]:
    return frozenset(name for name in names if chance.random() < 0.4)


def test_j13_the_rule_in_sql_is_the_rule(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    chance = Random(13)
    crowd(services, chance, 60)
    jobs = list_jobs(services, limit=100).jobs
    for _ in range(60):
        wanted = JobSelector(
            types=some_of(chance, TYPES),
            not_types=some_of(chance, TYPES),
            only_agents=chance.choice([None, some_of(chance, AGENTS)]),
            not_agents=some_of(chance, AGENTS),
            not_keys=some_of(chance, KEYS),
            room_mb=chance.choice([None, 500, 2000]),
            no_gpu=chance.random() < 0.3,
            loaded=Loaded(here=some_of(chance, MODELS), elsewhere=some_of(chance, MODELS)),
            overdue_before=chance.choice([NOON, NOON - timedelta(minutes=1)]),
        )
        agents = services.database.read(
            lambda tx, wanted=wanted: [*claim_sql.agents_behind(tx, DEFAULT_POOL, "b", lambda: wanted)]
        )
        assert {*agents} == {job.agent for job in jobs if accepts(wanted, job)}, wanted
        for agent in AGENTS:
            found = services.database.transact(
                lambda tx, wanted=wanted, agent=agent: claim_sql.heads(tx, DEFAULT_POOL, wanted, agent)
            )
            taken = [job for job in jobs if job.agent == agent and accepts(wanted, job)]
            assert {job.model for job in found} == {job.model for job in taken}, wanted


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fair", [True, False])
def test_j13_while_a_worker_is_free_and_a_job_that_it_may_take_waits_one_is_given_out(
    services: Services, seed: int, fair: bool
) -> None:
    """Agents, types, models, keys, limits and pauses in any mixture: what is left over, nobody may take."""
    chance = Random(seed)
    limits = {agent: AgentLimits(max_running=chance.choice([0, 1, 3])) for agent in some_of(chance, AGENTS)}
    rules = ControlPolicy(fair=fair, agents=limits, concurrency={"k1": 2})
    here = ruled(services, rules)
    asks = {
        a_worker(here, f"w{number}"): ClaimRequest(
            types=tuple(sorted(some_of(chance, TYPES))), models=tuple(sorted(some_of(chance, MODELS)))
        )
        for number in range(6)
    }
    for worker, ask in asks.items():
        for model in ask.models:
            loads(here, worker, model)
    bare = {worker for worker in asks if chance.random() < 0.4}
    for worker in bare:
        beat(here, worker, report=GpuReport(ready=True, seen=False))
    paused = some_of(chance, TYPES[:2])
    for kind in paused:
        hold(here, f"type:{kind}")
    crowd(here, chance, 8)
    while asks and (given := claim_for(here, asks)):
        for claim in given:
            del asks[claim.worker_id]
    jobs = list_jobs(here, limit=100).jobs
    waiting = [job for job in jobs if job.status is JobStatus.PENDING]
    held = [job for job in jobs if job.status is JobStatus.CLAIMED]
    by_key = Counter(job.concurrency_key for job in held if job.concurrency_key)
    by_agent = Counter(job.agent for job in held)
    for worker, ask in asks.items():
        elsewhere = here.database.read(lambda tx, me=worker: claim_sql.loaded_elsewhere(tx, DEFAULT_POOL, me))
        wanted = JobSelector(
            types=ask.types,
            not_types=paused,
            not_agents=rules.full_agents(by_agent),
            not_keys={key for key, count in by_key.items() if count >= rules.most_of(key)},
            no_gpu=worker in bare,
            loaded=Loaded(here=ask.models, elsewhere=elsewhere),
        )
        assert [job.job_id for job in waiting if accepts(wanted, job)] == [], (seed, worker, ask)
