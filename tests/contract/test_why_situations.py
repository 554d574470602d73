"""`herdsman why` names the true blocker first, and `eta` tells no time while it stands: each situation is made, asked about,
mended, and asked about again. Here: the job itself, limits, stops, and workers that cannot take it."""

from collections.abc import Generator, Iterator
from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.explain.rules import WaitCode
from herdsman.explain.why import why_worker
from herdsman.fleet import sql as fleet_sql
from herdsman.fleet.commands import register_worker
from herdsman.fleet.model import GpuReport
from herdsman.ids import JobId, PoolId, WorkerId
from herdsman.jobs.protocol import WorkerHeartbeat
from herdsman.jobs.sweep import stage_due_jobs
from herdsman.jobs.worker_commands import complete_job, fail_job, record_heartbeat
from herdsman.leases.commands import release_lease
from herdsman.limits.commands import drain, pause, resume
from herdsman.pools.commands import drain_pool, start_pool
from herdsman.pools.rules import NewPool
from tests.support.builders import BROKEN, claimed
from tests.support.databases import MovingClock, every_database, one_database
from tests.support.gpus import a_gpu_worker, a_lease, told
from tests.support.pools import LLM, SERVES, a_pool
from tests.support.why_promises import UTC, Expected, Situation, SituationContract, each_of
from tests.support.why_situations import MINUTE, Site, a_site
from tests.support.worker_calls import beat

pytestmark = one_database


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


def pool_draining(site: Site) -> Generator[JobId]:
    a_pool(site.services)
    job = site.job(pool=LLM)
    drain_pool(site.services, LLM)
    yield job
    start_pool(site.services, NewPool(pool_id=LLM, serves=SERVES))


def put_off_at_the_door(site: Site) -> Generator[JobId]:
    site.worker()
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


def paused(scope: str) -> Situation:
    def situation(site: Site) -> Generator[JobId]:
        site.worker()
        pause(site.services, scope, reason="new disks", who="ann")
        yield site.job()
        resume(site.services, scope)

    return situation


def cluster_drained(site: Site) -> Generator[JobId]:
    site.worker()
    drain(site.services, reason="moving house", who="ann")
    yield site.job()
    resume(site.services, "all")


def model_loaded_elsewhere(site: Site) -> Generator[JobId]:
    warm, _ = site.worker("w1"), site.worker("w2")
    site.services.database.transact(lambda tx: fleet_sql.note_models(tx, warm, ("org/a",), None, None))
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


def only_workers_without_a_gpu(site: Site) -> Generator[JobId]:
    bare = site.worker()
    beat(site.services, bare, report=GpuReport(ready=True, seen=False))
    yield site.job(gpu_memory_mb=8000)
    a_gpu_worker(site.services, "w2")


def whole_gpu_wanted(site: Site) -> Generator[JobId]:
    worker = a_gpu_worker(site.services)
    lease = a_lease(site.services, 1000)
    yield site.job()
    release_lease(site.services, lease.token, who="test")
    told(site.services, worker)


def free_worker_silent(site: Site) -> Generator[JobId]:
    site.worker()
    site.clock.advance(3 * MINUTE)
    yield site.job()
    site.beat("w1")


def service_away(site: Site) -> Generator[JobId]:
    """The worker has said why, and asks for its other types only."""
    worker = site.worker(types=["demo"])
    away = WorkerHeartbeat(unfit={"comfyui": "nobody answers at http://127.0.0.1:8188"})
    record_heartbeat(site.services, worker, away)
    yield site.job(type="comfyui")
    record_heartbeat(site.services, worker, WorkerHeartbeat(unfit={}))
    site.ask(worker, ["comfyui", "demo"])


def simply_next(site: Site) -> Generator[JobId]:
    site.worker()
    yield site.job()
    site.ask(WorkerId("w1"))


