"""What people stop for a while stands still, loses nothing, and goes on when they say so."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from herdsman.context import Services
from herdsman.db.connection import records
from herdsman.db.schema import audit
from herdsman.errors import InvalidRequest
from herdsman.fleet import snapshot_sql, workers_sql
from herdsman.fleet import sql as fleet_sql
from herdsman.fleet.actions import Code
from herdsman.fleet.model import FleetPolicy
from herdsman.ids import DEFAULT_POOL, PoolId, WorkerId
from herdsman.jobs.commands import find_job, submit_job
from herdsman.jobs.model import NewJob
from herdsman.jobs.worker_commands import complete_job
from herdsman.limits.commands import drain, expire_pauses, find_pauses, pause, resume
from herdsman.limits.rules import ALL, PauseKind, scope_of
from herdsman.states import JobStatus, WorkerStatus
from tests.support.builders import a_claim, a_job, a_worker, claimed
from tests.support.control_loop import a_harness
from tests.support.databases import NOON, MovingClock
from tests.support.threads import at_once
from tests.support.worker_calls import claim_job

pytestmark = pytest.mark.usefixtures("stopped_clock")
MINUTE = timedelta(minutes=1)


def told(services: Services, scope: str) -> list[tuple[int, str | None, str, str, str]]:
    mine = select(audit).where(audit.c.object_kind == "hold", audit.c.object_id == scope)
    rows = services.database.read(lambda tx: records(tx, mine.order_by(audit.c.seq)))
    return [(r["seq"], r["from_status"], r["to_status"], r["reason"], r["actor"]) for r in rows]


def state_of(services: Services, worker: WorkerId) -> WorkerStatus:
    return services.database.read(lambda tx: workers_sql.get_worker(tx, worker).status)


def test_while_everything_is_paused_no_job_is_given_out_and_none_is_refused(services: Services) -> None:
    worker = a_worker(services)
    pause(services, ALL)
    job_id = submit_job(services, NewJob(type="demo")).job_id
    assert claim_job(services, worker) is None
    assert state_of(services, worker) is WorkerStatus.ACTIVE
    assert resume(services, ALL)
    assert claimed(services, worker).key.job_id == job_id


def test_a_paused_pool_waits_and_the_others_go_on(services: Services) -> None:
    slow, quick = a_worker(services, "slow", pool="slow"), a_worker(services, "quick", pool="quick")
    for pool in ("slow", "quick"):
        a_job(services, pool=PoolId(pool))
    pause(services, scope_of(pool="slow"))
    assert claim_job(services, slow) is None
    assert claim_job(services, quick) is not None


def test_a_paused_type_waits_and_jobs_behind_it_go_on(services: Services) -> None:
    worker = a_worker(services)
    a_job(services, type="stuck")
    other = a_job(services, type="fine")
    pause(services, scope_of(kind="stuck"))
    assert claimed(services, worker).key.job_id == other


def test_a_job_that_runs_is_not_stopped_by_a_pause(services: Services) -> None:
    claim = a_claim(services)
    pause(services, ALL)
    complete_job(services, claim.key, None)
    assert find_job(services, claim.key.job_id).status is JobStatus.DONE


def test_a_pause_with_an_end_goes_on_by_itself_and_the_audit_says_so(services: Services, clock: MovingClock) -> None:
    worker = a_worker(services)
    a_job(services)
    assert pause(services, ALL, duration=MINUTE).until == NOON + MINUTE
    clock.advance(MINUTE - timedelta(seconds=1))
    assert claim_job(services, worker) is None
    assert expire_pauses(services) == 0
    clock.advance(timedelta(seconds=1))
    assert claim_job(services, worker) is not None, "it counts no more, though nobody has removed it"
    assert find_pauses(services).holds == ()
    assert expire_pauses(services) == 1
    assert told(services, ALL)[-1] == (2, "pause", "lifted", "time_over", "leader")
    assert not resume(services, ALL)


def test_the_same_pause_again_is_one_pause(services: Services, clock: MovingClock) -> None:
    first = pause(services, ALL, reason="moving", who="ann")
    clock.advance(MINUTE)
    assert pause(services, ALL, reason="moving", who="bob") == first
    assert pause(services, ALL, reason="still moving", who="bob").actor == "bob"
    assert resume(services, ALL, who="cid")
    assert not resume(services, ALL, who="cid")
    assert told(services, ALL) == [
        (1, None, "pause", "paused", "ann"),
        (2, "pause", "pause", "paused", "bob"),
        (3, "pause", "lifted", "resumed", "cid"),
    ]


def test_a1_pauses_that_meet_leave_no_gap_in_the_audit(services: Services) -> None:
    def thrice(number: int) -> None:
        for turn in range(3):
            pause(services, ALL, reason=f"reason {number}, {turn}")
            resume(services, ALL)

    at_once(12, thrice)
    story = told(services, ALL)
    assert [step[0] for step in story] == list(range(1, len(story) + 1))
    assert [step[1] for step in story[1:]] == [step[2] for step in story[:-1]]
    assert find_pauses(services).holds == ()


def test_a_drain_lets_every_worker_finish_and_leave(services: Services) -> None:
    claim = a_claim(services, "busy")
    idle = a_worker(services, "idle", pool="other")
    hold = drain(services, reason="the power goes", who="ann")
    assert (hold.kind, hold.reason, hold.until) == (PauseKind.DRAIN, "the power goes", None)
    assert {state_of(services, worker) for worker in (claim.worker_id, idle)} == {WorkerStatus.TERMINATING}
    seen = find_pauses(services)
    assert (seen.jobs_held, seen.workers) == (1, {WorkerStatus.TERMINATING: 2})
    complete_job(services, claim.key, None)
    assert find_job(services, claim.key.job_id).status is JobStatus.DONE
    assert drain(services, reason="the power goes") == hold
    assert told(services, ALL) == [(1, None, "drain", "drained", "ann")]


def test_a_pause_does_not_undo_a_drain_and_a_drain_goes_beyond_a_pause(services: Services) -> None:
    pause(services, ALL, duration=MINUTE)
    drained = drain(services)
    assert drained.until is None
    assert pause(services, ALL, duration=MINUTE) == drained


@pytest.mark.parametrize("duration", [timedelta(0), -MINUTE, timedelta(days=366)])
def test_a_pause_without_a_sensible_end_is_refused(services: Services, duration: timedelta) -> None:
    with pytest.raises(InvalidRequest, match="more than 0"):
        pause(services, ALL, duration=duration)


def test_what_is_held_waits_for_no_worker(services: Services) -> None:
    """Machines are not rented for jobs that nobody may run, and no worker is blamed for leaving them."""
    for kind in ("a", "a", "b"):
        a_job(services, type=kind)

    def queued() -> int:
        (pool,) = services.database.read(lambda tx: snapshot_sql.read_pools(tx, {DEFAULT_POOL: FleetPolicy()}))
        return pool.queued

    assert queued() == 3
    pause(services, scope_of(kind="a"))
    assert queued() == 1
    pause(services, scope_of(pool=DEFAULT_POOL))
    assert queued() == 0


def test_while_drained_the_leader_spawns_nothing_and_lets_late_workers_go(
    services: Services, clock: MovingClock
) -> None:
    a_job(services)
    drain(services, reason="moving house")
    late = a_worker(services, "late")
    with a_harness(services, clock) as harness:
        replica = harness.replica()
        ran = harness.cycle(replica)
        assert ran.summary()["actions"]["workers_spawned"] == 0  # type: ignore[index]
        codes = {str(step["code"]) for step in ran.steps()}
        assert Code.CLUSTER_DRAINED in codes
        assert state_of(services, late) is not WorkerStatus.ACTIVE
        assert resume(services, ALL)
        assert harness.cycle(replica).summary()["actions"]["workers_spawned"] == 2  # type: ignore[index]


@pytest.mark.parametrize("scope", [ALL, scope_of(pool=DEFAULT_POOL)])
def test_a_pool_that_the_provider_rejected_is_asked_for_again_once_a_person_says_so(
    services: Services, scope: str
) -> None:
    services.database.transact(lambda tx: fleet_sql.stop(tx, DEFAULT_POOL, "the key is wrong"))
    (pool,) = services.database.read(lambda tx: snapshot_sql.read_pools(tx, {DEFAULT_POOL: FleetPolicy()}))
    assert pool.stopped_by == "the key is wrong"
    assert not resume(services, scope_of(kind="image"))
    assert resume(services, scope)
    assert not resume(services, scope), "there is nothing left to mend"
    (pool,) = services.database.read(lambda tx: snapshot_sql.read_pools(tx, {DEFAULT_POOL: FleetPolicy()}))
    assert pool.stopped_by is None
