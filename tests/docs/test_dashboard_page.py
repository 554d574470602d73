"""The page on the dashboard tells of every page there, and every command that the dashboard shows can be typed."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, page, table
from tests.docs.test_reference import every_command

STATIC = ROOT / "src/herdsman/server/dashboard/static"
COMMANDS = dict(every_command())
GROUPS = {name.rpartition(" ")[0] for name in COMMANDS}
_SHOWN = re.compile(r"[\"'`]herdsman [a-z][^\"'`]*[\"'`]")


def commands_in(file: Path) -> Iterator[tuple[str, set[str]]]:
    """Each with its options, as far as they stand in the same text."""
    for shown in _SHOWN.findall(file.read_text()):
        words = re.sub(r"(--)?\$\{.*", "", shown[1:-1]).split()
        name = " ".join(words[:2])
        if name in GROUPS and len(words) > 2 and not words[2].startswith("-"):
            name = " ".join(words[:3])
        yield name, {word for word in words if word.startswith("-")}


@pytest.mark.parametrize("file", sorted(STATIC.rglob("*.js")), ids=lambda file: file.name)
def test_commands_that_are_shown_exist(file: Path) -> None:
    for name, options in commands_in(file):
        assert name in COMMANDS, f"there is no {name}"
        assert options <= COMMANDS[name], f"{name} has no {options - COMMANDS[name]}"


def test_commands_are_found() -> None:
    found = {name for file in STATIC.rglob("*.js") for name, _ in commands_in(file)}
    assert {"herdsman cancel", "herdsman submit", "herdsman token revoke"} <= found


def test_every_page_is_explained_in_the_order_of_the_navigation() -> None:
    sections = re.findall(r'^  \["\w+", "([^"]+)", "#/', (STATIC / "shell.js").read_text(), re.MULTILINE)
    assert [row[0] for row in table(page("docs/dashboard.md").section("Pages"))] == sections
