"""`herdsman workers drain`: one worker leaves, and another comes where it was needed."""

from pathlib import Path
from typing import cast

from tests.support.shell import Shell
from tests.support.up_command import until, up


def test_a_worker_that_is_drained_leaves_and_is_replaced(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.environment |= {"FAKE_GPUS": "1", "MIN_ACTIVE_GPUS": "1", "MAX_ACTIVE_GPUS": "1"}
    with up(shell):
        until(lambda: workers(shell, "active"))
        (first,) = workers(shell, "active")
        assert f"{first} is terminating: it finishes its job" in shell.said("workers", "drain", first[-8:])
        until(lambda: workers(shell, "terminated") == [first])
        assert f"{first} was already" in shell.said("workers", "drain", first)
        until(lambda: workers(shell, "active"))
        assert workers(shell, "active") != [first]
        assert "there is no worker 'nobody'" in shell.refused("workers", "drain", "nobody")


def workers(shell: Shell, state: str) -> list[str]:
    found = cast("list[dict[str, str]]", shell.json("workers", "--status", state)["workers"])
    return [each["worker_id"] for each in found]
