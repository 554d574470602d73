"""What a person does on the pages, and what happens then: jobs are made, watched, cancelled, healed and repeated."""

import re

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.chromium import Visitor, a_visitor
from tests.browser.link import a_cable
from tests.browser.site import Site
from tests.support.up_command import until

pytestmark = pytest.mark.timeout(300)


def test_a_job_is_submitted_and_seen_to_move_to_its_end(admin: Visitor) -> None:
    job_id = submitted(admin, '{"seconds": 3}')
    assert job_id
    status(admin, "running")
    expect(admin.see("progress-note")).to_contain_text(re.compile(r"step \d+ of 20"))
    first = percent(admin.see("progress"))
    until(lambda: percent(admin.see("progress")) > first)
    status(admin, "done")
    expect(admin.see("result-json")).to_have_text(re.compile(r'"slept": 3'))
    expect(admin.see("segment-run")).to_have_count(1)
    expect(admin.see("payload-json")).to_contain_text('"seconds": 3')
    line = admin.see("terminal").get_by_test_id("cli").first
    expect(line).to_have_text("""herdsman submit demo --payload '{"seconds":3}'""")


def test_a_payload_that_is_no_json_is_told_before_it_is_sent(admin: Visitor) -> None:
    fill_in(admin, '{"seconds": ')
    admin.see("dialog-confirm").click()
    expect(admin.see("dialog").get_by_role("alert")).to_contain_text("The payload is not JSON")
    admin.see("dialog-cancel").click()
    expect(admin.see("dialog")).to_have_count(0)


def test_a_running_job_is_cancelled(admin: Visitor, site: Site) -> None:
    job_id = site.submit(30)
    admin.go(f"/jobs/{job_id}")
    status(admin, "running")
    admin.see("cancel").click()
    expect(admin.see("dialog").get_by_test_id("cli")).to_have_text(f"herdsman cancel {job_id}")
    admin.see("dialog-cancel").click()
    assert site.job(job_id)["status"] == "running"
    admin.see("cancel").click()
    admin.confirm()
    status(admin, "cancelled")
    assert site.job(job_id)["status"] == "cancelled"


def test_several_jobs_are_chosen_and_cancelled_at_once(admin: Visitor, site: Site) -> None:
    mine = [site.submit(1, type="bronze") for _ in range(3)]
    other = site.submit(1, type="marble")
    admin.go("/jobs")
    admin.see("filter-type").fill("bronze")
    expect(admin.see("select-job")).to_have_count(3)
    assert admin.hash() == "#/jobs?type=bronze"
    admin.see("select-all").check()
    expect(admin.see("selected-count")).to_have_text("3 jobs selected")
    admin.see("bulk-cancel").click()
    admin.confirm()
    expect(admin.see("notice")).to_contain_text("3 jobs cancelled")
    for each in mine:
        expect(admin.row(each).locator("[data-status]")).to_have_attribute("data-status", "cancelled")
    assert site.job(other)["status"] == "pending"
    admin.page.reload()
    expect(admin.see("select-job")).to_have_count(3)
    site.call("POST", "/jobs/cancel", {"ids": [other]})


def test_the_job_of_a_killed_worker_is_seen_to_heal(admin: Visitor, site: Site) -> None:
    job_id = site.submit(4)
    admin.go(f"/jobs/{job_id}")
    status(admin, "running")
    killed = site.kill_worker_of(job_id)
    expect(admin.see("segment-run")).to_have_count(2)
    status(admin, "done")
    expect(admin.see("segment-run").first).to_contain_text("Run 1")
    expect(admin.see("segment-run").last).to_contain_text("Run 2")
    rows = admin.see("attempts").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.get_by_role("link", name=re.compile(killed[-6:]))).to_have_count(1)
    expect(rows.get_by_text("cut short")).to_have_count(1)
    expect(rows.locator('[data-status="done"]')).to_have_count(1)
    expect(admin.see("history")).to_contain_text("pending")
    site.until_ready()


def test_what_has_failed_is_queued_again_by_its_group(admin: Visitor, site: Site) -> None:
    failed = [site.submit(-1) for _ in range(2)]
    for each in failed:
        site.wait(each, "dead_letter")
    admin.see("nav-failures").click()
    group = admin.see("failure-group")
    expect(group).to_have_count(1)
    expect(group).to_contain_text("it must be a number from 0")
    group.get_by_test_id("requeue").click()
    admin.confirm()
    expect(admin.see("notice")).to_contain_text("2 jobs queued again")
    for each in failed:
        until(lambda each=each: reasons(site, each).count("requeued") == 1)
        site.wait(each, "dead_letter")


def test_a_job_that_somebody_else_submits_appears_by_itself(admin: Visitor, site: Site) -> None:
    admin.go("/jobs")
    expect(admin.see("live")).to_have_attribute("data-live", "live")
    expect(admin.see("jobs-card")).to_be_visible()
    admin.page.evaluate("window.stayed = true")
    job_id = site.submit(0)
    expect(admin.row(job_id)).to_be_visible()
    expect(admin.row(job_id).locator("[data-status]")).to_have_attribute("data-status", "done")
    assert admin.page.evaluate("window.stayed") is True


def test_everything_is_paused_and_goes_on(admin: Visitor, site: Site) -> None:
    admin.see("pause").click()
    admin.confirm()
    expect(admin.see("hold")).to_contain_text("Everything is paused by admin first")
    job_id = site.submit(0)
    admin.go(f"/jobs/{job_id}")
    expect(admin.see("why")).to_contain_text("paused")
    admin.see("nav-overview").click()
    admin.see("resume").click()
    admin.confirm()
    expect(admin.see("hold")).to_have_count(0)
    site.wait(job_id, "done")


def test_a_lost_connection_is_told_and_found_again(browser: Browser, site: Site) -> None:
    with a_cable(site.url) as cable, a_visitor(browser, cable.url) as far:
        far.enter(site.token, "/jobs")
        far.arrived("Jobs")
        expect(far.see("live")).to_have_attribute("data-live", "live")
        far.forgive("net::ERR_")
        cable.pull()
        expect(far.see("live")).to_have_attribute("data-live", "away")
        job_id = site.submit(0)
        cable.plug()
        expect(far.see("live")).to_have_attribute("data-live", "live")
        expect(far.row(job_id)).to_be_visible()


def test_a_page_whose_code_was_cut_off_comes_with_the_connection(browser: Browser, site: Site) -> None:
    with a_cable(site.url) as cable, a_visitor(browser, cable.url) as far:
        far.enter(site.token)
        far.arrived("Overview")
        far.forgive("net::ERR_")
        cable.pull()
        far.see("nav-money").click()
        expect(far.see("trouble")).to_contain_text("The server does not answer")
        cable.plug()
        far.arrived("Money")


def submitted(admin: Visitor, payload: str) -> str:
    fill_in(admin, payload)
    admin.confirm()
    return admin.see("job-id").inner_text()


def fill_in(admin: Visitor, payload: str) -> None:
    admin.see("nav-jobs").click()
    admin.see("submit-job").click()
    expect(admin.see("submit-type")).to_be_focused()
    admin.see("submit-payload").fill(payload)


def status(visitor: Visitor, wanted: str) -> None:
    expect(visitor.see("job-status").locator("[data-status]")).to_have_attribute("data-status", wanted)


def percent(bar: Locator) -> int:
    return int(bar.get_attribute("aria-valuenow") or 0)


def reasons(site: Site, job_id: str) -> list[str]:
    return [each["reason"] for each in site.call("GET", f"/jobs/{job_id}/events")["events"]]
