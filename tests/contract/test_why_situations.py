"""`herdsman why` names the true blocker first: each situation is made, asked about, mended, and asked about again."""

import re
from collections.abc import Callable, Generator, Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from herdsman.control.commands import complete_job, fail_job, register_worker, stage_due_jobs
from herdsman.control.commands.holds import drain, pause, resume
from herdsman.control.commands.leases import release_lease
from herdsman.control.commands.pools import drain_pool, start_pool
from herdsman.control.explain import why_pool
from herdsman.control.services import Services
from herdsman.core.blockers import Block
from herdsman.core.findings import Code
from herdsman.core.holds import scope_of
from herdsman.core.model import DEFAULT_POOL, JobId, PoolId, WorkerId
from herdsman.core.pools import NewPool, ServedBy
from herdsman.store import models
from herdsman.testing.runpod import Fault
from tests.builders import BROKEN, claimed
from tests.databases import MovingClock
from tests.gpus import a_gpu_worker, a_lease, told
from tests.pools import LLM, SERVES, a_pool
from tests.why_site import Site, a_site

Situation = Callable[[Site], Generator[JobId]]
"""Makes it and gives the job; what comes after that takes the blocker away."""
MINUTE = timedelta(minutes=1)


@pytest.fixture
def site(services: Services, clock: MovingClock) -> Iterator[Site]:
    with a_site(services, clock) as site:
        yield site


def no_worker_knows_the_type(site: Site) -> Generator[JobId]:
    site.worker(types=["demo", "upscale"])
    yield site.job(type="image")
    site.worker("w2", types=["image"])


def only_another_pool_knows_the_type(site: Site) -> Generator[JobId]:
    site.worker(types=["demo"])
    site.worker("w2", types=["image"], pool="pictures")
    yield site.job(type="image")
    site.ask(WorkerId("w1"), ["demo", "image"])


def at_the_ceiling(site: Site) -> Generator[JobId]:
    site.herd.with_policy(min_workers=2, max_workers=2)
    site.cycles(3)
    site.all_busy()
    site.lead()
    yield site.job()
    site.herd.with_policy(max_workers=3)


def killed_by_switch(site: Site) -> Generator[JobId]:
    site.herd.with_policy(max_workers=0)
    site.lead()
    yield site.job()
    site.herd.with_policy(max_workers=1)


def breaker_open(site: Site) -> Generator[JobId]:
    site.breaks(6)
    job = site.job()
    site.cycles(2)
    yield job
    site.clock.advance(timedelta(hours=1))
    site.lead()


def pool_draining(site: Site) -> Generator[JobId]:
    a_pool(site.services)
    job = site.job(pool=LLM)
    drain_pool(site.services, LLM)
    yield job
    start_pool(site.services, NewPool(pool_id=LLM, serves=SERVES))


def put_off_at_the_door(site: Site) -> Generator[JobId]:
    site.limits(agents={"ann": {"rate_per_second": 0.01, "burst": 1}})
    site.job(agent="ann")
    yield site.job(agent="ann", max_defer=timedelta(hours=1))
    site.clock.advance(timedelta(hours=1))
    stage_due_jobs(site.services)


def agent_runs_as_many_as_it_may(site: Site) -> Generator[JobId]:
    site.limits(agents={"ann": {"max_running": 1}})
    site.job(agent="ann")
    held = claimed(site.services, site.worker_without_asking("w1"))
    site.worker("w2")
    yield site.job(agent="ann")
    complete_job(site.services, held.key)


def backoff(site: Site) -> Generator[JobId]:
    job = site.job()
    fail_job(site.services, claimed(site.services, site.worker_without_asking("w1")).key, BROKEN)
    yield job
    site.clock.advance(timedelta(hours=1))
    stage_due_jobs(site.services)


def delayed(site: Site) -> Generator[JobId]:
    site.worker()
    yield site.job(delay=timedelta(hours=1))
    site.clock.advance(timedelta(hours=1))
    stage_due_jobs(site.services)


def due_and_not_queued(site: Site) -> Generator[JobId]:
    job = site.job(delay=MINUTE)
    site.clock.advance(5 * MINUTE)
    yield job
    stage_due_jobs(site.services)


def budget_spent(site: Site) -> Generator[JobId]:
    site.herd.with_policy(min_workers=1, max_workers=5, budget_per_day=Decimal("0.0001"))
    site.cycles(3)
    site.all_busy()
    for number in range(10):
        site.job(job_id=f"more-{number}")
    yield site.job()
    site.herd.with_policy(budget_per_day=Decimal(1000))


