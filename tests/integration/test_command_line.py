"""The command as a person meets it: what it prints, and with which status it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from herdsman.context import Services
from herdsman.jobs.model import JobPolicy
from herdsman.jobs.worker_commands import complete_job
from herdsman.server.wiring import new_job_id
from tests.support.api_server import served
from tests.support.builders import a_claim
from tests.support.databases import opened
from tests.support.servers.mariadb import MariadbServer
from tests.support.shell import CANARY, Shell


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    """Where nothing runs."""
    return Shell(tmp_path)


def test_the_life_of_a_job_from_the_command_line(shell: Shell) -> None:
    first = shell("submit", "demo", "--payload", '{"prompt": "a herd"}', "--tag", "tour")
    job_id = first.stdout.strip()
    listed = json.loads(shell("jobs", "-o", "json").stdout)
    assert [(job["job_id"], job["status"], job["tags"]) for job in listed["jobs"]] == [(job_id, "pending", ["tour"])]
    assert shell("cancel", job_id).stdout == f"{job_id} is cancelled\n"
    assert shell.json("cancel", job_id) == {"job_id": job_id, "status": "cancelled"}
    assert shell.json("retry", job_id, "--payload", '{"prompt": "two herds"}') == {
        "job_id": job_id,
        "status": "pending",
    }
    shown = json.loads(shell("job", job_id, "-o", "json").stdout)
    assert shown["payload"] == {"prompt": "two herds"}
    assert [step["reason"] for step in shown["history"]] == ["submitted", "cancelled", "requeued_edited"]


def test_a_recovered_job_is_printed_with_what_it_saved(shell: Shell) -> None:
    with opened(shell.environment["DATABASE_URL"]) as database:
        services = Services(database, JobPolicy(), new_job_id)
        complete_job(services, a_claim(services, job_id="j1").key, 1, saved=timedelta(seconds=41.2))
    line = "result recovered from the service, which had finished it: 41.2 GPU seconds saved"
    assert line in shell.said("job", "j1").splitlines()
    assert shell.json("job", "j1")["saved_gpu_seconds"] == 41.2


def test_the_first_name_of_retry_still_works(shell: Shell) -> None:
    shell("submit", "demo", "--job-id", "one")
    shell("cancel", "one")
    assert shell("requeue", "one").stdout == "one is pending again\n"
    assert "│ requeue " not in shell("--help").stdout


def test_submitting_the_same_id_twice_is_one_job(shell: Shell) -> None:
    assert shell("submit", "demo", "--job-id", "one").stdout == "one\n"
    assert shell("submit", "demo", "--job-id", "one").stdout == "one (already submitted)\n"
    assert "was used before for another job body" in shell.refused("submit", "other", "--job-id", "one")
    assert shell("submit", "other", "--job-id", "one").returncode == 4


def test_up_makes_the_database_moves_due_jobs_and_stops_when_asked(alone: Shell) -> None:
    with started(alone, "up", "--port", "0") as greeting:
        assert "Ctrl-C" in greeting[-1]
        job_id = alone("submit", "image", "--delay", "1").stdout.strip()
        _wait_for_state(alone, job_id, "pending")
    assert "every job is kept" in greeting[-1]


def test_up_runs_a_job_to_its_end_while_somebody_watches(alone: Shell) -> None:
    with started(alone, "up", "--port", "0", "--fake-gpus", "1"):
        good = alone("run", "demo", "--payload", '{"seconds": 0.1}')
        assert (good.returncode, json.loads(good.stdout)) == (0, {"slept": 0.1})
        bad = alone("run", "demo", "--payload", '{"seconds": -1}')
        assert (bad.returncode, bad.stdout) == (1, "")
        assert "is dead_letter (user_error): seconds is -1" in bad.stderr


def test_a_job_that_somebody_cancels_ends_run_with_7(shell: Shell) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-m", "herdsman", "run", "demo", "--job-id", "one"],
        cwd=shell.directory,
        env=shell.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_until(lambda: shell("cancel", "one").returncode == 0)
    _, said = watching.communicate(timeout=30)
    assert (watching.returncode, said) == (7, "one is cancelled\n")


def test_the_api_of_up_wants_a_token_and_names_what_is_missing(alone: Shell) -> None:
    with started(alone, "up", "--port", "0") as greeting:
        url = next(line.split()[1] for line in greeting if line.startswith("api "))
        wrong = alone("jobs", API_URL=url, API_TOKEN="hm_wrong")
        assert (wrong.returncode, "the token is not known" in wrong.stderr) == (8, True)
        viewer = alone("token", "create", "eye").stdout.strip()
        assert alone("jobs", API_URL=url, API_TOKEN=viewer).returncode == 0
        refused = alone("submit", "demo", API_URL=url, API_TOKEN=viewer)
        assert (refused.returncode, "may not POST /jobs/submit" in refused.stderr) == (8, True)
    gone = alone("jobs", API_URL="http://127.0.0.1:1", API_TOKEN=viewer)
    assert (gone.returncode, "got no answer" in gone.stderr) == (5, True)


def test_serve_leaves_the_tables_alone(alone: Shell) -> None:
    assert "run herdsman db init" in alone.refused("serve", API_PORT="0")
    assert alone("db", "check").returncode == 6


@contextmanager
def started(shell: Shell, *words: str) -> Generator[list[str]]:
    """What it said at its start; at the end Ctrl-C is typed, and what it said last is added."""
    with subprocess.Popen(
        [sys.executable, "-m", "herdsman", *words],
        cwd=shell.directory,
        env=shell.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        greeting: list[str] = []
        try:
            while not greeting or "Ctrl-C" not in greeting[-1]:
                assert process.poll() is None
                greeting.append(process.stdout.readline())
            yield greeting
        finally:
            process.send_signal(signal.SIGINT)
            greeting.append(process.stdout.read())
        assert process.wait(30) == 0


def _wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline


def _wait_for_state(shell: Shell, job_id: str, state: str) -> None:
    deadline = time.monotonic() + 30
    while json.loads(shell("job", job_id, "-o", "json").stdout)["status"] != state:
        assert time.monotonic() < deadline, f"the job did not become {state}"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"DATABASE_URL": f"oracle://scott:{CANARY}@db/x"}, "DATABASE_URL must be sqlite:///FILE"),
        ({"DATABASE_URL": "not a url"}, "DATABASE_URL must be sqlite:///FILE"),
        ({"DATABASE_URL": f"postgresql://u:{CANARY}@127.0.0.1:1/x"}, "cannot be reached"),
        ({"DATABASE_URL": f"mariadb://u:{CANARY}@127.0.0.1:1/x"}, "cannot be reached"),
        ({"DATABASE_URL": "sqlite:////proc/herd/herd.db"}, "/proc/herd of the SQLite file cannot be made"),
        (
            {"MIN_ACTIVE_GPUS": "-1"},
            "MIN_ACTIVE_GPUS must be a whole number from 0 to 1000000000, but is -1 in the environment",
        ),
        (
            {"MIN_ACTIVE_GPUS": "20"},
            "MIN_ACTIVE_GPUS (20, environment) must be <= MAX_ACTIVE_GPUS (10, default)",
        ),
        ({"WATCHDOG_INTERVAL_SEC": "300"}, "must be < WATCHDOG_THRESHOLD_SEC (720, default) / 3"),
        ({"HERDSMAN_MIN_ACTIVE_GPU": "1"}, "did you mean HERDSMAN_MIN_ACTIVE_GPUS?"),
    ],
)
def test_bad_input_is_one_clear_sentence(alone: Shell, environment: dict[str, str], expected: str) -> None:
    assert expected in alone.refused("db", "init", **environment)


def test_an_unknown_setting_in_the_file_is_named_with_what_was_meant(alone: Shell) -> None:
    (alone.directory / "herdsman.toml").write_text("max_activ_gpus = 3\n")
    sentence = alone.refused("config")
    assert "max_activ_gpus" in sentence
    assert "did you mean max_active_gpus?" in sentence


def test_a_file_that_is_no_database_is_named(alone: Shell) -> None:
    alone.database.write_text("these are not the pages you are looking for")
    assert "file is not a database" in alone.refused("db", "init")


def test_without_a_server_a_command_says_how_to_start_one(alone: Shell) -> None:
    said = (
        "herdsman: no server runs on this machine: start one with herdsman up or herdsman serve,"
        " or set API_URL to where one is"
    )
    assert alone("db", "init").returncode == 0
    for words in (("jobs",), ("submit", "demo"), ("top", "--once"), ("leader",), ("worker",)):
        assert alone.refused(*words) == said
        assert alone(*words).returncode == 5


def test_a_server_that_has_gone_is_not_waited_for(alone: Shell) -> None:
    with served(alone):
        left = (alone.directory / ".local/state/herdsman/api").read_text()
    file = alone.directory / ".local/state/herdsman/api"
    file.write_text(left.replace(f'"pid": {os.getpid()}', '"pid": 1'))
    file.chmod(0o600)
    said = alone("jobs")
    assert said.returncode == 5
    assert "got no answer" in said.stderr
    assert "start it with herdsman up, or set API_URL" in said.stderr


def test_the_server_of_another_database_is_not_taken_for_ours(shell: Shell) -> None:
    other = f"sqlite:///{shell.directory}/other.db"
    for words in (("jobs",), ("worker",)):
        said = shell.refused(*words, DATABASE_URL=other)
        assert f"the server of this machine uses the database {shell.environment['DATABASE_URL']}" in said
        assert f"and DATABASE_URL is {other} here: set API_URL=http://127.0.0.1:" in said


@pytest.fixture(scope="module")
def old_server() -> Iterator[str]:
    with MariadbServer(options=["--version=10.3.39-MariaDB"]) as server:
        server.create_database("old")
        yield server.url("old")


def test_a_server_that_is_too_old_is_refused(alone: Shell, old_server: str) -> None:
    expected = "herdsman: MariaDB 10.3.39 is too old: Herdsman needs MariaDB 10.6 or newer"
    assert alone.refused("db", "init", DATABASE_URL=old_server) == expected


def test_the_defaults_of_an_empty_environment(alone: Shell) -> None:
    shown = json.loads(alone("config", "-o", "json").stdout)
    names = {
        "MIN_ACTIVE_GPUS": 2,
        "MAX_ACTIVE_GPUS": 10,
        "TASKS_PER_GPU_THRESHOLD": 3,
        "GPU_IDLE_TIMEOUT_SEC": 300,
        "TASK_STUCK_TIMEOUT_SEC": 300,
        "SPAWNING_TIMEOUT_SEC": 300,
        "GPU_HEALTH_CHECK_TIMEOUT_SEC": 120,
        "GRACEFUL_SHUTDOWN_TIMEOUT_SEC": 600,
        "ORCHESTRATOR_POLL_SEC": 30,
    }
    assert {name: shown[name]["value"] for name in names} == names
