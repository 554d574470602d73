"""One job and many, on every database: when it ends, where its time went, why they fail, and all at once."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.errors import Conflict, InvalidRequest, NotFound
from herdsman.explain.eta import eta, timeline
from herdsman.explain.rules import WaitCode
from herdsman.fleet import stats_sql
from herdsman.fleet.commands import drain_worker
from herdsman.fleet.cost import cost
from herdsman.fleet.observe import FleetRules
from herdsman.ids import DEFAULT_POOL, JobId, PoolId, WorkerId
from herdsman.jobs import attempts_sql
from herdsman.jobs.assign import claim_for
from herdsman.jobs.commands import find_job
from herdsman.jobs.failures import cancel_jobs, list_failures, requeue_group, retry_jobs
from herdsman.jobs.model import Claim, Failure, FailureClass
from herdsman.jobs.protocol import ClaimRequest
from herdsman.jobs.sweep import stage_due_jobs
from herdsman.jobs.worker_commands import complete_job, fail_job, report_progress, start_job
from herdsman.limits import commands as limits_commands
from herdsman.states import JobStatus, WorkerStatus
from tests.support.builders import BROKEN, a_job, a_worker, an_ended_job, claimed
from tests.support.control_loop import FleetHarness
from tests.support.databases import MovingClock, every_database, one_database

pytestmark = one_database

SECONDS = 10.0


def done_in(services: Services, clock: MovingClock, worker: WorkerId, seconds: float, kind: str) -> JobId:
    a_job(services, type=kind)
    claim = claimed(services, worker)
    start_job(services, claim.key)
    clock.advance(timedelta(seconds=seconds))
    complete_job(services, claim.key, {})
    return claim.key.job_id


def begun(services: Services, worker: WorkerId, **wanted: object) -> Claim:
    a_job(services, **wanted)
    claim = claimed(services, worker)
    start_job(services, claim.key)
    return claim


def test_a_job_in_the_line_is_told_its_place_and_its_time(services: Services, clock: MovingClock) -> None:
    worker = a_worker(services, "w1")
    for _ in range(3):
        done_in(services, clock, worker, SECONDS, "image")
    begun(services, worker, type="image")
    line = [a_job(services, type="image") for _ in range(3)]
    found = eta(services, line[2])
    assert (found.position, found.sample, found.status) == (3, 3, "pending")
    assert found.start is not None
    assert found.finish is not None
    assert (found.start.p50, found.finish.p50) == (pytest.approx(30, abs=5), pytest.approx(40, abs=5))
    assert "2 jobs ahead; 1 active workers of pool default, 0 of them free" in found.basis
    assert "the last 3 jobs of type image" in found.basis


def test_a_type_that_was_never_done_is_compared_with_all(services: Services, clock: MovingClock) -> None:
    worker = a_worker(services, "w1")
    done_in(services, clock, worker, SECONDS, "image")
    found = eta(services, a_job(services, type="other"))
    assert found.start is not None
    assert (found.start.p50, found.sample) == (0, 1)
    assert "none of type other was completed lately" in found.basis


def test_without_a_worker_the_starts_of_others_count(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=0)
    harness.cycle(harness.replica())
    job = a_job(harness.services, type="image")
    found = eta(keeping(harness, DEFAULT_POOL), job)
    assert (found.start, found.blocker) == (None, None)
    assert "no start was ever timed" in found.basis


def test_the_starts_of_workers_are_timed(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=1)
    replica = harness.replica()
    for _ in range(3):
        harness.cycle(replica)
    empty = PoolId("empty")
    found = eta(keeping(harness, empty), a_job(harness.services, pool=empty))
    assert found.start is not None
    assert found.start.p50 > 0
    assert "timed by 1 of other pools' starts" in found.basis


def test_a_type_that_no_worker_knows_gets_a_reason_and_no_time(services: Services, clock: MovingClock) -> None:
    """It used to start in 0.0 s, forever."""
    worker = a_worker(services, "w1")
    done_in(services, clock, worker, SECONDS, "demo")
    claim_for(services, {worker: ClaimRequest(types=("demo",))})
    found = eta(services, a_job(services, type="image"))
    assert (found.start, found.finish, found.position) == (None, None, 1)
    assert found.basis.startswith("no estimate: no worker of pool default takes type image: they take demo; start one")
    assert found.blocker is not None
    assert found.blocker.code == WaitCode.UNKNOWN_TYPE
    later = eta(services, a_job(services, type="image", delay=timedelta(hours=1)))
    assert (later.start, later.blocker and later.blocker.code) == (None, WaitCode.UNKNOWN_TYPE)


def test_only_workers_that_take_its_type_shorten_the_wait(services: Services, clock: MovingClock) -> None:
    one = a_worker(services, "w1")
    done_in(services, clock, one, SECONDS, "image")
    claim_for(services, {a_worker(services, "w2"): ClaimRequest(types=("demo",))})
    begun(services, one, type="image")
    found = eta(services, a_job(services, type="image"))
    assert found.start is not None
    assert found.start.p50 == pytest.approx(SECONDS, abs=3)
    assert "1 active workers of pool default that take image, 0 of them free" in found.basis


def keeping(harness: FleetHarness, pool: PoolId) -> Services:
    """Somebody leads at this moment, and keeps this pool."""
    harness.replica().leadership.campaign()
    rules = FleetRules(pools={pool: harness.policy})
    return replace(harness.services, fleet=lambda: rules)


@every_database
def test_a_running_job_is_told_by_its_progress(services: Services, clock: MovingClock) -> None:
    worker = a_worker(services, "w1")
    claim = begun(services, worker)
    clock.advance(timedelta(seconds=30))
    assert eta(services, claim.key.job_id).finish is None
    report_progress(services, claim.key, 0.75)
    found = eta(services, claim.key.job_id)
    assert found.finish is not None
    assert found.finish.p50 == pytest.approx(10, abs=3)
    assert (found.position, found.start) == (None, None)
    assert found.basis.startswith("the job reports 75% done after 3")


def test_what_is_stopped_or_has_ended_is_not_guessed(services: Services) -> None:
    job = a_job(services)
    limits_commands.pause(services, "all", reason="lunch", duration=None)
    found = eta(services, job)
    assert (found.position, found.start, found.finish) == (1, None, None)
    assert found.basis.startswith("no estimate: ")
    assert found.basis.endswith(" paused everything (lunch); resume with: herdsman resume")
    cancel_jobs(services, [job])
    assert eta(services, job).basis == "the job has ended: cancelled"
    with pytest.raises(NotFound):
        eta(services, JobId("nobody"))


def test_a_job_that_waits_for_its_time_does_not_start_before_it(services: Services, clock: MovingClock) -> None:
    done_in(services, clock, a_worker(services, "w1"), 1, "demo")
    found = eta(services, a_job(services, delay=timedelta(hours=1)))
    assert found.position is None
    assert found.start is not None
    assert found.start.p50 == pytest.approx(3600, abs=60)
    assert "the job is due in 3" in found.basis


@every_database
def test_a_timeline_has_every_stretch_with_its_money(harness: FleetHarness) -> None:
    """It waits for a worker that boots, fails once, waits again, and is done."""
    harness.with_policy(min_workers=0, max_workers=1)
    services, clock = harness.services, harness.moving
    job = a_job(services)
    replica = harness.replica()
    for _ in range(2):
        harness.cycle(replica)
    worker = WorkerId(harness.fake.ledger.alive[0].name.rpartition("--")[2])
    first = claimed(services, worker)
    clock.advance(timedelta(seconds=36))
    fail_job(services, first.key, BROKEN)
    clock.advance(timedelta(hours=2))
    stage_due_jobs(services)
    clock.advance(timedelta(seconds=5))
    second = claimed(services, worker)
    clock.advance(timedelta(seconds=72))
    complete_job(services, second.key, {})
    found = timeline(services, job)
    what = [each.what for each in found.segments]
    assert what == ["queue", "boot", "run", "backoff", "queue", "run", "result"]
    runs = [each for each in found.segments if each.what == "run"]
    assert [each.seconds for each in runs] == pytest.approx([36, 72], abs=10)
    assert [each.outcome for each in runs] == ["failed", "done"]
    boot = found.segments[1]
    assert (boot.worker, boot.seconds) == (worker, pytest.approx(30, abs=10))
    price = 0.49 / 3600
    assert [each.cost for each in runs] == pytest.approx([36 * price, 72 * price], rel=0.3)
    assert found.cost == pytest.approx(sum(each.cost or 0 for each in found.segments))
    assert all(each.end is not None and each.begin <= each.end for each in found.segments)


def test_a_job_that_waits_has_an_open_end(services: Services, clock: MovingClock) -> None:
    job = a_job(services)
    clock.advance(timedelta(seconds=30))
    found = timeline(services, job)
    (queue,) = found.segments
    assert (queue.what, queue.end, queue.seconds) == ("queue", None, pytest.approx(30, abs=10))
    assert (found.cost, found.status) == (None, "pending")


def dead(services: Services, worker: WorkerId, error: str, **wanted: object) -> JobId:
    claim = begun(services, worker, **wanted)
    fail_job(services, claim.key, Failure(kind=FailureClass.USER_ERROR, error=error))
    return claim.key.job_id


def test_failures_are_grouped_by_their_cause(services: Services, clock: MovingClock) -> None:
    worker = a_worker(services, "w1")
    same = [dead(services, worker, f"no model {number} here") for number in range(7)]
    dead(services, worker, "no model 1 here", type="other")
    claim = begun(services, worker)
    fail_job(services, claim.key, BROKEN)
    found = list_failures(services, 24)
    first = found.groups[0]
    assert (first.cause, first.count, first.type, first.failure_class) == (
        "no model N here",
        7,
        "demo",
        "user_error",
    )
    assert set(first.sample_job_ids) <= set(same)
    assert (len(first.sample_job_ids), first.statuses) == (5, {"dead_letter": 7})
    assert {each.type: each.statuses for each in found.groups[1:]} == {
        "other": {"dead_letter": 1},
        "demo": {"failed": 1},
    }
    assert (found.scanned, found.truncated) == (9, False)
    clock.advance(timedelta(hours=25))
    assert list_failures(services, 24).groups == ()
    assert len(list_failures(services, 48).groups) == 3


def test_an_error_that_is_longer_than_a_page_is_told_by_its_end(services: Services) -> None:
    frames = "".join(f'  File "/srv/{number}.py", line {number}, in run\n' for number in range(200))
    dead(
        services,
        a_worker(services, "w1"),
        f"Traceback (most recent call last):\n{frames}OSError: déjà vu {7}",
    )
    (group,) = list_failures(services, 24).groups
    assert group.cause == "OSError: déjà vu N"
    assert re.fullmatch(r"OSError: déjà vu \d+", group.example), "a person reads no signs"
    assert len(group.sample_error) <= 600


def test_no_more_is_read_than_allowed(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts_sql, "MOST_SCANNED", 2)
    worker = a_worker(services, "w1")
    for _ in range(3):
        dead(services, worker, "no model")
    found = list_failures(services, 24)
    assert (found.scanned, found.truncated) == (2, True)


@every_database
def test_a_group_is_requeued_by_its_key(services: Services) -> None:
    worker = a_worker(services, "w1")
    jobs = [dead(services, worker, f"no model {number}") for number in range(3)]
    other = dead(services, worker, "no such file")
    key = next(each.key for each in list_failures(services, 24).groups if each.count == 3)
    done = requeue_group(services, key, hours=24, limit=2, who="operator:ann")
    assert (done.changed, {each.status for each in done.jobs}) == (2, {"pending"})
    assert requeue_group(services, key, hours=24, limit=500).changed == 1
    assert {find_job(services, each).status for each in jobs} == {JobStatus.PENDING}
    assert find_job(services, other).status is JobStatus.DEAD_LETTER
    with pytest.raises(NotFound, match="no group"):
        requeue_group(services, key, hours=24, limit=500)


def test_many_jobs_are_cancelled_and_retried_each_by_itself(services: Services) -> None:
    ended = an_ended_job(services, JobStatus.DONE, "w1")
    held = claimed(services, _with_job(services)).key.job_id
    waiting = [a_job(services) for _ in range(60)]
    wanted = [waiting[0], ended, JobId("nobody"), held, *waiting, waiting[0]]
    done = cancel_jobs(services, wanted, who="operator:ann")
    told = {each.job_id: each for each in done.jobs}
    assert [each.job_id for each in done.jobs] == list(dict.fromkeys(wanted))
    assert {told[each].status for each in waiting} == {"cancelled"}
    assert (told[held].status, told[held].refused) == ("claimed", None)
    assert told[ended].refused == f"job {ended!r} is done: it has ended already"
    assert told[JobId("nobody")].refused == "there is no job 'nobody'"
    assert done.changed == 61
    again = retry_jobs(services, [held, *waiting[:2]])
    assert [each.status for each in again.jobs] == [None, "pending", "pending"]
    assert "only a job that has ended" in (again.jobs[0].refused or "")
    with pytest.raises(InvalidRequest, match="the limit is 500"):
        cancel_jobs(services, [JobId(str(number)) for number in range(501)])


def _with_job(services: Services) -> WorkerId:
    a_job(services)
    return a_worker(services, "w2")


def test_an_agent_changes_only_its_own(services: Services) -> None:
    mine, theirs = a_job(services, agent="ann"), a_job(services, agent="bob")
    done = cancel_jobs(services, [mine, theirs], agent="ann")
    assert [each.status for each in done.jobs] == ["cancelled", None]
    assert find_job(services, theirs).status is JobStatus.PENDING
    assert retry_jobs(services, [theirs], agent="ann").jobs[0].refused == f"there is no job {theirs!r}"


def test_a_worker_is_drained_by_hand_and_is_not_to_blame(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=0, max_workers=1)
    services = harness.services
    a_job(services)
    replica = harness.replica()
    harness.cycle(replica)
    worker = WorkerId(harness.fake.ledger.alive[0].name.rpartition("--")[2])
    with pytest.raises(Conflict, match="is starting"):
        drain_worker(services, worker)
    harness.cycle(replica)
    claim = claimed(services, worker)
    assert drain_worker(services, worker, who="operator:ann") == (WorkerStatus.TERMINATING, True)
    assert drain_worker(services, worker) == (WorkerStatus.TERMINATING, False)
    ran = harness.cycle(replica)
    assert not any(step["action"] in ("FailWorker", "EndInstance") for step in ran.steps())
    complete_job(services, claim.key, {})
    for _ in range(6):
        harness.cycle(replica)
    assert not harness.fake.ledger.alive
    seen = {each.id: each for each in replica.observer.observe_readonly().workers}
    assert seen[worker].status is WorkerStatus.TERMINATED
    with pytest.raises(NotFound):
        drain_worker(services, WorkerId("nobody"))


@every_database
def test_money_adds_up_whichever_way_it_is_told(harness: FleetHarness) -> None:
    harness.with_policy(min_workers=1, max_workers=1)
    services, replica = harness.services, harness.replica()
    assert cost(services, 1).total_usd == 0
    for _ in range(3):
        harness.cycle(replica)
    worker = WorkerId(harness.fake.ledger.alive[0].name.rpartition("--")[2])
    done_in(services, harness.moving, worker, 1200, "image")
    found = cost(services, 2)
    assert found.total_usd > 0.1
    for lines in (found.by_day, found.by_pool, found.by_type, found.by_hour):
        assert sum(each.total_usd for each in lines) == pytest.approx(found.total_usd, rel=1e-6)
    assert len(found.by_hour) == 24
    assert [each.key for each in found.by_hour] == sorted(each.key for each in found.by_hour)
    assert {each.key for each in found.by_type} == {"image", "(idle)"}
    stays = services.database.read(lambda tx: stats_sql.instance_stays(tx, found.since))
    paid = sum(stay.cost(found.since, found.until) for stay in stays)
    assert found.total_usd == pytest.approx(float(paid), rel=1e-6)
    assert (found.done_jobs, found.per_done_job_usd) == (1, pytest.approx(found.total_usd))
    assert found.per_hour_usd == pytest.approx(0.49)
