"""What the page on loops says is so: its defaults, its inequalities and its probes."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from herdsman.loops import HealthServer, LoopGroup, MainLoop, Watchdog
from herdsman.loops.loop_group import misfits
from tests.docs.pages import page, table

PAGE = page("docs/loops.md")
OWNERS: dict[str, Callable[..., Any]] = {
    "LoopGroup": LoopGroup.__init__,
    "LoopGroup.run": LoopGroup.run,
    "MainLoop": MainLoop.__init__,  # pyright: ignore[reportUnknownMemberType]
    "HealthServer": HealthServer.__init__,
    "Watchdog": Watchdog.__init__,
}


@pytest.mark.parametrize(("name", "of", "default"), table(PAGE.section("Defaults")))
def test_the_defaults_are_as_the_page_says(name: str, of: str, default: str) -> None:
    assert str(inspect.signature(OWNERS[of]).parameters[name].default) == default


def test_the_inequalities_are_those_that_are_checked() -> None:
    said = "".join(misfits(visibility_timeout=1, wait_time_seconds=900, watchdog_interval=900))
    listed = re.findall(r"^- `(.*)`", PAGE.section("Timeouts that must fit together"), re.MULTILINE)
    assert len(listed) == 3
    assert all(f"{each} does not hold" in said for each in listed)


@pytest.mark.parametrize(
    ("probe", "path", "timing"),
    [("livenessProbe", "/health/live", [10, 10, 3]), ("readinessProbe", "/health/ready", [5, 5, 2])],
)
def test_the_probes_of_the_manifest_are_those_of_the_contract(probe: str, path: str, timing: list[int]) -> None:
    (manifest,) = [block.text for block in PAGE.blocks() if "kind: Pod" in block.text]
    own = re.search(rf"^( +){probe}:\n((?:\1 .*\n)+)", manifest, re.MULTILINE)
    assert own is not None
    fields = dict(re.findall(r"(\w+): (\S+)", own[2]))
    assert (fields["path"], fields["port"]) == (path, "8080")
    names = ("initialDelaySeconds", "periodSeconds", "failureThreshold")
    assert [int(fields[name]) for name in names] == timing


@pytest.mark.parametrize(
    "word", ["One stuck loop", "belongs to a loop", "looks like a stall", "One process", "daemon threads"]
)
def test_every_limit_has_an_answer(word: str) -> None:
    (row,) = [row for row in table(PAGE.section("Limits")) if word in row[0]]
    assert len(row[1]) > 30