def paused(scope: str) -> Situation:
    def situation(site: Site) -> Generator[JobId]:
        site.worker()
        pause(site.services, scope, why="new disks", who="ann")
        yield site.job()
        resume(site.services, scope)

    return situation


def cluster_drained(site: Site) -> Generator[JobId]:
    site.worker()
    drain(site.services, why="moving house", who="ann")
    yield site.job()
    resume(site.services, "all")


def no_capacity(site: Site) -> Generator[JobId]:
    site.herd.with_policy(min_workers=1)
    site.herd.fake.faults.turn_on(Fault.NO_CAPACITY)
    job = site.job()
    site.cycles(3, later=timedelta(seconds=5))
    yield job
    site.herd.fake.faults.turn_off(Fault.NO_CAPACITY)
    site.clock.advance(10 * MINUTE)
    site.cycles(3)


def provider_rejects(site: Site) -> Generator[JobId]:
    site.herd.with_policy(min_workers=1)
    site.herd.fake.faults.turn_on(Fault.UNAUTHORIZED, only=frozenset({"create"}))
    job = site.job()
    site.cycles(2)
    yield job
    resume(site.services, scope_of(pool=DEFAULT_POOL))


def provider_out_of_sight(site: Site) -> Generator[JobId]:
    site.herd.with_policy(min_workers=1)
    site.herd.fake.faults.turn_on(Fault.STORM_500, only=frozenset({"list"}))
    job = site.job()
    site.cycles(2)
    yield job
    site.herd.fake.faults.turn_off(Fault.STORM_500)
    site.cycles(1)


def nobody_has_ever_led(site: Site) -> Generator[JobId]:
    yield site.job()
    site.lead()


def leader_gone(site: Site) -> Generator[JobId]:
    site.lead()
    site.clock.advance(10 * MINUTE)
    yield site.job()
    site.lead()


def leader_idle(site: Site) -> Generator[JobId]:
    site.cycles(1)
    replica = site.herd.replica()
    for _ in range(100):  # it goes on to lead, and does nothing
        site.clock.advance(timedelta(seconds=5))
        site.herd.hands_of_time.advance(timedelta(seconds=5))
        replica.leadership.campaign()
    yield site.job()
    site.cycles(1)


def model_loaded_elsewhere(site: Site) -> Generator[JobId]:
    warm, _ = site.worker("w1"), site.worker("w2")
    site.services.database.transact(lambda tx: models.note_models(tx, warm, ("org/a",), None, None))
    site.job()
    assert site.ask(warm)
    yield site.job(model="org/a")
    site.clock.advance(site.services.policy.model_wait)
    site.beat("w2")


def key_full(site: Site) -> Generator[JobId]:
    site.job(concurrency_key="disk-1")
    held = claimed(site.services, site.worker_without_asking("w1"))
    site.worker("w2")
    yield site.job(concurrency_key="disk-1")
    complete_job(site.services, held.key)


def gpu_memory_taken(site: Site) -> Generator[JobId]:
    worker = a_gpu_worker(site.services)
    lease = a_lease(site.services, 20_000)
    yield site.job(gpu_memory_mb=8000)
    release_lease(site.services, lease.token, who="test")
    told(site.services, worker)


def whole_gpu_wanted(site: Site) -> Generator[JobId]:
    worker = a_gpu_worker(site.services)
    lease = a_lease(site.services, 1000)
    yield site.job()
    release_lease(site.services, lease.token, who="test")
    told(site.services, worker)


def worker_starting(site: Site) -> Generator[JobId]:
    site.herd.with_policy(min_workers=1)
    site.cycles(3)
    site.all_busy()
    site.herd.with_policy(min_workers=2)
    site.cycles(1, later=timedelta(seconds=1))
    yield site.job()
    site.cycles(2)


def free_worker_silent(site: Site) -> Generator[JobId]:
    site.worker()
    site.clock.advance(3 * MINUTE)
    yield site.job()
    site.beat("w1")


def nobody_keeps_the_pool(site: Site) -> Generator[JobId]:
    yield site.job(pool="other")
    site.worker(pool="other")


def pool_served_by_hand(site: Site) -> Generator[JobId]:
    a_pool(site.services, served_by=ServedBy.HAND)
    yield site.job(pool=LLM)
    site.worker(pool=LLM)


def all_busy_and_too_few_jobs_for_another(site: Site) -> Generator[JobId]:
    site.herd.with_policy(min_workers=1)
    site.cycles(3)
    site.all_busy()
    site.clock.advance(2 * MINUTE)
    site.lead()
    yield site.job()
    complete_job(site.services, site.held().key)


