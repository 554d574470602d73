"""Who comes in, and what they may do: by the form, by the link, and with less than all rights."""

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import Visitor, a_visitor, titled
from tests.browser.site import Site

pytestmark = pytest.mark.timeout(300)
REFUSED = r"the server responded with a status of 401"
FORBIDDEN = r"the server responded with a status of 403"


def test_the_form_takes_a_token_that_is_good(visitor: Visitor, site: Site) -> None:
    visitor.page.goto(f"{visitor.url}/#/jobs")
    expect(visitor.see("token")).to_be_focused()
    visitor.see("token").fill(f"  {site.token} ")
    visitor.see("signin-button").click()
    visitor.arrived("Jobs")
    expect(visitor.see("live")).to_have_attribute("data-live", "live")
    visitor.page.reload()
    visitor.arrived("Jobs")
    visitor.see("signout").click()
    expect(visitor.see("signin")).to_be_visible()
    assert kept(visitor) == 0
    visitor.page.reload()
    expect(visitor.see("signin")).to_be_visible()


def test_a_wrong_token_is_refused_in_words_and_not_kept(visitor: Visitor) -> None:
    visitor.forgive(REFUSED)
    visitor.page.goto(visitor.url)
    visitor.see("token").fill("hm_admin_0000000000000000_nobody_knows_this_one")
    visitor.page.keyboard.press("Enter")
    expect(visitor.see("signin-why")).to_contain_text("token")
    expect(visitor.see("signin-why")).to_have_attribute("role", "alert")
    expect(visitor.see("token")).to_be_focused()
    assert kept(visitor) == 0
    assert visitor.see("me").count() == 0


def test_a_token_in_the_link_leaves_no_trace_in_the_address(admin: Visitor, site: Site) -> None:
    admin.arrived("Overview")
    assert site.token not in admin.page.url
    assert admin.hash() == "#/"
    assert admin.page.evaluate("history.length") <= 2
    assert admin.page.evaluate("localStorage.length") == 0


def test_only_who_asks_for_it_stays_signed_in(visitor: Visitor, site: Site) -> None:
    visitor.page.goto(visitor.url)
    visitor.see("token").fill(site.token)
    visitor.see("keep").check()
    visitor.see("signin-button").click()
    expect(visitor.see("me")).to_contain_text("admin")
    other = visitor.page.context.new_page()
    other.goto(visitor.url)
    expect(other).to_have_title(titled("Overview"))


def test_a_token_that_is_revoked_ends_the_visit(visitor: Visitor, site: Site) -> None:
    made = site.call("POST", "/tokens", {"name": "for-a-moment", "role": "viewer"})
    visitor.enter(made["token"])
    visitor.forgive(REFUSED)
    site.call("DELETE", f"/tokens/{made['id']}")
    expect(visitor.see("signin-why")).to_contain_text("revoked")
    assert kept(visitor) == 0


def test_a_viewer_of_the_admins_making_sees_all_and_does_nothing(admin: Visitor, browser: Browser, site: Site) -> None:
    failed, waiting = site.submit(-1), site.submit(1, type="sculpture")
    site.wait(failed, "dead_letter")
    with a_visitor(browser, site.url) as viewer:
        viewer.enter(viewer_made_by(admin))
        expect(viewer.see("me")).to_contain_text("viewer")
        expect(viewer.see("active-workers")).to_be_visible()
        sees_no_actions(viewer, f"/jobs/{waiting}", "Cancel")
        sees_no_actions(viewer, f"/jobs/{failed}", "Retry")
        sees_no_actions(viewer, "/jobs", "Submit a job")
        expect(viewer.see("select-job")).to_have_count(0)
        sees_no_actions(viewer, "/failures", "Requeue")
        sees_no_actions(viewer, "/", "Pause all")
        sees_no_actions(viewer, f"/workers/{site.job(failed)['worker_id'] or worker(site)}", "Drain")
        assert viewer.see("nav-tokens").count() == 0
        viewer.go("/tokens")
        expect(viewer.see("title")).to_have_text("This page is not for your role")
        viewer.forgive(FORBIDDEN)
        assert tries(viewer, "/jobs/submit", {"type": "demo"}) == 403
        assert tries(viewer, f"/jobs/{waiting}/cancel", {}) == 403
        assert site.job(waiting)["status"] == "pending"


def kept(visitor: Visitor) -> int:
    """So many things the browser remembers."""
    return visitor.page.evaluate("sessionStorage.length + localStorage.length")


def viewer_made_by(admin: Visitor) -> str:
    admin.see("nav-tokens").click()
    admin.see("new-token").click()
    admin.see("token-name").fill("guest")
    admin.see("token-role").select_option("viewer")
    expect(admin.see("dialog").get_by_test_id("cli")).to_have_text("herdsman token create guest --role viewer")
    admin.see("dialog-confirm").click()
    secret = admin.see("new-secret").inner_text()
    admin.see("dialog-cancel").click()
    expect(admin.see("tokens").get_by_text("guest")).to_be_visible()
    return secret


def sees_no_actions(viewer: Visitor, route: str, action: str) -> None:
    viewer.go(route)
    expect(viewer.page.locator("main [data-test=title], main h1").first).to_be_visible()
    expect(viewer.page.locator(".loading")).to_have_count(0)
    expect(viewer.page.locator("main .card").first).to_be_visible()
    expect(viewer.page.locator("main").get_by_role("button", name=action)).to_have_count(0)


def worker(site: Site) -> str:
    return site.call("GET", "/fleet")["workers"][0]["worker_id"]


def tries(viewer: Visitor, path: str, body: object) -> int:
    """With the token of the page, as somebody would who does not need buttons."""
    return viewer.page.evaluate(
        """async ([path, body]) => {
            const token = sessionStorage.getItem("herdsman.token");
            const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
            return (await fetch(path, { method: "POST", headers, body: JSON.stringify(body) })).status;
        }""",
        [path, body],
    )
