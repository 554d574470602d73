"""Whoever reads what a command prints may have had enough, as `head -1` and `grep -q` have: it ends without a word."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api_server import served
from tests.support.shell import Shell

COMMANDS = [
    "--help", "jobs -o json", "why j1", "workers", "cost", "policy history", "connectors list", "plan", "config",
    "submit demo --count 3", "fake-runpod", "jobs --watch", "connectors check http://127.0.0.1:1",
]  # fmt: skip


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with served(Shell(tmp_path_factory.mktemp("pipes"))) as shell:
        shell.said("submit", "demo", "--job-id", "j1")
        yield shell


def unread(shell: Shell, *words: str, errors: int | None = subprocess.PIPE) -> tuple[int, str]:
    """Run it with nobody at the other end; its status, and what it complains about."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        run = subprocess.run(
            [sys.executable, "-m", "herdsman", *words],
            cwd=shell.directory,
            env=shell.environment,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=errors,
            text=True,
            timeout=120,
        )
    finally:
        os.close(writing)
    return run.returncode, run.stderr or ""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_that_nobody_reads_is_no_reason_to_complain(shell: Shell, command: str) -> None:
    status, said = unread(shell, *command.split())
    assert status in (0, 1, 3), "3 is what was asked for and is not there"
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    assert "Broken pipe" not in said


@pytest.mark.parametrize(("command", "status"), [("jobs", 1), ("job nobody", 3), ("retry", 2)])
def test_a_complaint_that_nobody_reads_changes_no_status(shell: Shell, command: str, status: int) -> None:
    assert unread(shell, *command.split(), errors=subprocess.STDOUT)[0] == status


def test_the_first_line_is_enough(shell: Shell, tmp_path: Path) -> None:
    told = tmp_path / "told"
    piped = f"{sys.executable} -m herdsman submit demo --count 500 2>{told} | head -1"
    run = subprocess.run(
        piped,
        shell=True,
        cwd=shell.directory,
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert len(run.stdout.splitlines()) == 1
    assert told.read_text() == ""
