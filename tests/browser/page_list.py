"""Every page that there is, and what must be true of each of them on any screen."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from tests.browser.chromium import HEIGHT, Theme, Visitor
from tests.browser.story import Story

THEMES: tuple[Theme, ...] = ("light", "dark")
FITS = "document.documentElement.scrollWidth <= window.innerWidth"
SETTLING_S = 10
GRAVE = ("serious", "critical")


@dataclass(frozen=True, slots=True)
class Sight:
    route: str
    title: str
    shows: str
    """The test name of a part that is there only when the page has its data."""

    def visit(self, visitor: Visitor, story: Story) -> None:
        visitor.go(self.route.format_map(places(story)))
        visitor.arrived(f"{self.title.format_map(places(story))}")
        expect(visitor.see(self.shows).first).to_be_visible()
        assert visitor.see("trouble").count() == 0


SIGHTS: Mapping[str, Sight] = {
    "overview": Sight("/", "Overview", "queue"),
    "jobs": Sight("/jobs", "Jobs", "jobs"),
    "jobs-none": Sight("/jobs?status=cancelled&type=nothing", "Jobs", "empty"),
    "job-healed": Sight("/jobs/{healed}", "Job {healed_short}", "attempts"),
    "job-running": Sight("/jobs/{running}", "Job {running_short}", "job-progress"),
    "job-failed": Sight("/jobs/{failed}", "Job {failed_short}", "why"),
    "job-waiting": Sight("/jobs/{waiting}", "Job {waiting_short}", "eta"),
    "job-odd": Sight("/jobs/odd", "Job odd", "payload-json"),
    "workers": Sight("/workers", "Workers", "workers"),
    "worker": Sight("/workers/{worker}", "Worker {worker_short}", "history"),
    "pools": Sight("/pools", "Pools and leases", "leases"),
    "pool": Sight("/pools/painters", "Pool painters", "facts"),
    "decisions": Sight("/decisions", "Decisions", "decisions"),
    "decision": Sight("/decisions/{cycle}", "Cycle {cycle}", "actions"),
    "failures": Sight("/failures", "Failures", "failure-group"),
    "money": Sight("/money", "Money", "per-hour"),
    "events": Sight("/events", "Events", "events"),
    "settings": Sight("/settings", "Settings", "settings-group"),
    "tokens": Sight("/tokens", "Tokens", "tokens"),
    "missing": Sight("/nowhere", "Not found", "title"),
}


def places(story: Story) -> dict[str, Any]:
    ids = {name: getattr(story, name) for name in ("healed", "failed", "running", "waiting", "worker")}
    return {**ids, **{f"{name}_short": short(each) for name, each in ids.items()}, "cycle": story.cycle}


def short(name: str) -> str:
    """As the pages write it."""
    return name if len(name) <= 20 else f"{name[:8]}…{name[-6:]}"


def show(visitor: Visitor, theme: Theme, width: int) -> None:
    visitor.page.emulate_media(color_scheme=theme)
    visitor.page.set_viewport_size({"width": width, "height": HEIGHT})


def too_wide(visitor: Visitor) -> list[str]:
    """What sticks out to the right, if the page can be moved sideways; plots get a moment to find their size."""
    deadline = time.monotonic() + SETTLING_S
    while not visitor.page.evaluate(FITS) and time.monotonic() < deadline:
        visitor.page.wait_for_timeout(100)
    return visitor.page.evaluate(
        """() => {
            const room = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= window.innerWidth) return [];
            const out = [...document.querySelectorAll("main *")].filter(
                (each) => each.getBoundingClientRect().right > room + 1,
            );
            return [`${document.documentElement.scrollWidth} px`, ...out.map((each) => each.outerHTML.slice(0, 150))];
        }"""
    )


def grave_findings(visitor: Visitor) -> list[str]:
    """What axe finds that keeps people out."""
    visitor.page.evaluate(axe())
    found: list[dict[str, Any]] = visitor.page.evaluate(
        "async () => (await axe.run(document, { resultTypes: ['violations'] })).violations"
    )
    return [
        f"{each['id']} ({each['impact']}): {each['help']}: {node['html'][:200]}"
        for each in found
        if each["impact"] in GRAVE
        for node in each["nodes"]
    ]


@cache
def axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text()


def keep(visitor: Visitor, folder: Path | None, name: str, *, whole: bool = True) -> None:
    """Where somebody wants pictures: to draw a page takes longer than to look at it."""
    if folder is not None:
        visitor.page.screenshot(path=folder / f"{name}.png", full_page=whole)
