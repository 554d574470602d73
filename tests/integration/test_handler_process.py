"""A job in a process of its own: what it gets, what it may say, and that nothing of it stays."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from herdsman.core.model import Claim, ClaimKey, JobId, WorkerId
from herdsman.settings.surroundings import harmless_environment, visible_gpus
from herdsman.worker.child import Answer, HandlerChild


def a_claim(kind: str, payload: object) -> Claim:
    return Claim(
        key=ClaimKey(JobId("j1"), 1),
        worker_id=WorkerId("w1"),
        type=kind,
        payload=payload,
        attempt=1,
        timeout=None,
        expires_at=datetime.now(UTC),
        service_job_id=None,
    )


def run(kind: str, payload: object) -> tuple[list[Answer], str]:
    child = HandlerChild(a_claim(kind, payload), harmless_environment())
    answers: list[Answer] = []
    eventually(lambda: answers.extend(child.listen(0.05)) or child.ended())
    answers += child.listen(0)
    return answers, child.close()


def eventually(holds: Callable[[], object], patience_s: float = 20) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def test_the_demo_reports_progress_and_returns_what_it_did() -> None:
    answers, how = run("demo", {"seconds": 0.1, "filler": "x" * 500_000})
    assert answers[-1] == {"result": {"slept": 0.1}}
    assert [each["progress"] for each in answers[:2]] == [0.0, 0.05]
    assert how == "ended with status 0"


def test_a_job_that_is_wrong_says_so() -> None:
    answers, _ = run("demo", {"seconds": "many"})
    assert answers == [
        {"failure": "user_error", "error": "seconds is 'many': it must be a number from 0 to 86400"}
    ]
    answers, _ = run("nothing", {})
    assert answers[0]["failure"] == "user_error"


def test_a_job_that_is_killed_leaves_no_word_and_no_process() -> None:
    child = HandlerChild(a_claim("demo", {"seconds": 60}), harmless_environment())
    eventually(lambda: child.listen(0.1))
    child.ask_to_stop()
    eventually(child.ended)
    assert child.close() == f"was ended by signal {int(signal.SIGTERM)}"


ORPHANED = """
import os, time
from tests.integration.test_handler_process import a_claim
from herdsman.worker.child import HandlerChild
child = HandlerChild(a_claim("demo", {"seconds": 60}), dict(os.environ))
while not child.listen(0.1):
    pass
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_job_dies_with_its_supervisor() -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHANED], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        job = int(supervisor.stdout.readline())
        assert _runs(job)
        supervisor.kill()
        eventually(lambda: not _runs(job))


def test_no_secret_and_no_setting_reaches_a_job() -> None:
    given: Mapping[str, Any] = {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1, 2",
        "HF_HOME": "/models",
        "DATABASE_URL": "postgresql://ann:pw@host/db",
        "HERDSMAN_DATABASE_URL": "x",
        "HERDSMAN_ANYTHING": "x",
        "RUNPOD_API_KEY": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "GITHUB_TOKEN": "x",
        "MIRROR": "https://ann:pw@host/simple",
        "MAX_ATTEMPTS": "3",
    }
    assert harmless_environment(given).keys() == {"PATH", "CUDA_VISIBLE_DEVICES", "HF_HOME"}
    assert visible_gpus(given) == ("1", "2")
    assert visible_gpus({}) is None


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123  (it may vanish while it is read)
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
