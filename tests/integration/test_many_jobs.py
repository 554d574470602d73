"""Commands on many jobs, short ids and lists."""

import json
from typing import Any

import pytest

from tests.support.shell import Shell


def states(shell: Shell) -> dict[str, str]:
    found: Any = shell.json("jobs")["jobs"]
    return {each["job_id"]: each["status"] for each in found}


def test_many_jobs_are_one_batch_each_with_its_number(shell: Shell) -> None:
    ids = shell.said("submit", "demo", "--count", "3", "--payload", '{"seed": {n}}').split()
    assert [shell.json("job", each)["payload"] for each in ids] == [{"seed": 1}, {"seed": 2}, {"seed": 3}]
    created = {each["created_at"] for each in json.loads(shell("jobs", "-o", "json").stdout)["jobs"]}
    assert len(created) == 1, "one transaction has one instant"
    assert shell.json("submit", "demo", "--payload", '{"text": "{n}"}')["jobs"]
    assert shell("submit", "demo", "--count", "2", "--job-id", "one").returncode == 2


def test_the_end_of_an_id_is_enough_everywhere(shell: Shell) -> None:
    job, other = shell.said("submit", "demo", "--count", "2").split()
    end = job[-8:]
    assert shell.json("job", end)["job_id"] == job
    assert shell.said("logs", end) == ""
    assert shell.said("why", end).startswith(f"job {job}: ")
    assert shell.json("eta", end)["job_id"] == job
    assert shell.said("cancel", end) == f"{job} is cancelled\n"
    assert shell.said("retry", end) == f"{job} is pending again\n"
    begin = job[: next(n for n, (a, b) in enumerate(zip(job, other, strict=True)) if a != b)]
    several = shell("job", begin)
    assert several.returncode == 2
    assert f"'{begin}' fits 2 jobs: " in several.stderr
    assert job in several.stderr
    assert other in several.stderr
    assert shell("job", end[:3]).returncode == 3


def test_a_filter_cancels_what_lives_and_retries_what_is_lost(shell: Shell) -> None:
    for name in ("a", "b", "c"):
        shell.said("submit", "image", "--job-id", name, "--tag", "night")
    shell.said("submit", "demo", "--job-id", "d")
    shell.said("cancel", "a")
    would = shell.said("cancel", "--tag", "night", "--dry-run")
    assert would.splitlines() == ["c", "b", "would cancel 2 jobs; nothing was done"]
    assert shell("cancel", "--tag", "night").returncode == 1, "nobody was there to say yes"
    assert states(shell) == {"a": "cancelled", "b": "pending", "c": "pending", "d": "pending"}
    done = shell.said("cancel", "--tag", "night", "-y")
    assert done.splitlines()[-1] == "2 of 2 jobs changed by cancel"
    assert states(shell) == {"a": "cancelled", "b": "cancelled", "c": "cancelled", "d": "pending"}
    assert shell.said("retry", "--tag", "night", "-y") == "no matching jobs\n", "a cancelled job is not lost"
    again = shell.json("retry", "--tag", "night", "--status", "cancelled", "--limit", "2", "-y")
    assert again["changed"] == 2


