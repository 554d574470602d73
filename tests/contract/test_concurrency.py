"""Everybody at once: each job goes to one worker, each name to one job, each end is written once."""

import itertools
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from herdsman.context import Services
from herdsman.fleet.commands import move_worker
from herdsman.ids import JobId, PoolId
from herdsman.jobs.commands import find_job, list_jobs, submit_job, submit_jobs
from herdsman.jobs.model import ClaimKey, NewJob
from herdsman.jobs.worker_commands import complete_job
from herdsman.states import Reason, WorkerStatus
from tests.support.amounts import SOAK
from tests.support.builders import a_worker, scalar
from tests.support.threads import at_once
from tests.support.worker_calls import claim_job, claim_jobs

CLAIMERS, JOBS = 50, 2000 if SOAK else 1000
MINUTE = timedelta(minutes=1)


def test_fifty_claimers_empty_a_long_queue(services: Services) -> None:
    """J3: no job is claimed twice, none is left out"""
    for _ in range(JOBS // 1000):
        submit_jobs(services, [NewJob(type="demo") for _ in range(1000)])
    workers = [a_worker(services, f"w{number}") for number in range(CLAIMERS)]

    def work(number: int) -> list[ClaimKey]:
        done: list[ClaimKey] = []
        while claim := claim_job(services, workers[number]):
            complete_job(services, claim.key, number)
            done.append(claim.key)
        return done

    began = time.monotonic()
    taken = Counter(key for keys in at_once(CLAIMERS, work) for key in keys)
    assert time.monotonic() - began < 60
    assert len(taken) == JOBS
    assert set(taken.values()) == {1}
    assert {key.token for key in taken} == {1}
    assert scalar(services.database, "SELECT COUNT(*) FROM orchestrator_jobs WHERE status = 'done'") == JOBS
    assert scalar(services.database, "SELECT COUNT(*) FROM job_attempts WHERE outcome = 'done'") == JOBS


@pytest.mark.parametrize("named_by", ["job_id", "idempotency_key"])
def test_j2_a_hundred_submissions_of_one_job_are_one_job(services: Services, named_by: str) -> None:
    name: dict[str, Any] = {named_by: "one"}
    new = NewJob(type="demo", payload={"n": 1}, **name)
    answers = at_once(100, lambda _: submit_job(services, new))
    assert len({answer.job_id for answer in answers}) == 1
    assert [answer.created for answer in answers].count(True) == 1
    assert len(list_jobs(services).jobs) == 1


def test_j2_batches_that_overlap_are_stored_once(services: Services) -> None:
    news = [NewJob(type="demo", job_id=JobId(f"j{number}")) for number in range(60)]
    answers = at_once(10, lambda number: submit_jobs(services, news[number * 4 : number * 4 + 24]))
    created = Counter(answer.job_id for answer_list in answers for answer in answer_list if answer.created)
    assert created == Counter(new.job_id for new in news)


def test_who_waits_for_a_connection_is_not_overtaken(services: Services) -> None:
    """Twenty share ten connections (SQLite: one), and each that leaves comes again at once."""
    turns = itertools.count()
    # A connection that is opened takes longer than many turns of the others.
    at_once(20, lambda _: services.database.transact(lambda _: time.sleep(0.1)))

    def work(_: int) -> int:
        done = 0
        while next(turns) < 600:
            services.database.transact(lambda _: time.sleep(0.002))
            done += 1
        return done

    done = at_once(20, work)
    assert min(done) * 2 >= max(done), done


def test_one_worker_that_asks_many_times_at_once_gets_one_job(services: Services) -> None:
    worker = a_worker(services)
    submit_jobs(services, [NewJob(type="demo") for _ in range(30)])
    claims = [claim for claim in at_once(20, lambda _: claim_job(services, worker)) if claim is not None]
    assert len(claims) == 1
    assert find_job(services, claims[0].key.job_id).worker_id == worker


def test_crowds_that_overlap_get_one_job_for_each_worker(services: Services) -> None:
    """In any order: a batch must not wait for another that waits for it."""
    workers = [a_worker(services, f"w{number:02}") for number in range(30)]
    submit_jobs(services, [NewJob(type="demo") for _ in range(100)])
    crowds = at_once(8, lambda number: claim_jobs(services, workers[:: 1 if number % 2 else -1]))
    claims = [claim for crowd in crowds for claim in crowd]
    assert sorted(claim.worker_id for claim in claims) == workers
    assert len({claim.key.job_id for claim in claims}) == len(workers)


def test_p8_a_worker_that_drains_is_given_nothing_from_then_on(services: Services) -> None:
    """The audit is the witness: it numbers a worker's drain and its claims in the order they happened."""
    workers = [a_worker(services, f"w{number}", pool=f"p{number}") for number in range(10)]
    for number in range(10):
        submit_jobs(services, [NewJob(type="demo", pool=PoolId(f"p{number}")) for _ in range(40)])

    def work(number: int) -> int:
        worker, drains = workers[number // 2], number % 2
        if drains:
            time.sleep(0.01 * number)
            move_worker(services, worker, WorkerStatus.TERMINATING, Reason.DRAINED)
            return 0
        done = 0
        while claim := claim_job(services, worker):
            complete_job(services, claim.key)
            done += 1
        return done

    at_once(20, work)
    late = (
        "SELECT COUNT(*) FROM orchestrator_audit c JOIN orchestrator_audit d"
        " ON d.event_type = 'worker.terminating' AND c.event_type = 'job.claimed'"
        " AND c.actor = :prefix || d.object_id AND c.id > d.id"
    )
    if services.database.backend == "MariaDB":
        late = late.replace(":prefix || d.object_id", "CONCAT(:prefix, d.object_id)")
    assert scalar(services.database, late, prefix="worker:") == 0
