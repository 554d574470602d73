"""A real Chromium, and a visitor in front of it who notices what must never happen."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Request,
    expect,
    sync_playwright,
)

from tests.support.servers.server import program

Theme = Literal["light", "dark"]

PATIENCE_MS = 60_000
WIDE, PHONE = 1440, 375
HEIGHT = 900
# The tests often run as root in a container, where Chromium has no sandbox; names lead nowhere but to this machine.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
# What an address begins with that is answered without any network.
WITHIN = ("blob:", "data:")


@contextmanager
def chromium() -> Generator[Browser]:
    """Of the system, with a profile of its own that is gone afterwards."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        playwright.selectors.set_test_id_attribute("data-test")
        browser = playwright.chromium.launch(executable_path=program("chromium"), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def a_visitor(browser: Browser, url: str, theme: Theme = "light") -> Generator["Visitor"]:
    """With nothing remembered. Leaving, they must have nothing to complain about."""
    context = browser.new_context(
        viewport={"width": WIDE, "height": HEIGHT}, color_scheme=theme, reduced_motion="reduce"
    )
    context.set_default_timeout(PATIENCE_MS)
    visitor = Visitor(context.new_page(), url)
    try:
        yield visitor
        assert not visitor.complaints(), visitor.complaints()
    finally:
        context.close()


class Visitor:
    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self._seen: list[str] = []
        self._forgiven: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", self._stumble)
        page.on("request", self._follow)

    def enter(self, token: str, route: str = "/") -> None:
        """Signed in by the address, as from the link that `herdsman up` prints."""
        self.page.goto(f"{self.url}/#token={token}")
        expect(self.see("me")).to_be_attached()
        if route != "/":
            self.go(route)

    def go(self, route: str) -> None:
        self.page.evaluate("route => { location.hash = `#${route}` }", route)

    def see(self, name: str) -> Locator:
        """By the name that the page gives its parts for tests."""
        return self.page.get_by_test_id(name)

    def row(self, key: str) -> Locator:
        return self.page.locator(f'tr[data-key="{key}"]')

    def arrived(self, title: str, *, within_ms: float = PATIENCE_MS) -> None:
        """The page of this title has come, with its data or with the reason why it has none."""
        expect(self.page).to_have_title(titled(title), timeout=within_ms)

    def hash(self) -> str:
        return self.page.evaluate("location.hash")

    def confirm(self) -> None:
        self.see("dialog-confirm").click()
        expect(self.see("dialog")).to_have_count(0)

    def forgive(self, pattern: str) -> None:
        """Chromium itself writes of every refused call to its console, also where a refusal is what we want."""
        self._forgiven.append(pattern)

    def complaints(self) -> list[str]:
        return [each for each in self._seen if not any(re.search(one, each) for one in self._forgiven)]

    def _hear(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self._seen.append(f"console: {said.text} at {said.location.get('url')}")

    def _stumble(self, error: Error) -> None:
        self._seen.append(f"exception: {error}")

    def _follow(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/", *WITHIN)):
            self._seen.append(f"request to elsewhere: {request.url}")


def titled(title: str) -> re.Pattern[str]:
    return re.compile(rf"^{re.escape(title)} \S Herdsman$")
