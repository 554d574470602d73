"""Everything without a mouse: where the keys lead, and that one sees where they have led."""

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import Visitor
from tests.browser.site import Site

pytestmark = pytest.mark.timeout(300)
# What has the focus: whether a person can see that it is there, and whether it comes after what had it before.
FOCUSED = """() => {
    const [has, before] = [document.activeElement, window.hadFocus];
    window.hadFocus = has;
    if (has === document.body) return null;
    const box = has.getBoundingClientRect();
    const style = getComputedStyle(has);
    const marked = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
    const there = box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
    const after = !before?.isConnected || (before.compareDocumentPosition(has) & 4) > 0;
    return { seen: marked && there, after, what: has.outerHTML.slice(0, 120) };
}"""
MOST_STOPS = 300


def test_the_first_stop_leads_past_the_navigation(admin: Visitor) -> None:
    expect(admin.see("figures")).to_be_visible()
    walk(admin)  # from the title, where the focus is put when a page has come, to the end
    admin.page.keyboard.press("Tab")
    skip = admin.page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    admin.page.keyboard.press("Enter")
    expect(admin.page.locator("main")).to_be_focused()
    assert admin.hash() == "#/"


@pytest.mark.parametrize("name", ["overview", "jobs", "tokens"])
def test_every_stop_is_seen_and_they_come_in_the_order_of_the_page(admin: Visitor, site: Site, name: str) -> None:
    site.wait(site.submit(0), "done")
    admin.see(f"nav-{name}").click()
    admin.arrived(f"{name.title()}")
    admin.page.reload()
    expect(admin.see("title")).to_be_focused()
    walk(admin)
    stops = walk(admin)
    assert "Skip to the content" in str(stops[0]["what"])
    assert [each["what"] for each in stops if not each["seen"]] == []
    assert [each["what"] for each in stops if not each["after"]] == []
    buttons = admin.page.locator("button:visible:not([disabled]), a:visible").count()
    assert sum(str(each["what"]).startswith(("<button", "<a")) for each in stops) == buttons


def test_slash_leads_to_the_filter_and_is_not_typed(admin: Visitor) -> None:
    admin.go("/jobs")
    expect(admin.see("filter-type")).to_be_visible()
    admin.page.keyboard.press("/")
    expect(admin.see("filter-type")).to_be_focused()
    expect(admin.see("filter-type")).to_have_value("")
    admin.page.keyboard.type("sculpture")
    expect(admin.see("empty")).to_contain_text("No job fits these filters")
    expect(admin.see("filter-type")).to_be_focused()
    admin.go("/events")
    expect(admin.see("filter-text")).to_be_visible()
    admin.page.evaluate("document.activeElement.blur()")
    admin.page.keyboard.press("/")
    expect(admin.see("filter-text")).to_be_focused()


def test_a_filter_that_cannot_be_is_told_beside_the_filter(admin: Visitor) -> None:
    admin.forgive("status of 422")
    admin.go("/jobs")
    admin.see("filter-type").press_sequentially("a/")
    expect(admin.see("trouble")).to_contain_text("it must begin with a letter")
    expect(admin.see("filter-type")).to_be_focused()
    expect(admin.see("filter-type")).to_have_value("a/")
    admin.page.keyboard.press("Backspace")
    expect(admin.see("empty")).to_be_visible()
    expect(admin.see("trouble")).to_have_count(0)


def test_a_question_keeps_the_focus_and_escape_gives_it_back(admin: Visitor) -> None:
    admin.go("/jobs")
    admin.see("submit-job").focus()
    admin.page.keyboard.press("Enter")
    expect(admin.see("submit-type")).to_be_focused()
    for _ in range(20):
        admin.page.keyboard.press("Tab")
        inside = "document.activeElement === document.body || document.activeElement.closest('dialog') !== null"
        assert admin.page.evaluate(inside), "the page behind is out of reach"
    admin.page.keyboard.press("Escape")
    expect(admin.see("dialog")).to_have_count(0)
    expect(admin.see("submit-job")).to_be_focused()


def test_a_job_is_submitted_by_keys_alone(admin: Visitor) -> None:
    admin.go("/jobs")
    admin.see("submit-job").focus()
    admin.page.keyboard.press("Enter")
    expect(admin.see("submit-type")).to_be_focused()
    admin.page.keyboard.press("Enter")
    expect(admin.see("job-id")).to_be_visible()
    expect(admin.page.locator("#title")).to_be_focused()


def walk(admin: Visitor) -> list[dict[str, object]]:
    """From the first stop to the last."""
    stops: list[dict[str, object]] = []
    while len(stops) < MOST_STOPS:
        admin.page.keyboard.press("Tab")
        stop = admin.page.evaluate(FOCUSED)
        if stop is None:
            break
        stops.append(stop)
    return stops