def simply_next(site: Site) -> Generator[JobId]:
    site.worker()
    yield site.job()
    site.ask(WorkerId("w1"))


UTC = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
BUSY2 = r"all 2 active workers of pool default hold a job, and none is added, blocked by MAX_ACTIVE_GPUS=2"
NONE = "pool default has no active worker, and none is added, blocked by"
SITUATIONS: dict[Situation, tuple[str, str]] = {
    no_worker_knows_the_type: (
        Block.UNKNOWN_TYPE,
        rf"no worker of pool default knows the type image: they take demo, upscale, since {UTC}; start one",
    ),
    only_another_pool_knows_the_type: (
        Block.UNKNOWN_TYPE,
        r"they take demo; pool pictures has workers that do",
    ),
    at_the_ceiling: (
        Code.CEILING,
        rf"{BUSY2}: .*; it starts when one of them is free, or raise MAX_ACTIVE_GPUS",
    ),
    killed_by_switch: (Code.KILL_SWITCH, rf"{NONE} KILL_SWITCH: MAX_ACTIVE_GPUS is 0; raise MAX_ACTIVE_GPUS"),
    breaker_open: (
        Code.BREAKER_OPEN,
        rf"{NONE} MAX_WORKER_FAILURE_RATE=0.8: too many .*, since {UTC}; when no more",
    ),
    pool_draining: (
        Block.POOL_CLOSED,
        rf"pool llm is draining \(drained\) and takes no job, since {UTC}; start it",
    ),
    put_off_at_the_door: (
        Block.PUT_OFF,
        rf"it was put off until {UTC} by the limit rate_limited: agent ann may submit 0.01 jobs a second, since",
    ),
    agent_runs_as_many_as_it_may: (
        Block.AGENT_FULL,
        r"agent ann has all its places taken: 1 of 1 .max_running.; it starts when",
    ),
    backoff: (Block.BACKOFF, rf"it is tried again at {UTC}: attempt 1 of 3 failed, since {UTC}; or at once"),
    delayed: (Block.DELAYED, rf"its time comes at {UTC}, since {UTC}; it was submitted to run then"),
    due_and_not_queued: (
        Block.NOT_STAGED,
        rf"its time has come and nobody has queued it.*, since {UTC}; start one",
    ),
    budget_spent: (
        Code.BUDGET_SPENT,
        r"blocked by the budget=0.0001: the budget of this day is spent.*or raise BUDGET",
    ),
    paused("all"): (
        Block.PAUSED,
        rf"everything is stopped by ann \(new disks\), since {UTC}; go on with: herdsman resume$",
    ),
    paused("pool:default"): (Block.PAUSED, r"pool default is stopped .*: herdsman resume --pool default$"),
    paused("type:demo"): (Block.PAUSED, r"type demo is stopped .*: herdsman resume --type demo$"),
    cluster_drained: (Block.DRAINED, rf"everything is drained by ann \(moving house\), since {UTC}; go on"),
    no_capacity: (
        Code.PROVIDER_WAITS,
        rf"{NONE} PROVIDER_WAITS: .*, since {UTC}; the provider is asked again at {UTC}",
    ),
    provider_rejects: (
        Code.PROVIDER_REJECTED,
        rf"{NONE} PROVIDER_REJECTED: .*; mend that at the provider, then: herdsman resume --pool default",
    ),
    provider_out_of_sight: (
        Code.PARTIAL_SIGHT,
        rf"{NONE} PARTIAL_SIGHT: the provider could not be looked at: ",
    ),
    nobody_has_ever_led: (
        Block.NO_LEADER,
        r"no control plane has ever led here: none is added; start a control plane",
    ),
    leader_gone: (
        Block.NO_LEADER,
        rf"nobody leads: none is added, since {UTC}; start a control plane: herdsman up",
    ),
    leader_idle: (
        Block.NO_CYCLE,
        rf"one leads but has ended no cycle: none is added, since {UTC}; look at the log",
    ),
    model_loaded_elsewhere: (
        Block.MODEL,
        rf"waits for a worker that has model org/a loaded: w1 has, and is busy, since {UTC}; any free worker .* {UTC}",
    ),
    key_full: (
        Block.KEY_FULL,
        r"concurrency key disk-1 has all its places taken: 1 of 1; it starts when one of them ends",
    ),
    gpu_memory_taken: (
        Block.GPU_MEMORY,
        r"no free worker has 8000 MB of GPU memory: the most is 4000 MB on w1 \(leased\)",
    ),
    whole_gpu_wanted: (
        Block.GPU_MEMORY,
        r"no free worker has a GPU of its own: the most is 23000 MB on w1 \(shared\)",
    ),
    worker_starting: (
        Block.STARTING,
        rf"default holds a job, and a worker is starting, since {UTC}; it starts when one is ready; half of the last 1",
    ),
    free_worker_silent: (
        Block.SILENT_WORKERS,
        rf"asks for work: w1 was the last that was heard of, since {UTC}; see",
    ),
    nobody_keeps_the_pool: (
        Block.NOBODY_KEEPS,
        r"pool other has no active worker, and nobody keeps such a pool",
    ),
    pool_served_by_hand: (Code.SERVED_BY_HAND, r"SERVED_BY_HAND: .*; start one: herdsman worker --pool llm"),
    all_busy_and_too_few_jobs_for_another: (
        Block.BUSY,
        r"the only active worker of pool default holds a job; it starts when .* one more comes at 4 queued; now 1",
    ),
    simply_next: (
        Block.NEXT,
        r"it is the next one of its pool; a worker is free and asks for work: it starts in",
    ),
}
NAMES = [f"{number:02}-{code}" for number, (code, _) in enumerate(SITUATIONS.values())]


