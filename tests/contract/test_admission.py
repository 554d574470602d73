"""Limits at the door: the same for all replicas, in the transaction that stores the job, and exact."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert

from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.db.schema import gpus
from herdsman.errors import Conflict, InvalidRequest, Overloaded, TooMany
from herdsman.ids import JobId, PoolId
from herdsman.jobs.commands import (
    cancel_job,
    count_jobs,
    find_job,
    submit_job,
    submit_jobs,
)
from herdsman.jobs.model import NewJob, Submitted
from herdsman.jobs.worker_commands import complete_job
from herdsman.jobs.writer import Round, write_round
from herdsman.limits.admit import FRESH_S, GateCache
from herdsman.limits.commands import PolicyBook, count_gpu_seconds, set_policy
from herdsman.limits.wire import written
from herdsman.ports import SystemClock
from herdsman.states import JobStatus
from herdsman.testing.clocks import ManualClock
from tests.support.builders import a_worker, scalar, sql
from tests.support.databases import NOON, MovingClock, opened
from tests.support.threads import at_once
from tests.support.worker_calls import claim_job

SECOND = timedelta(seconds=1)
ANN: dict[str, Any] = {"type": "demo", "agent": "ann"}


def limited(services: Services, **policy: Any) -> Services:
    """Under this policy; a replica of its own, as fresh as one that has just begun."""
    set_policy(services, written(policy))
    return replace(services, rules=PolicyBook(services.database, SystemClock()))


def ann(**limits: Any) -> dict[str, Any]:
    return {"ann": limits}


def submitted(services: Services, count: int, **wanted: Any) -> int:
    """How many of them were let in, one after the other."""
    return sum(let_in(services, **wanted) for _ in range(count))


def let_in(services: Services, **wanted: Any) -> bool:
    asked: dict[str, Any] = {**ANN, **wanted}
    try:
        return submit_job(services, NewJob(**asked)).created
    except TooMany:
        return False


def stored(services: Services) -> int:
    return scalar(services.database, "SELECT COUNT(*) FROM orchestrator_jobs")


@pytest.fixture
def noon(clock: MovingClock) -> MovingClock:
    clock.stop(at=NOON)
    return clock


def test_an_agent_gets_its_burst_and_then_its_rate(services: Services, noon: MovingClock) -> None:
    here = limited(services, agents=ann(rate_per_second=2, burst=5))
    assert submitted(here, 8) == 5
    noon.advance(SECOND)
    assert submitted(here, 8) == 2
    noon.advance(timedelta(hours=1))
    assert submitted(here, 8) == 5
    assert (submitted(here, 8, agent="bob"), stored(services)) == (8, 12 + 8)


def test_j10_a_refusal_says_when_to_come_back_and_leaves_nothing(services: Services, noon: MovingClock) -> None:
    here = limited(services, agents=ann(rate_per_second=0.5, burst=1))
    assert submitted(here, 1) == 1
    with pytest.raises(TooMany, match=r"'ann' may submit 0\.5 jobs a second: ask again in 2 s") as refused:
        submit_job(here, NewJob(**ANN))
    assert (refused.value.code, refused.value.retry_after) == ("rate_limited", 2 * SECOND)
    assert stored(services) == 1
    noon.advance(2 * SECOND)
    assert submitted(here, 1) == 1


def test_limits_survive_a_restart_of_everything(url: str, services: Services, noon: MovingClock) -> None:
    here = limited(services, agents=ann(rate_per_second=1, burst=5, max_queued=6))
    assert submitted(here, 9) == 5
    with opened(url, noon) as again:
        rules = PolicyBook(again, SystemClock())
        assert submitted(Services(again, services.policy, services.new_job_id, rules=rules), 9) == 0


def test_two_replicas_share_one_bucket(url: str, services: Services, clock: MovingClock) -> None:
    """Sixteen clients on two replicas, all at once, and no token is spent twice."""
    clock.stop(at=NOON)
    limited(services, agents=ann(rate_per_second=1, burst=40))
    with opened(url, clock) as first, opened(url, clock) as second:
        replicas = [
            Services(each, services.policy, services.new_job_id, rules=PolicyBook(each, SystemClock()))
            for each in (first, second)
        ]
        taken = at_once(16, lambda number: submitted(replicas[number % 2], 10))
    assert (sum(taken), stored(services)) == (40, 40)


@pytest.mark.usefixtures("noon")
def test_j2_what_is_known_is_neither_refused_nor_charged(services: Services) -> None:
    here = limited(services, agents=ann(rate_per_second=1, burst=2))
    one = NewJob(**ANN, job_id=JobId("one"), idempotency_key="k")
    assert submit_job(here, one).created
    for _ in range(5):
        assert submit_job(here, one) == Submitted(JobId("one"), created=False)
    assert submitted(here, 3) == 1, "the repeats cost nothing"
    assert submit_job(here, one) == Submitted(JobId("one"), created=False), "an empty bucket is no matter"
    assert submit_job(here, NewJob(**ANN, idempotency_key="k")).job_id == "one"
    with pytest.raises(Conflict):
        submit_job(here, replace(one, payload="other"))


def test_j2_the_same_job_from_many_at_once_costs_one_token(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    here = limited(services, agents=ann(rate_per_second=1, burst=2))
    one = NewJob(**ANN, job_id=JobId("one"))
    made = at_once(8, lambda _: submit_job(here, one).created)
    assert sorted(made) == [*[False] * 7, True]
    assert submitted(here, 3) == 1


@pytest.mark.usefixtures("noon")
def test_a_batch_is_let_in_whole_or_not_at_all(services: Services) -> None:
    here = limited(services, agents=ann(rate_per_second=1, burst=5))
    assert len(submit_jobs(here, [NewJob(**ANN)] * 3)) == 3
    with pytest.raises(TooMany) as refused:
        submit_jobs(here, [NewJob(**ANN)] * 4)
    assert refused.value.retry_after == 2 * SECOND, "until all four tokens are there"
    assert stored(services) == 3
    assert len(submit_jobs(here, [NewJob(**ANN)] * 2)) == 2, "the refusal has cost nothing"
    with pytest.raises(InvalidRequest, match="never more than 5"):
        submit_jobs(here, [NewJob(**ANN)] * 6)


@pytest.mark.usefixtures("noon")
def test_one_agent_s_refusal_is_not_another_s(services: Services) -> None:
    here = limited(services, agents=ann(rate_per_second=1, burst=1))
    asked = [NewJob(type="demo", agent=agent) for agent in ("ann", "bob", "ann", "bob")]
    first, second, third, fourth = write_round(here, Round(news=asked)).submitted
    assert isinstance(third, TooMany)
    assert all(isinstance(each, Submitted) and each.created for each in (first, second, fourth))
    assert stored(services) == 3


@pytest.mark.usefixtures("noon")
def test_waiting_jobs_close_the_door_at_the_upper_mark_and_open_it_at_the_lower(
    services: Services,
) -> None:
    here = limited(services, agents=ann(max_queued=5, resume_queued=2))
    jobs = [submit_job(here, NewJob(**ANN)).job_id for _ in range(5)]
    with pytest.raises(TooMany, match="5 jobs waiting, the limit is 5") as refused:
        submit_job(here, NewJob(**ANN))
    assert (refused.value.code, refused.value.retry_after) == ("queue_quota", 5 * SECOND)
    for job_id in jobs[:2]:
        cancel_job(here, job_id)
    assert submitted(here, 1) == 0, "three wait, which is not down to the lower mark"
    cancel_job(here, jobs[2])
    assert submitted(here, 9) == 3
    with pytest.raises(InvalidRequest, match="5 may wait"):
        submit_jobs(here, [NewJob(**ANN)] * 6)


@pytest.mark.usefixtures("noon")
def test_a_door_that_was_closed_by_a_refusal_stays_closed(services: Services) -> None:
    """More may wait than the limit says: a retry, or a limit that was lowered."""
    for _ in range(4):
        submit_job(services, NewJob(**ANN))
    here = limited(services, agents=ann(max_queued=3, resume_queued=1))
    assert submitted(here, 1) == 0
    for job_id in list_ids(services)[:2]:
        cancel_job(here, job_id)
    assert submitted(here, 1) == 0


def list_ids(services: Services) -> list[JobId]:
    found = services.database.read(
        lambda tx: tx.connection.exec_driver_sql("SELECT job_id FROM orchestrator_jobs WHERE status = 'pending'").all()
    )
    return [JobId(row[0]) for row in found]


@pytest.mark.usefixtures("noon")
def test_jobs_that_are_delayed_or_wait_for_a_retry_wait(services: Services) -> None:
    here = limited(services, agents=ann(max_queued=2))
    assert submitted(here, 3, delay=timedelta(hours=1)) == 2


def test_many_at_once_do_not_slip_past_the_number_of_waiting_jobs(services: Services) -> None:
    here = limited(services, agents=ann(max_queued=20))
    assert sum(at_once(12, lambda _: submitted(here, 5))) == 20


def test_an_agent_is_stopped_by_a_limit_of_no_jobs(services: Services) -> None:
    here = limited(services, agents=ann(max_queued=0))
    assert (submitted(here, 2), submitted(here, 2, agent="bob")) == (0, 2)


@pytest.mark.usefixtures("noon")
def test_a_patient_job_is_put_off_and_runs_in_its_turn(services: Services) -> None:
    here = limited(services, agents=ann(rate_per_second=1, burst=1))
    patient = NewJob(**ANN, max_defer=3 * SECOND)
    answers = [submit_job(here, patient) for _ in range(4)]
    assert [(each.admission, each.run_at) for each in answers] == [
        (None, None),
        *[("rate_limited", NOON + number * SECOND) for number in (1, 2, 3)],
    ]
    assert let_in(here, max_defer=3 * SECOND) is False, "the fourth second is more than it may"
    job = find_job(here, answers[3].job_id)
    assert (job.status, job.run_at, job.admission) == (
        JobStatus.SCHEDULED,
        NOON + 3 * SECOND,
        "rate_limited",
    )


@pytest.mark.usefixtures("noon")
def test_a_job_that_may_do_without_a_gpu_goes_to_the_pool_for_cpus(services: Services) -> None:
    here = limited(services, agents=ann(rate_per_second=1, burst=1), cpu_pool="cpu", fallback_max_queued=3)
    asked = NewJob(**ANN, allow_cpu=True)
    answers = [submit_job(here, asked) for _ in range(4)]
    assert [(each.admission, each.pool) for each in answers] == [
        (None, None),
        *[("rate_limited", PoolId("cpu"))] * 3,
    ]
    assert let_in(here, allow_cpu=True) is False, "that pool is full"
    job = find_job(here, answers[1].job_id)
    assert (job.pool, job.status, job.admission) == ("cpu", JobStatus.PENDING, "rate_limited")


@pytest.mark.usefixtures("noon")
def test_j2_a_job_that_was_sent_elsewhere_is_known_by_what_was_asked_for(services: Services) -> None:
    here = limited(services, agents=ann(rate_per_second=1, burst=1), cpu_pool="cpu")
    assert submitted(here, 1) == 1
    asked = NewJob(**ANN, allow_cpu=True, job_id=JobId("away"))
    assert submit_job(here, asked).pool == "cpu"
    assert submit_job(here, asked) == Submitted(JobId("away"), created=False)
    assert submit_job(services, asked) == Submitted(JobId("away"), created=False)


def a_gpu(used: int, at: datetime = NOON, uuid: str = "g1") -> Callable[[Database], None]:
    row: dict[str, Any] = {
        "uuid": uuid,
        "node_id": "n1",
        "gpu_index": 0,
        "name": "fake",
        "total_mb": 1000,
        "used_mb": used,
        "measured_at": at,
        "proven_at": at,
    }
    known = {name: value for name, value in row.items() if name in gpus.c}
    return lambda database: database.transact(lambda tx: tx.execute(insert(gpus).values(known))) and None


def test_full_gpus_close_the_gate_for_gpu_jobs_for_a_time(services: Services, noon: MovingClock) -> None:
    a_gpu(950)(services.database)
    here = limited(services, gates={"gpu_memory_high_pct": 90, "gpu_memory_hold_seconds": 30}, cpu_pool="cpu")
    with pytest.raises(Overloaded, match="95 % of the GPU memory is in use") as refused:
        submit_job(here, NewJob(**ANN))
    assert (refused.value.code, refused.value.retry_after) == ("gpu_memory_gate", 30 * SECOND)
    assert submit_job(here, NewJob(**ANN, pool=PoolId("cpu"))).created
    assert submit_job(here, NewJob(**ANN, allow_cpu=True)).pool == "cpu"
    put_off = submit_job(here, NewJob(**ANN, max_defer=timedelta(minutes=1)))
    assert put_off.run_at == NOON + 30 * SECOND
    sql(services.database, "UPDATE orchestrator_gpus SET used_mb = 100")
    noon.advance(29 * SECOND)
    assert submitted(here, 1) == 0
    noon.advance(SECOND)
    assert submitted(here, 1) == 1


@pytest.mark.usefixtures("noon")
def test_a_measurement_that_is_old_says_nothing(services: Services) -> None:
    a_gpu(999, at=NOON - timedelta(minutes=5))(services.database)
    a_gpu(100, uuid="g2")(services.database)
    here = limited(services, gates={"gpu_memory_high_pct": 90})
    assert submitted(here, 1) == 1


@pytest.mark.usefixtures("noon")
def test_a_deep_queue_closes_the_gate_for_all_until_it_is_down(services: Services) -> None:
    here = limited(services, gates={"queue_high": 4, "queue_low": 2}, cpu_pool="cpu")
    jobs = [submit_job(here, NewJob(**ANN)).job_id for _ in range(4)]
    with pytest.raises(Overloaded, match="the queue has reached 4 jobs") as refused:
        submit_job(here, NewJob(type="demo", agent="bob"))
    assert refused.value.code == "queue_depth_gate"
    assert submit_job(here, NewJob(**ANN, allow_cpu=True)).admission == "queue_depth_gate"
    other_replica = replace(here, rules=PolicyBook(services.database, SystemClock()))
    cancel_job(here, jobs[0])
    assert submitted(other_replica, 1) == 0, "three wait, and another replica has closed it"
    cancel_job(here, jobs[1])
    assert submitted(here, 1) == 1


def test_jobs_that_wait_too_long_close_the_gate(services: Services, noon: MovingClock) -> None:
    here = limited(services, gates={"oldest_high_seconds": 60, "oldest_low_seconds": 30})
    first = submit_job(here, NewJob(**ANN)).job_id
    noon.advance(40 * SECOND)
    second = submit_job(here, NewJob(**ANN)).job_id
    noon.advance(20 * SECOND)
    assert submitted(here, 1) == 0
    cancel_job(here, first)
    assert submitted(here, 1) == 1, "the oldest has waited 20 s"
    assert find_job(here, second).status is JobStatus.PENDING


@pytest.mark.usefixtures("noon")
def test_a_gate_is_looked_at_a_few_times_a_second_however_many_come(services: Services) -> None:
    hands = ManualClock()
    policy = limited(services, gates={"queue_high": 2})
    here = replace(policy, gates=GateCache(services.database, hands))
    assert submitted(here, 5) == 5, "all of them within the first look"
    hands.advance(timedelta(seconds=FRESH_S))
    assert submitted(here, 5) == 0


def test_gpu_seconds_of_a_day_are_counted_and_refused_beyond(services: Services, noon: MovingClock) -> None:
    here = limited(services, agents=ann(gpu_seconds_per_day=90), cpu_pool="cpu")
    noon.stop(at=NOON.replace(hour=0) - 20 * SECOND)
    worker, cpu = a_worker(here), a_worker(here, "w2", pool="cpu")
    submit_job(here, NewJob(**ANN))
    submit_job(here, NewJob(**ANN, pool=PoolId("cpu")))
    held, elsewhere = claim_job(here, worker), claim_job(here, cpu)
    assert held is not None
    assert elsewhere is not None
    noon.advance(80 * SECOND)
    assert count_gpu_seconds(here) == 1
    assert used(services) == pytest.approx(60, abs=0.01), "what was before midnight is another day's"
    assert submitted(here, 1) == 1
    noon.advance(40 * SECOND)
    complete_job(here, held.key, None)
    noon.advance(400 * SECOND)
    count_gpu_seconds(here)
    assert used(services) == pytest.approx(100, abs=0.01)
    with pytest.raises(TooMany, match="100 GPU seconds today, the limit is 90") as refused:
        submit_job(here, NewJob(**ANN))
    assert refused.value.code == "gpu_seconds_quota"
    assert submit_job(here, NewJob(**ANN, pool=PoolId("cpu"))).created
    noon.advance(timedelta(days=1))
    count_gpu_seconds(here)
    assert submitted(here, 1) == 1


def used(services: Services) -> float:
    return scalar(services.database, "SELECT gpu_seconds FROM agent_usage WHERE agent = 'ann' ORDER BY day DESC")


def test_without_limits_nothing_is_looked_at(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """A5: the busy path is as short as it was."""

    def never(*_given: object, **_named: object) -> None:
        raise AssertionError("there is nothing to look at")

    monkeypatch.setattr("herdsman.jobs.commands.admit", never)
    monkeypatch.setattr("herdsman.limits.admit.read_gates", never)
    here = limited(services, agents={"bob": {"rate_per_second": 1}}, default={"max_running": 3})
    assert submitted(here, 3) == 3
    assert count_gpu_seconds(here) == 0
    assert scalar(services.database, "SELECT COUNT(*) FROM admission_buckets") == 0
    assert count_jobs(here)[JobStatus.PENDING] == 3


def test_t2_a_clock_that_is_set_back_and_forth_gives_no_more_than_a_burst(
    services: Services, noon: MovingClock
) -> None:
    here = limited(services, agents=ann(rate_per_second=1, burst=3))
    assert submitted(here, 9) == 3
    noon.advance(timedelta(hours=-2))
    assert submitted(here, 9) == 0
    noon.advance(2 * SECOND)
    assert submitted(here, 9) == 2, "it goes on from there, and does not wait for the hours to come back"
    noon.advance(timedelta(hours=2))
    assert submitted(here, 9) == 3
