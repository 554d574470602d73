"""Handlers that misbehave: the worker survives each, the job ends in the right class, no process is left."""

import ctypes
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from herdsman.ids import JobId
from herdsman.jobs.model import FailureClass
from herdsman.states import JobStatus
from herdsman.worker.pids import adopt_orphans
from tests.integration.worker.worker_programs import WorkerSite, eventually, runs
from tests.worker_queue import StoredJob

_PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture(autouse=True)
def reaper() -> Iterator[None]:
    adopt_orphans()
    yield
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0)


def failure_of(job: StoredJob) -> tuple[FailureClass, str]:
    assert job.state is JobStatus.DEAD_LETTER
    assert job.failure is not None
    return job.failure.kind, job.failure.error


def survived(worker_site: WorkerSite) -> None:
    """The same worker runs the next job, and nothing of the first is left."""
    first = [child.pid for child in worker_site.children]
    assert not any(runs(pid) for pid in first)


def after(kind: str, payload: object = None, **wanted: object) -> tuple[StoredJob, StoredJob, WorkerSite]:
    """The bad job, and a good one that the same worker ran after it."""
    worker_site = WorkerSite(stop_grace=0.3)
    bad = worker_site.submit(kind, payload, priority=1, **wanted)
    good = worker_site.submit("echo", "good")
    worker_site.run()
    survived(worker_site)
    assert worker_site.jobs.job(good).state is JobStatus.DONE
    return worker_site.jobs.job(bad), worker_site.jobs.job(good), worker_site


def test_one_that_holds_the_interpreter_lock_is_killed_at_its_timeout() -> None:
    bad, _, _ = after("holds_the_gil", timeout=timedelta(seconds=1))
    assert failure_of(bad) == (FailureClass.TIMEOUT, "the job did not end within its timeout")


def test_one_that_segfaults_is_a_job_error_and_its_last_line_is_kept() -> None:
    bad, _, _ = after("segfaults")
    kind, error = failure_of(bad)
    assert kind is FailureClass.JOB_ERROR
    assert error == "the handler's process was ended by signal 11 (SIGSEGV) without a word"
    assert bad.logs[bad.token] == ["before the fall"]


def test_one_that_exits_says_with_which_status() -> None:
    kind, error = failure_of(after("exits")[0])
    assert (kind, "exited with status 3" in error) == (FailureClass.JOB_ERROR, True)


@pytest.mark.parametrize("crash", [False, True])
def test_a_daemon_that_a_handler_forks_ends_with_the_job(tmp_path: Path, crash: bool) -> None:
    file = tmp_path / "pid"
    bad, _, _ = after("leaves_a_daemon", {"file": str(file), "crash": crash})
    assert bad.state is (JobStatus.DEAD_LETTER if crash else JobStatus.DONE)
    eventually(lambda: not runs(int(file.read_text())))


def test_a_daemon_ends_while_the_process_that_forked_it_stays_warm(tmp_path: Path) -> None:
    worker_site, file = WorkerSite(), tmp_path / "pid"
    worker_site.submit("leaves_a_daemon", {"file": str(file)})

    def look() -> None:
        eventually(lambda: all(job.status is JobStatus.DONE for job in worker_site.jobs.all()))
        eventually(lambda: not runs(int(file.read_text())), 10)
        assert runs(worker_site.children[0].pid)

    worker_site.run(look)


def test_a_fork_that_comes_back_is_not_a_second_answer() -> None:
    assert after("fork_comes_back")[0].result == "parent"


def test_one_that_fills_stdout_is_not_held_up_and_its_log_is_cut() -> None:
    bad, _, _ = after("fills_stdout")
    assert bad.result == "written"
    lines = bad.logs[bad.token]
    assert lines[-1] == f"log truncated after {len(lines) - 1} lines: the rest was not kept"
    assert sum(len(line) + 1 for line in lines) <= 1_048_576 + 100


def test_one_that_ignores_a_cancel_is_killed_after_the_grace_and_is_cancelled() -> None:
    """J7"""
    worker_site = WorkerSite(stop_grace=0.3)
    job_id = worker_site.submit("ignores_cancel")

    def cancel() -> None:
        eventually(lambda: worker_site.working([job_id]))
        assert worker_site.jobs.cancel(job_id) is JobStatus.RUNNING

    worker_site.run(cancel)
    assert worker_site.jobs.job(job_id).state is JobStatus.CANCELLED
    survived(worker_site)


def test_one_that_obeys_a_cancel_keeps_its_process_warm() -> None:
    worker_site = WorkerSite()
    job_id = worker_site.submit("obeys_cancel")

    def cancel() -> None:
        eventually(lambda: worker_site.working([job_id]))
        worker_site.jobs.cancel(job_id)
        eventually(lambda: worker_site.jobs.job(job_id).state is JobStatus.CANCELLED)
        worker_site.submit("echo", job_id=JobId("next"))

    worker_site.run(cancel)
    assert worker_site.jobs.job(JobId("next")).state is JobStatus.DONE
    assert len(worker_site.children) == 1


def test_one_that_stalls_is_killed_and_the_sentence_names_it() -> None:
    assert failure_of(after("stalls")[0]) == (
        FailureClass.TIMEOUT,
        "the job showed no progress for too long",
    )


def test_one_that_allocates_past_its_limit_is_out_of_memory() -> None:
    kind, error = failure_of(after("allocates")[0])
    assert (kind, "MemoryError" in error) == (FailureClass.OUT_OF_MEMORY, True)


def test_one_whose_processes_together_are_past_the_limit_is_out_of_memory() -> None:
    kind, error = failure_of(after("grows_by_children")[0])
    assert (kind, error) == (FailureClass.OUT_OF_MEMORY, "the job used more memory than it may")


def test_one_that_lies_to_its_supervisor_only_spoils_its_own_job() -> None:
    """X7"""
    worker_site = WorkerSite()
    other = worker_site.submit("echo", "mine", job_id=JobId("other"))
    worker_site.submit("lies", priority=1)
    worker_site.run()
    assert worker_site.jobs.job(other).result["payload"] == "mine"


def test_one_that_closes_its_line_is_ended() -> None:
    assert failure_of(after("closes_everything")[0])[0] is FailureClass.JOB_ERROR
