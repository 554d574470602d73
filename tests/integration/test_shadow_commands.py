"""A shadow policy as a person meets it: `herdsman plan`, `cycle` and `policy shadow`."""

from typing import Any, cast

import pytest

from tests.support.shell import Shell

# Three jobs and no worker: threshold asks for one, workload for the spare ones as well.
SPARE = {"MIN_ACTIVE_GPUS": "0", "MACHINES_TO_KEEP_IDLE": "2", "SHADOW_SCALING_POLICY": "workload"}


def test_plan_shows_both(shell: Shell) -> None:
    shell.environment |= SPARE
    said = shell.said("plan", "--queued", "3")
    assert "  threshold  to 1 workers: asks for 1: " in said
    assert "  workload   to 2 workers: asks for 2: " in said
    assert "[shadow: not done]" in said
    (noted,) = cast("list[Any]", shell.json("plan", "--queued", "3")["shadow"])
    assert (noted["live"]["spawns"], noted["shadow"]["spawns"]) == (1, 2)
    assert "would do the same" in shell.said("plan", "--queued", "30", "--active", "10")


def test_without_a_shadow_nothing_is_said_of_one(shell: Shell) -> None:
    assert "shadow" not in shell.said("plan", "--queued", "3")
    assert "shadow" not in shell.json("plan", "--queued", "3")
    assert "set SHADOW_SCALING_POLICY" in shell.said("policy", "shadow")


@pytest.mark.parametrize("command", [("plan",), ("cycle", "--dry-run")])
def test_an_unknown_name_is_refused(shell: Shell, command: tuple[str, ...]) -> None:
    sentence = shell.refused(*command, SHADOW_SCALING_POLICY="nobody")
    assert "SHADOW_SCALING_POLICY is 'nobody', which is not installed" in sentence
    assert "adaptive, threshold, workload" in sentence


def test_what_it_would_have_done_is_summed_up(shell: Shell) -> None:
    """Without a job, threshold wants nobody, and workload the two spare ones."""
    shell.environment |= SPARE
    assert "workload   to 2 workers: asks for 2" in shell.said("cycle", "--dry-run")
    assert shell.json("policy", "shadow")["cycles"] == 0, "a dry run is not recorded"
    assert shell.json("cycle", "--explain")["steps"] == []
    assert "shadow: not done" in shell.said("cycle", "--explain")
    said = shell.said("policy", "shadow")
    assert "2 cycles ran a shadow policy, and in 2 it would have acted differently" in said
    assert "pool default, shadow workload: 2 of 2 cycles differ; 0.0 worker-hours more, 0.0 less" in said
    assert said.count("  workload   to 2 workers: asks for 2: ") == 2
    assert shell.json("policy", "shadow", "--hours", "1")["differed"] == 2
    assert shell.said("workers").startswith("no worker"), "nothing of it was done"
