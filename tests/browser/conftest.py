"""For each file of tests one Chromium and one site; for each test a visitor who remembers nothing."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import Visitor, a_visitor, chromium
from tests.browser.site import Site, a_site

KEPT_IN = "SCREENSHOTS"
"""Names a directory for pictures of every page; without it none are taken."""


# Not for longer than a file: while it is there, Playwright's event loop is that of the whole thread.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with a_site(tmp_path_factory.mktemp("site")) as started:
        started.until_ready()
        yield started


@pytest.fixture
def visitor(browser: Browser, site: Site) -> Iterator[Visitor]:
    """Not signed in."""
    with a_visitor(browser, site.url) as arrived:
        yield arrived


@pytest.fixture
def admin(visitor: Visitor, site: Site) -> Visitor:
    visitor.enter(site.token)
    return visitor


@pytest.fixture(scope="module")
def pictures() -> Path | None:
    if KEPT_IN not in os.environ:
        return None
    folder = Path(os.environ[KEPT_IN])
    folder.mkdir(parents=True, exist_ok=True)
    return folder
