"""A main loop on Herdsman's own queue: each database, real claims, real ends."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from herdsman.context import Services
from herdsman.jobs.commands import find_job
from herdsman.loops import LoopGroup, MainLoop, WorkQueueMailbox
from herdsman.ports import SystemClock
from herdsman.states import JobStatus
from herdsman.testing.direct_queue import DirectQueue
from tests.support.builders import a_job, a_worker


class Halving(MainLoop[Any, float]):
    def perform(self, request: Any, beat: Callable[[], None]) -> float:
        beat()
        return 10 / request["by"]


def opened(services: Services) -> WorkQueueMailbox:
    worker_id = a_worker(services)
    queue = DirectQueue(services=services, worker_id=worker_id, clock=SystemClock(), poll=timedelta(milliseconds=10))
    return WorkQueueMailbox(queue, ["halve"])


def test_jobs_run_through_a_loop(services: Services) -> None:
    good, bad = (a_job(services, type="halve", payload={"by": by}) for by in (2, 0))
    mailbox = opened(services)
    LoopGroup([Halving(mailbox, name="halving")]).run(max_iterations=2, wait_time_seconds=20)
    assert (find_job(services, good).status, find_job(services, good).result) == (JobStatus.DONE, 5.0)
    failed = find_job(services, bad)
    assert failed.status is JobStatus.FAILED
    assert "ZeroDivisionError" in (failed.last_error or "")
    mailbox.close()


def test_a_job_that_was_not_begun_goes_back_unharmed(services: Services) -> None:
    job_id = a_job(services, type="halve", payload={"by": 2})
    mailbox = opened(services)
    (message,) = mailbox.receive(wait_time_seconds=20)
    assert find_job(services, job_id).status is JobStatus.RUNNING
    message.nack(visibility_timeout=0)
    assert find_job(services, job_id).status is JobStatus.PENDING
    (again,) = mailbox.receive(wait_time_seconds=20)
    assert again.receipt_handle != message.receipt_handle
    again.ack(5)
    assert find_job(services, job_id).result == 5
    mailbox.close()
