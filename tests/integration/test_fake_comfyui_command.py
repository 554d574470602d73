"""`herdsman fake-comfyui`: the fake as a program."""

import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import httpx
import pytest

from herdsman.cli.fakes import fake_comfyui
from herdsman.errors import InvalidRequest

START = "import typer; from herdsman.cli.fakes import fake_comfyui; typer.run(fake_comfyui)"


@contextmanager
def running(*arguments: str) -> Generator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-c", START, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline(), process.stdout.readline()]
            found = re.fullmatch(r"export COMFYUI_URL=(http://127\.0\.0\.1:\d+)\n", lines[1])
            assert found, lines
            assert found[1] in lines[0]
            yield found[1], process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def test_it_runs_until_it_is_told_to_stop() -> None:
    with running("--version", "0.3.45", "--fault", "html=1@/queue", "--fault", "unauthorized@/view") as (
        url,
        process,
    ):
        stats = httpx.get(f"{url}/system_stats").json()
        assert stats["system"]["comfyui_version"] == "0.3.45"
        assert "<html>" in httpx.get(f"{url}/queue").text
        assert httpx.get(f"{url}/queue").json() == {"queue_running": [], "queue_pending": []}
        assert [httpx.get(f"{url}/view").status_code for _ in range(3)] == [401, 401, 401]
    assert process.returncode == 0


@pytest.mark.parametrize("fault", ["plague", "html=often", "html=", "@x", ""])
def test_a_fault_that_is_not_understood_is_named(fault: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(repr(fault))):
        fake_comfyui(fault=[fault])