@pytest.mark.parametrize(("situation", "expected"), SITUATIONS.items(), ids=NAMES)
def test_the_first_sentence_names_what_the_job_truly_waits_for(
    site: Site, situation: Situation, expected: tuple[str, str]
) -> None:
    code, sentence = expected
    making = situation(site)
    job = next(making)
    answer = site.why(job)
    assert answer.blocker is not None
    assert answer.blocker.code == code, answer.because
    assert answer.because[0] == answer.blocker.sentence
    assert re.search(sentence, answer.because[0]), answer.because[0]
    if code not in (Block.NEXT, Block.SILENT_WORKERS):
        assert job not in site.given_out(), "nothing was in its way after all"
    next(making, None)
    after = site.why(job).blocker
    assert after is None or after.code != code, f"it was mended, and still: {after.sentence}"


def test_what_comes_first_is_what_nothing_else_could_matter_before(site: Site) -> None:
    """A job with several things in its way names the others after it."""
    site.worker(types=["demo"])
    pause(site.services, "pool:default", why="new disks", who="ann")
    answer = site.why(site.job(type="image"))
    assert answer.blocker is not None
    assert answer.blocker.code == Block.PAUSED
    assert answer.because[1].startswith("no worker of pool default knows the type image")


def test_the_next_worker_of_the_pool_is_part_of_the_answer(site: Site) -> None:
    site.herd.with_policy(min_workers=2, max_workers=2)
    site.cycles(3)
    site.all_busy()
    site.lead()
    answer = site.why(site.job())
    assert answer.next_worker is not None
    assert answer.next_worker.blocked_by is not None
    assert answer.next_worker.blocked_by.code is Code.CEILING


def test_a_pool_can_be_asked_without_a_way_to_the_provider(site: Site) -> None:
    site.herd.with_policy(min_workers=2, max_workers=5)
    site.cycles(3)
    site.clock.advance(5 * MINUTE)
    glance = why_pool(site.services, site.herd.replica().observer.glance(), DEFAULT_POOL)
    site.herd.fake.faults.turn_on(Fault.STORM_500)
    assert why_pool(site.services, None, DEFAULT_POOL).because == glance.because
    assert glance.because == ("would spawn at 7 queued; now 0",)


def test_a_worker_that_has_said_nothing_yet_may_take_anything(site: Site) -> None:
    site.worker(types=["demo"])
    register_worker(site.services, WorkerId("new"), pool=PoolId("default"))
    answer = site.why(site.job(type="image"))
    assert answer.blocker is not None
    assert answer.blocker.code != Block.UNKNOWN_TYPE


def test_a_worker_that_learns_a_type_is_known_to_take_it(site: Site) -> None:
    """A handler was added to a worker that runs on; what else is known of the worker stays."""
    worker = a_gpu_worker(site.services)
    site.ask(worker, ["demo"])
    job = site.job(type="image")
    assert site.why(job).blocker.code == Block.UNKNOWN_TYPE  # type: ignore[union-attr]
    site.ask(worker, ["upscale"])
    assert "they take upscale" in site.why(job).because[0]
    told(site.services, worker)
    assert "they take upscale" in site.why(job).because[0]
