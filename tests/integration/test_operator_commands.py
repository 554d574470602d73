"""Pausing, draining and evicting as an operator types it."""

from typing import cast

from tests.support.shell import Shell


def test_a_pause_from_its_begin_to_its_end(shell: Shell) -> None:
    assert shell.said("holds").startswith("nothing is paused\n")
    said = shell.said("pause", "--pool", "a", "--reason", "moving")
    assert said == "pool a is paused (moving); resume with: herdsman resume --pool a\n"
    assert "automatically at 20" in shell.said("pause", "--type", "t", "--for", "60")
    held = cast("list[dict[str, object]]", shell.json("holds")["holds"])
    assert [each["scope"] for each in held] == ["pool:a", "type:t"]
    assert shell.said("resume", "--pool", "a").startswith("pool a is resumed\nstill: type t is paused")
    assert shell.said("resume").startswith("everything was not paused\n")


def test_what_cannot_be_meant_is_one_sentence(shell: Shell) -> None:
    assert shell("pause", "--pool", "a", "--type", "t").returncode == 2
    assert shell("pause", "--for", "0").returncode == 2
    assert shell("pause", "--pool", "a b").returncode == 2
    assert shell("evict", "nobody", "-y").returncode == 3
    assert "nobody leads now" in shell.refused("reconcile")
    assert shell("reconcile").returncode == 4


def test_a_drain_asks_first_and_says_what_is_left(shell: Shell) -> None:
    assert shell("drain").returncode == 1
    assert shell.said("holds").startswith("nothing is paused\n")
    said = shell.said("drain", "--yes", "--wait", "--reason", "the power goes")
    assert said.startswith("everything is drained (the power goes); resume with: herdsman resume\n")
    assert "workers: none" in said
    assert shell.json("drain", "-y", "--reason", "the power goes")["kind"] == "drain"
    assert shell.said("resume") == "everything is resumed\n"
