"""Where a shadow policy would have differed: a mark in the list of decisions, and both sentences in a decision."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import PHONE, WIDE, Visitor
from tests.browser.page_list import grave_findings, keep, show, too_wide
from tests.browser.site import QUICK, Site, a_site
from tests.support.up_command import until

pytestmark = pytest.mark.timeout(300)

# Without a job, the policy that decides wants nobody, and the shadow two spare workers.
SPARE = {"MIN_ACTIVE_GPUS": "0", "MACHINES_TO_KEEP_IDLE": "2", "SHADOW_SCALING_POLICY": "workload"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with a_site(tmp_path_factory.mktemp("site"), environment={**QUICK, **SPARE}) as started:
        until(lambda: started.call("GET", "/decisions/shadow")["differed"] > 0)
        yield started


def test_a_difference_is_marked_in_the_list_and_told_in_the_decision(admin: Visitor, pictures: Path | None) -> None:
    admin.go("/decisions?all=true")
    expect(admin.see("shadow-mark").first).to_be_visible()
    admin.see("shadow-cycles").click()
    expect(admin.page.get_by_text("Cycles in which a second policy")).to_be_visible()
    _fits(admin, pictures, "shadow-decisions")
    admin.see("decisions").get_by_role("link").first.click()
    expect(admin.see("shadow")).to_contain_text("Asks for 2")
    expect(admin.see("shadow")).to_contain_text("threshold")
    _fits(admin, pictures, "shadow-decision")
    assert admin.complaints() == []


def _fits(visitor: Visitor, pictures: Path | None, name: str) -> None:
    for width in (PHONE, WIDE):
        show(visitor, "light", width)
        assert too_wide(visitor) == []
        keep(visitor, pictures, f"{name}-{width}")
    assert grave_findings(visitor) == []
