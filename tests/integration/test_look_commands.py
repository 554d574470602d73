"""`herdsman why`, `eta` and `cost` as a person types them."""

import json
import signal
import subprocess
import sys
from typing import IO, cast

import pytest

from herdsman.context import Services
from herdsman.jobs.model import JobPolicy
from herdsman.jobs.protocol import WorkerHeartbeat
from herdsman.jobs.worker_commands import record_heartbeat
from herdsman.server.wiring import new_job_id
from tests.support.builders import a_worker
from tests.support.databases import opened
from tests.support.shell import Shell


def test_why_needs_no_kind(shell: Shell) -> None:
    shell.said("submit", "demo", "--job-id", "my-first-job")
    assert shell.said("why", "my-first-job").startswith("job my-first-job: pending, for ")
    assert shell.said("why", "job", "my-f").startswith("job my-first-job: pending, for ")
    assert shell.said("why", "default").startswith("pool default: 1 queued")
    assert shell.json("why", "my-first-job")["kind"] == "job"
    assert shell("why", "nobody").returncode == 3
    assert "there is no job, worker or pool 'nobody'" in shell.refused("why", "nobody")
    assert shell("why", "lease", "x").returncode == 2
    assert "use job, worker or pool" in shell.refused("why", "lease", "x")


def test_a_worker_is_listed_with_the_types_that_its_services_do_not_let_it_take(shell: Shell) -> None:
    with opened(shell.environment["DATABASE_URL"]) as database:
        services = Services(database, JobPolicy(), new_job_id)
        record_heartbeat(services, a_worker(services), WorkerHeartbeat(unfit={"comfyui": "nobody answers"}))
    assert "ready; no comfyui: nobody answers" in shell.said("workers")
    assert "It takes no jobs of type comfyui: nobody answers" in shell.said("why", "worker", "w1")


def test_eta_says_what_it_rests_on(shell: Shell) -> None:
    shell.said("submit", "demo", "--job-id", "my-first-job")
    said = shell.said("eta", "my-first-job")
    assert said.startswith("job my-first-job: pending, number 1 in the queue of its pool\n")
    assert "no estimate: pool default has no active worker, and no control plane has ever run" in said
    found = shell.json("eta", "my-f")
    assert (found["position"], found["start"], found["sample"]) == (1, None, 0)
    assert shell("eta", "nobody").returncode == 3
    shell.said("cancel", "my-first-job")
    assert "the job has ended: cancelled" in shell.said("eta", "my-first-job")


def test_cost_is_told_by_what_was_asked_for(shell: Shell) -> None:
    assert shell.said("cost").startswith("no costs since ")
    found = shell.json("cost", "--by", "type", "--days", "366")
    assert (found["by"], found["total_usd"]) == ("type", 0)
    assert cast("list[object]", found["lines"]) == []


LISTS = (["cost"], ["policy", "history"], ["connectors", "list"], ["connectors"])


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
def test_every_list_may_be_wide_and_may_be_watched(shell: Shell, words: list[str]) -> None:
    shell.said("policy", "set", "default.max_queued=10")
    assert shell.said(*words, "-o", "wide").strip()
    with subprocess.Popen(
        [sys.executable, "-m", "herdsman", *words, "--watch", "-o", "json"],
        cwd=shell.directory,
        env=shell.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stdout is not None
        try:
            first, second = read_document(watching.stdout), read_document(watching.stdout)
        finally:
            watching.send_signal(signal.SIGINT)
    assert first.keys() == second.keys(), "it looked again"
    assert watching.returncode == 0


def read_document(printed: IO[str]) -> dict[str, object]:
    """The next one; `}` alone on its line ends it."""
    lines = list(iter(printed.readline, "}\n"))
    return json.loads("".join([*lines, "}"]))
