"""Somebody at a terminal with `herdsman top` in it, and the screen as lines of text."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from xml.etree import ElementTree

from textual.pilot import Pilot

from herdsman.cli.top.app import Top
from herdsman.cli.top.command import observe
from herdsman.cli.top.screens import Watching
from tests.support.top_server import PATIENCE_S, FakeServer

PLACE = "http://127.0.0.1:8765"


@dataclass
class StillClock:
    """Moves only when the test moves it."""

    seconds: float = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, duration: timedelta) -> None:  # noqa: ARG002
        raise AssertionError("nobody sleeps here")


@dataclass
class Terminal:
    """Somebody at a terminal, who presses keys and reads."""

    app: Top
    pilot: Pilot[None]
    clock: StillClock
    server: FakeServer

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def settle(self) -> None:
        """Until the page has its answer: a key that asks for something else is not heard before."""
        deadline = time.monotonic() + PATIENCE_S
        while self.app.is_running and isinstance(page := self.app.screen, Watching):
            if page.contact.asked_at is None:
                return
            assert time.monotonic() < deadline, "the page waits for its answer"
            await asyncio.sleep(0.01)

    async def second(self, seconds: float = 1.0) -> None:
        """Time passes, and what comes every second comes."""
        self.clock.seconds += seconds
        page = self.app.screen
        assert isinstance(page, Watching), "a window is open, which does not ask"
        page.tick()
        await self.pilot.pause()

    async def until(self, said: str, *, gone: bool = False) -> None:
        """Waits for words on the screen, over the ends of its lines: an answer comes from another thread."""
        deadline = time.monotonic() + PATIENCE_S
        while (said in " ".join(self.text().split())) is gone:
            assert time.monotonic() < deadline, f"{said!r} {'stays' if gone else 'is not'} in\n{self.text()}"
            await asyncio.sleep(0.02)

    def svg(self) -> str:
        return self.app.export_screenshot()

    def text(self) -> str:
        return screen_text(self.svg())

    def lines(self) -> list[str]:
        return self.text().splitlines()


def at_terminal(
    story: Callable[[Terminal], Awaitable[None]],
    server: FakeServer | None = None,
    size: tuple[int, int] = (80, 24),
) -> None:
    """Runs the program without a terminal, and the story at it."""

    async def run() -> None:
        shown, clock = server or FakeServer(), StillClock()
        app = Top(shown.client, PLACE, observe(shown.client), clock)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await story(Terminal(app, pilot, clock, shown))

    asyncio.run(run())


_LINE = re.compile(r"line-(\d+)\)")
_CHARACTER = 12.2
"""How wide rich draws one."""


def screen_text(svg: str) -> str:
    """The letters of an exported screen where they stand."""
    rows: dict[int, list[str]] = {}
    for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        place = _LINE.search(element.get("clip-path", ""))
        if place is not None:
            row = rows.setdefault(int(place[1]), [" "] * 400)
            column = round(float(element.get("x", "0")) / _CHARACTER)
            text = (element.text or "").replace("\xa0", " ")
            row[column : column + len(text)] = text
    return "\n".join("".join(rows.get(number, ())).rstrip() for number in range(max(rows, default=-1) + 1))
