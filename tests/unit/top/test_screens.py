"""The screens as they are drawn, letter by letter. `WRITE_SCREENS=1` takes what is drawn for what is right."""

import os
from pathlib import Path
from typing import Any

import pytest

from herdsman.cli.top.command import frame, observe
from herdsman.errors import Unreachable
from herdsman.fleet.wire import FleetOut
from tests.docs.pages import page
from tests.support.top_fleet import an_overview
from tests.support.top_server import FakeServer
from tests.support.top_terminal import PLACE, Terminal, at_terminal

SCREENS = Path(__file__).parent / "screens"
HOLD = "pool video is paused by admin:first (moving); go on with: herdsman resume --pool video"
EMPTY: dict[str, Any] = {
    "leader": None,
    "jobs": {},
    "queue": (),
    "running": 0,
    "workers": {},
    "oldest_wait_s": None,
    "last_decisions": (),
    "cost_per_hour": 0,
    "cost_today": 0,
}


def compare(name: str, drawn: str) -> None:
    file = SCREENS / f"{name}.txt"
    if os.environ.get("WRITE_SCREENS"):
        file.write_text(f"{drawn}\n", encoding="utf-8")
    assert f"{drawn}\n" == file.read_text(encoding="utf-8"), f"{name} is drawn otherwise:\n{drawn}"


@pytest.mark.parametrize(("name", "size"), [("first", (80, 24)), ("first-large", (132, 43))])
def test_the_first_page(name: str, size: tuple[int, int]) -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.until("QUEUE")
        compare(name, terminal.text())

    at_terminal(story, size=size)


def test_the_picture_in_the_docs_is_what_is_drawn() -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.press("tab")
        await terminal.until("▸gpu-17")
        (picture,) = [block.text for block in page("docs/top.md").blocks() if block.language == "text"]
        assert picture == f"{terminal.text()}\n"

    at_terminal(story)


def test_a_herd_that_is_empty_teaches() -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.until("no leader")
        compare("empty", terminal.text())

    at_terminal(story, FakeServer(seen=an_overview(**EMPTY), workers=(), jobs=()))


@pytest.mark.parametrize(
    ("name", "keys", "waits_for"),
    [
        ("queue", ("enter",), "jobs of type image"),
        ("worker", ("tab", "enter"), "GPUS"),
        ("job", ("tab", "tab", "j", "j", "enter"), "LOG"),
        ("decision", ("tab", "tab", "tab", "j", "enter"), "OUTCOME"),
        ("help", ("question_mark",), "q, Ctrl-C"),
        ("cancel", ("tab", "c"), "Cancel the job img-14?"),
        ("drain", ("tab", "d"), "Drain the worker"),
        ("filter", ("slash", *"img-1", "enter"), "only rows that contain"),
        ("failed", ("s", "s", "s"), "JOB (failed)"),
    ],
)
def test_the_pages_behind_it(name: str, keys: tuple[str, ...], waits_for: str) -> None:
    async def story(terminal: Terminal) -> None:
        for key in keys:
            await terminal.press(key)
            await terminal.settle()
        await terminal.until(waits_for)
        compare(name, terminal.text())

    at_terminal(story)


def test_a_server_that_is_away_leaves_the_last_picture() -> None:
    async def story(terminal: Terminal) -> None:
        await terminal.until("image")
        terminal.server.error = Unreachable(f"GET {PLACE}/overview got no answer: connection refused")
        await terminal.second(42)
        await terminal.until("no answer for 42s")
        compare("away", terminal.text())
        terminal.server.error = None
        await terminal.second()
        await terminal.until("no answer", gone=True)

    at_terminal(story, FakeServer(seen=an_overview(holds=(HOLD,))))


@pytest.mark.parametrize(("name", "size"), [("once", (80, 24)), ("once-large", (132, 43))])
def test_one_frame_as_text(name: str, size: tuple[int, int]) -> None:
    drawn = frame(observe(FakeServer().client), PLACE, *size)
    assert len(drawn.splitlines()) < size[1]
    assert max(map(len, drawn.splitlines())) <= size[0]
    compare(name, drawn)


def test_a_frame_says_what_is_held_and_how_many_are_not_shown() -> None:
    server = FakeServer(seen=an_overview(holds=(HOLD,)))
    many = FleetOut(workers=server.workers * 5, more=0)
    drawn = frame(observe(FakeServer(seen=server.seen, workers=many.workers).client), PLACE, 80, 24)
    assert f"! {HOLD}" in drawn.splitlines()
    assert "and 16 more" in drawn.splitlines()