def test_several_jobs_are_answered_each_by_itself(shell: Shell) -> None:
    shell.said("submit", "demo", "--job-id", "a")
    shell.said("submit", "demo", "--job-id", "b")
    shell.said("cancel", "b")
    some = shell("cancel", "a", "b", "-y", "-o", "json")
    assert some.returncode == 1
    said = json.loads(some.stdout)
    assert (said["changed"], said["jobs"][0]["status"]) == (1, "cancelled")
    assert "ended already" in said["jobs"][1]["refused"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cancel",), "nothing to cancel: give ids, or a filter such as --type"),
        (("retry", "-y"), "nothing to retry: give ids, or a filter"),
        (("cancel", "a", "--type", "demo"), "takes ids or a filter, not both"),
        (("retry", "--type", "demo", "--payload", "{}"), "--payload is for a single job"),
        (("chaos", "kill-worker", "x", "--count", "2"), "leave out the id, or --count"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(shell: Shell, words: tuple[str, ...], said: str) -> None:
    assert said in shell.refused(*words)
    assert shell(*words).returncode == 2


def test_a_list_that_is_empty_by_a_slip_says_what_may_have_been_meant(shell: Shell) -> None:
    shell.said("submit", "image", "--pool", "llama")
    assert shell.said("jobs", "--type", "imag") == "no matching jobs; did you mean image?\n"
    assert shell.said("jobs", "--pool", "lama") == "no matching jobs; did you mean llama?\n"
    assert shell.said("jobs", "--type", "xyz") == "no matching jobs\n"


def test_a_pool_that_is_misspelt_is_named(shell: Shell) -> None:
    shell.said("pool", "create", "llama", "--model", "m")
    assert "did you mean llama?" in shell.refused("pool", "show", "lama")
    assert "did you mean llama?" in shell.refused("evict", "lama", "-y")
    assert "would terminate 0 workers of llama" in shell.said("evict", "llama", "--dry-run")
    assert shell.json("pool", "show", "llama")["status"] == "starting"
    assert shell.json("pool", "drain", "llama", "--dry-run")["status"] == "starting"
    assert "would drain all workers" in shell.said("drain", "--dry-run")
    assert shell.said("holds").startswith("nothing is paused\n")


def test_pools_lists_those_of_the_settings_too(shell: Shell) -> None:
    shell.said("pool", "create", "llama", "--model", "m")
    shell.said("submit", "demo")
    rows = [line.split() for line in shell.said("pools").splitlines()]
    assert [row[0] for row in rows] == ["POOL", "llama", "default"]
    assert shell.json("pools")["other_pools"] == [{"pool_id": "default", "workers": 0, "active": 0, "queued": 1}]
    assert "SERVED BY" in shell.said("pools", "-o", "wide")


@pytest.mark.parametrize("words", [("jobs",), ("workers",), ("pools",), ("leases",), ("gpus",), ("token", "list")])
def test_every_list_comes_in_three_layouts(shell: Shell, words: tuple[str, ...]) -> None:
    shell.said("submit", "demo")
    shell.said("token", "create", "ann")
    for layout in ("table", "wide"):
        assert shell.said(*words, "-o", layout, "-n", "1").strip()
    assert shell.json(*words)


def test_what_happens_is_told_from_any_number_on(shell: Shell) -> None:
    shell.said("submit", "demo", "--job-id", "first")
    shell.said("submit", "demo", "--job-id", "second")
    shell.said("cancel", "first")
    lines = shell.said("events", "--since", "0", "-n", "3").splitlines()
    assert [line.split()[3] for line in lines] == ["first", "second", "first"]
    assert "pending -> cancelled" in lines[2]
    mine = shell("events", "--since", "0", "-n", "2", "--job", "first", "-o", "json").stdout.splitlines()
    assert [json.loads(each)["to_status"] for each in mine] == ["pending", "cancelled"]


def test_in_a_pipe_what_has_happened_is_told_and_then_it_ends(shell: Shell) -> None:
    shell.said("submit", "demo", "--job-id", "first")
    assert [line.split()[3] for line in shell.said("events").splitlines()] == ["first"]
    assert shell.said("events", "--since", "1") == ""


def test_a_payload_may_stand_in_a_file(shell: Shell) -> None:
    (shell.directory / "given.json").write_text('{"n": "{n}"}')
    one, *_ = shell.said("submit", "demo", "--payload", "@given.json").split()
    assert shell.json("job", one)["payload"] == {"n": "{n}"}
    many = shell.said("submit", "demo", "--count", "2", "--payload", "@given.json").split()
    assert [shell.json("job", each)["payload"] for each in many[:2]] == [{"n": "1"}, {"n": "2"}]
    said = shell.refused("submit", "demo", "--payload", "@missing.json")
    assert "--payload @missing.json cannot be read" in said
    (shell.directory / "wrong.json").write_text("no JSON")
    assert "--payload is not JSON" in shell.refused("run", "demo", "--payload", "@wrong.json")
