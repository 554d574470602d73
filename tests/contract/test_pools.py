"""Two pools under one loop: each with its own floor, ceiling and queue."""

from dataclasses import replace
from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.fleet import snapshot_sql
from herdsman.ids import DEFAULT_POOL, PoolId
from herdsman.jobs.assign import claim_for
from herdsman.jobs.protocol import ClaimRequest
from herdsman.jobs.worker_commands import complete_job, fail_job, start_job
from tests.support.builders import BROKEN, a_job, a_worker, claimed, scalar
from tests.support.control_loop import POLICY, a_harness
from tests.support.databases import MovingClock

VIDEO = PoolId("video")


def alive(services: Services, pool: str) -> int:
    return scalar(
        services.database,
        "SELECT COUNT(*) FROM workers WHERE pool = :pool AND status <> 'terminated'",
        pool=pool,
    )


def test_each_pool_has_its_own_size(services: Services, clock: MovingClock) -> None:
    with a_harness(services, clock) as harness:
        harness.policy = replace(POLICY, min_workers=1, max_workers=4)
        harness.others = {VIDEO: replace(POLICY, min_workers=2, max_workers=3)}
        replica = harness.replica()
        harness.cycle(replica)
        assert (alive(services, DEFAULT_POOL), alive(services, VIDEO)) == (1, 2)
        for _ in range(50):
            a_job(services, pool=VIDEO)
        harness.cycle(replica)
        assert (alive(services, DEFAULT_POOL), alive(services, VIDEO)) == (1, 3)


def test_failures_in_a_row_are_counted_since_the_last_success(services: Services, clock: MovingClock) -> None:
    """Only failures that may be the worker's, and only since it last did a job."""
    worker = a_worker(services)
    for done in (False, False, True, False, False, False):
        a_job(services, max_attempts=1)
        claim = claimed(services, worker)
        start_job(services, claim.key)
        complete_job(services, claim.key) if done else fail_job(services, claim.key, BROKEN)
        clock.advance(timedelta(seconds=1))
    (seen,) = services.database.read(lambda tx: snapshot_sql.read_workers(tx, [POLICY]))
    assert seen.failed_in_a_row == 3
    clock.advance(POLICY.job_failure_window)
    (later,) = services.database.read(lambda tx: snapshot_sql.read_workers(tx, [POLICY]))
    assert later.failed_in_a_row == 0


@pytest.mark.parametrize("held", [1, 3])
def test_a_batch_is_seen_whole(services: Services, held: int) -> None:
    for _ in range(held):
        a_job(services, type="embed")
    claim_for(services, {a_worker(services): ClaimRequest(most={"embed": 10})})
    (seen,) = services.database.read(snapshot_sql.read_workers)
    assert seen.job is not None
    assert len({seen.job.key, *(each.key for each in seen.batch)}) == held
