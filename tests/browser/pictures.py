"""Takes the pictures of the documentation again: `python -m tests.browser.pictures`, from the top of the checkout."""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.chromium import WIDE, Visitor, a_visitor, chromium
from tests.browser.page_list import keep
from tests.browser.png import packed
from tests.browser.site import Site, a_site
from tests.support.up_command import until

HERE = Path("docs/pictures")
LARGEST = 150_000
"""Bytes of one picture: they travel with every clone."""


def main() -> None:
    HERE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="herdsman-") as place, a_site(Path(place)) as site:
        site.until_ready()
        healed = a_morning(site)
        with chromium() as browser, a_visitor(browser, site.url) as visitor:
            visitor.enter(site.token)
            take(visitor, healed)
    for each in sorted(HERE.glob("*.png")):
        each.write_bytes(packed(each.read_bytes()))
        assert each.stat().st_size <= LARGEST, f"{each} has {each.stat().st_size} bytes, over {LARGEST}"
        sys.stdout.write(f"{each} {each.stat().st_size} bytes\n")


def a_morning(site: Site) -> str:
    """The job whose worker was killed; others wait, run, have ended and have failed."""
    for _ in range(12):
        site.submit(1.5)
    healed = site.submit(6, tags=["portrait"], priority=5)
    site.kill_worker_of(healed)
    for seconds in (-1, -1, -5):
        site.submit(seconds)
    site.submit(30, timeout_seconds=1, max_attempts=1)
    for _ in range(2):
        site.call("POST", "/jobs/submit", {"type": "image", "payload": {"prompt": "a herd at dusk"}})
    site.wait(healed, "done")
    until(lambda: len(site.call("GET", "/failures")["groups"]) == 2)
    for _ in range(9):
        site.submit(4)
    return healed


def take(visitor: Visitor, healed: str) -> None:
    expect(visitor.see("queue-plot").locator("canvas")).to_be_visible()
    expect(visitor.see("queue")).to_be_visible()
    visitor.page.wait_for_timeout(6000)  # a cycle or two, for the plots
    keep(visitor, HERE, "overview", whole=False)
    visitor.go(f"/jobs/{healed}")
    expect(visitor.see("attempts")).to_be_visible()
    shot(visitor, "job", height=1030)
    visitor.go("/failures")
    expect(visitor.see("failure-group")).to_have_count(2)
    shot(visitor, "failures", height=600)


def shot(visitor: Visitor, name: str, *, height: int) -> None:
    visitor.page.set_viewport_size({"width": WIDE, "height": height})
    keep(visitor, HERE, name, whole=False)


if __name__ == "__main__":
    main()
