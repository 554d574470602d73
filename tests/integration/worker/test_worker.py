"""A worker at its daily work: what handlers get, what they may say, batches, and warm processes."""

import json
from pathlib import Path

import pytest

from herdsman.jobs.model import FailureClass, JobPolicy
from herdsman.settings.environment import harmless_environment
from herdsman.states import JobStatus
from herdsman.worker.handler_process import Answer, HandlerChild
from herdsman.worker.registry import Sources
from herdsman.worker.stop_rules import ExitReason
from tests.integration.worker.worker_programs import HANDLERS, ROOT, WorkerSite, eventually, runs


def test_jobs_are_served_by_one_warm_process() -> None:
    worker_site = WorkerSite()
    ids = [worker_site.submit("echo", number) for number in range(20)]
    parted = worker_site.run()
    results = [worker_site.jobs.job(each).result for each in ids]
    assert [each["payload"] for each in results] == list(range(20))
    assert len({each["pid"] for each in results}) == 1
    assert parted.how is ExitReason.DRAINED
    assert worker_site.queue.words.count("claim") < 10, "new work comes back with the end of the last"
    assert "start" not in worker_site.queue.words
    assert worker_site.queue.left


def test_isolated_jobs_have_a_process_each() -> None:
    worker_site = WorkerSite(max_jobs=1)
    ids = [worker_site.submit("echo") for _ in range(3)]
    worker_site.run()
    results = [worker_site.jobs.job(each).result for each in ids]
    assert len({each["pid"] for each in results}) == 3


def test_what_a_job_prints_and_logs_is_kept_with_its_attempt() -> None:
    worker_site = WorkerSite()
    first, second = worker_site.submit("talk", priority=1), worker_site.submit("talk")
    worker_site.run()
    for job_id in (first, second):
        job = worker_site.jobs.job(job_id)
        assert sorted(job.logs[job.token]) == ["logged", "printed", "raw", "twice"]


def test_a_workspace_is_private_and_gone_afterwards() -> None:
    worker_site = WorkerSite()
    job_id = worker_site.submit("workspace")

    def look() -> None:
        eventually(lambda: worker_site.jobs.job(job_id).state is JobStatus.DONE)
        assert not Path(worker_site.jobs.job(job_id).result["path"]).exists(), "it is gone before the end is told"
        assert runs(worker_site.children[0].pid)

    worker_site.run(look)
    assert worker_site.jobs.job(job_id).result["mode"] == "0o700"


def test_what_a_handler_starts_ends_with_its_process() -> None:
    child = WorkerSite().one("keeps_a_child").result
    assert isinstance(child, int)
    eventually(lambda: not runs(child))  # it was killed; a busy machine takes a moment to let it go


def test_a_checkpoint_outlives_the_process_that_wrote_it() -> None:
    worker_site = WorkerSite(policy=JobPolicy(retry=WorkerSite().policy.retry))
    assert worker_site.one("resume", max_attempts=2).result == {"step": 7}


def test_no_secret_reaches_a_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HERDSMAN_TOKEN", "DATABASE_URL", "RUNPOD_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "canary")
    result = WorkerSite().one("environment").result
    assert "PATH" in result
    assert "canary" not in json.dumps(result)


@pytest.mark.parametrize(
    ("payload", "kind", "words"),
    [
        ("user", FailureClass.USER_ERROR, "no such model"),
        ("again", FailureClass.INFRASTRUCTURE, "the service is away"),
        ("cuda", FailureClass.OUT_OF_MEMORY, "CUDA out of memory"),
        ("other", FailureClass.JOB_ERROR, "KeyError: 'x'"),
    ],
)
def test_an_exception_is_told_in_its_class(payload: str, kind: FailureClass, words: str) -> None:
    failure = WorkerSite().one("raises", payload).failure
    assert failure is not None
    assert (failure.kind, words in failure.error) == (kind, True)


@pytest.mark.parametrize("payload", ["set", "nan", "huge"])
def test_a_result_that_cannot_be_stored_is_a_failure_and_the_process_lives(payload: str) -> None:
    worker_site = WorkerSite()
    job = worker_site.one("bad_result", payload)
    assert job.state is JobStatus.DEAD_LETTER
    assert len(worker_site.children) == 1