SITUATIONS: dict[Situation, Expected] = {
    no_worker_knows_the_type: (
        WaitCode.UNKNOWN_TYPE,
        rf"no worker of pool default takes type image: they take demo, upscale, since {UTC}; start one",
    ),
    only_another_pool_knows_the_type: (
        WaitCode.UNKNOWN_TYPE,
        r"they take demo; workers of pool pictures do",
    ),
    service_away: (
        WaitCode.SERVICE_UNFIT,
        r"worker w1 takes no jobs of type comfyui: nobody answers at http://127\.0\.0\.1:8188; the job starts when",
    ),
    pool_draining: (
        WaitCode.POOL_CLOSED,
        rf"pool llm is draining \(drained\) and takes no jobs, since {UTC}; start it",
    ),
    put_off_at_the_door: (
        WaitCode.PUT_OFF,
        rf"limit rate_limited deferred the job until {UTC}: agent ann may submit 0.01 jobs a second, since",
    ),
    agent_runs_as_many_as_it_may: (
        WaitCode.AGENT_FULL,
        r"agent ann already runs 1 of 1 jobs .max_running.; the job starts when",
    ),
    backoff: (
        WaitCode.BACKOFF,
        rf"attempt 1 of 3 failed, and the next one starts at {UTC}, since {UTC}; to retry now",
    ),
    delayed: (WaitCode.DELAYED, rf"the job is scheduled for {UTC}, since {UTC}; it is queued then"),
    due_and_not_queued: (
        WaitCode.NOT_STAGED,
        rf"the job is due, but no control plane is there to queue it, since {UTC}; start one",
    ),
    paused("all"): (
        WaitCode.PAUSED,
        rf"Waiting: ann paused everything \(new disks\), since {UTC}; resume with: herdsman resume$",
    ),
    paused("pool:default"): (WaitCode.PAUSED, r"ann paused pool default .*: herdsman resume --pool default$"),
    paused("type:demo"): (WaitCode.PAUSED, r"ann paused type demo .*: herdsman resume --type demo$"),
    cluster_drained: (WaitCode.DRAINED, rf"ann drained everything \(moving house\), since {UTC}; resume"),
    model_loaded_elsewhere: (
        WaitCode.MODEL,
        rf"worker w1, which has model org/a loaded, is busy, since {UTC}; any free worker .* {UTC}",
    ),
    key_full: (
        WaitCode.KEY_FULL,
        r"concurrency key disk-1 already runs 1 of 1 jobs; the job starts when one of them ends",
    ),
    gpu_memory_taken: (
        WaitCode.GPU_MEMORY,
        r"no free worker has 8000 MB of GPU memory: worker w1 has the most, 4000 MB \(leased\)",
    ),
    only_workers_without_a_gpu: (
        WaitCode.NO_GPU,
        rf"the job needs 8000 MB of GPU memory, and no worker of pool default that takes demo has a GPU, since {UTC}; start a",
    ),
    whole_gpu_wanted: (
        WaitCode.GPU_MEMORY,
        r"no free worker has a GPU of its own: worker w1 has the most, 23000 MB \(shared\)",
    ),
    free_worker_silent: (
        WaitCode.SILENT_WORKERS,
        rf"asks for jobs: worker w1 sent the last heartbeat, since {UTC}; see",
    ),
    simply_next: (
        WaitCode.NEXT,
        r"Waiting: the job is next in pool default; a worker is free, and the job starts in its turn",
    ),
}


@each_of(SITUATIONS)
class TestSituations(SituationContract):
    timed = frozenset({backoff, put_off_at_the_door, delayed, simply_next})


def test_what_comes_first_is_what_nothing_else_could_matter_before(site: Site) -> None:
    """A job with several things in its way names the others after it."""
    site.worker(types=["demo"])
    pause(site.services, "pool:default", reason="new disks", who="ann")
    answer = site.why(site.job(type="image"))
    assert answer.blocker is not None
    assert answer.blocker.code == WaitCode.PAUSED
    assert answer.because[1].startswith("Waiting: no worker of pool default takes type image")


def test_a_worker_that_has_said_nothing_yet_may_take_anything(site: Site) -> None:
    site.worker(types=["demo"])
    register_worker(site.services, WorkerId("new"), pool=PoolId("default"))
    answer = site.why(site.job(type="image"))
    assert answer.blocker is not None
    assert answer.blocker.code != WaitCode.UNKNOWN_TYPE


def test_a_worker_says_itself_which_types_it_does_not_take_and_why(site: Site) -> None:
    worker = a_gpu_worker(site.services)
    record_heartbeat(site.services, worker, WorkerHeartbeat(unfit={"comfyui": "it is too old"}))
    record_heartbeat(site.services, worker, WorkerHeartbeat())
    told(site.services, worker)
    assert "It takes no jobs of type comfyui: it is too old" in why_worker(site.services, worker).because
    record_heartbeat(site.services, worker, WorkerHeartbeat(unfit={}))
    assert not any("comfyui" in said for said in why_worker(site.services, worker).because)


def test_another_worker_whose_service_answers_takes_the_job(site: Site) -> None:
    away = site.worker("w1", types=["comfyui"])
    record_heartbeat(site.services, away, WorkerHeartbeat(unfit={"comfyui": "nobody answers"}))
    site.worker("w2", types=["comfyui"])
    job = site.job(type="comfyui")
    assert site.why(job).blocker.code == WaitCode.NEXT  # type: ignore[union-attr]


@every_database
def test_a_worker_that_learns_a_type_is_known_to_take_it(site: Site) -> None:
    """A handler was added to a worker that runs on; what else is known of the worker stays."""
    worker = a_gpu_worker(site.services)
    site.ask(worker, ["demo"])
    job = site.job(type="image")
    assert site.why(job).blocker.code == WaitCode.UNKNOWN_TYPE  # type: ignore[union-attr]
    site.ask(worker, ["upscale"])
    assert "they take upscale" in site.why(job).because[0]
    told(site.services, worker)
    assert "they take upscale" in site.why(job).because[0]