def test_each_job_of_a_batch_has_its_own_end_and_log() -> None:
    worker_site = WorkerSite()
    payloads = ["good", "bad", "full", "good"]
    ids = [worker_site.submit("many", payload) for payload in payloads]
    worker_site.run()
    jobs = [worker_site.jobs.job(each) for each in ids]
    kinds = [None if job.failure is None else job.failure.kind for job in jobs]
    assert kinds == [None, FailureClass.USER_ERROR, FailureClass.OUT_OF_MEMORY, None]
    assert [jobs[0].result, jobs[3].result] == [4, 4]
    assert sorted(jobs[0].logs[1]) == ["a batch of 4", f"mine: {ids[0]}"]


def test_a_cancelled_job_of_a_batch_takes_only_itself_along() -> None:
    """The others are given back unharmed, and run."""
    worker_site = WorkerSite(stop_grace=0.3)
    ids = [worker_site.submit("many", payload) for payload in ("good", "deaf", "good")]

    def cancel() -> None:
        eventually(lambda: worker_site.working([ids[1]]))
        worker_site.jobs.cancel(ids[1])

    worker_site.run(cancel)
    jobs = [worker_site.jobs.job(each) for each in ids]
    assert [job.state for job in jobs] == [JobStatus.DONE, JobStatus.CANCELLED, JobStatus.DONE]
    assert [job.spent for job in jobs] == [1, 0, 1], "no attempt counts against one that was given back"


def test_a_batch_waits_a_moment_for_the_rest() -> None:
    worker_site = WorkerSite()
    calls: list[str] = []

    def arrive(word: str) -> None:
        calls.append(word)
        if (
            word == "claim"
            and len(worker_site.jobs.all()) == 1
            and worker_site.jobs.held_by(worker_site.queue.worker_id)
        ):
            worker_site.submit("many")

    worker_site.queue.before = arrive
    first = worker_site.submit("many")
    worker_site.run()
    assert worker_site.jobs.job(first).result == 2


def test_a_command_gets_its_payload_as_arguments_and_never_as_a_shell(tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text("import json, sys\nprint('working')\nprint(json.dumps([sys.argv[1:], json.load(sys.stdin)]))\n")
    command = f"show=python3 {script} {{payload.prompt}} --n={{payload.n}} '{{{{x}}}}'"
    worker_site = WorkerSite(sources=Sources(commands=(command,)))
    payload = {"prompt": "a; rm -rf $(pwd) 'b", "n": 2}
    job = worker_site.one("show", payload)
    assert job.result == [["a; rm -rf $(pwd) 'b", "--n=2", "{x}"], payload]
    assert job.logs[1][0] == "working"


@pytest.mark.parametrize(
    ("code", "kind"),
    [("exit 75", FailureClass.INFRASTRUCTURE), ("exit 2", FailureClass.JOB_ERROR)],
)
def test_the_status_of_a_command_says_whose_fault_it_was(code: str, kind: FailureClass) -> None:
    failure = WorkerSite(sources=Sources(commands=(f"c=sh -c '{code}'",))).one("c", {}).failure
    assert failure is not None
    assert failure.kind is kind


def test_a_command_without_json_gives_what_it_printed() -> None:
    assert WorkerSite(sources=Sources(commands=("c=echo hello there",))).one("c", {}).result == {
        "stdout": "hello there\n"
    }


def test_a_command_that_is_cancelled_ends() -> None:
    worker_site = WorkerSite(sources=Sources(commands=("c=sleep 600",)))
    job_id = worker_site.submit("c", {})

    def cancel() -> None:
        eventually(lambda: worker_site.jobs.job(job_id).state is JobStatus.RUNNING)
        worker_site.jobs.cancel(job_id)

    worker_site.run(cancel)
    assert worker_site.jobs.job(job_id).state is JobStatus.CANCELLED
    assert len(worker_site.children) == 1


def test_handlers_that_cannot_be_imported_end_the_worker_with_a_sentence() -> None:
    worker_site = WorkerSite(sources=Sources(modules=("no_such_module",)))
    parted = worker_site.supervisor.run()
    assert parted.how is ExitReason.BROKEN
    assert "the handler 'no_such_module' cannot be imported: ModuleNotFoundError" in parted.reason


def test_a_child_says_what_it_can_run_before_any_job() -> None:
    child = HandlerChild(HANDLERS, harmless_environment())
    said: list[Answer] = []
    eventually(lambda: said.extend(child.listen(0.1)) or said)
    child.close()
    types = {each["type"]: each["batch"] for each in said[0]["ready"]}
    assert (types["echo"], types["many"], types["demo"]) == (1, 8, 1)
    assert ROOT.exists()
