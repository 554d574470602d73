"""What an operator does on the pages to workers, pools, leases, GPUs, tokens and many jobs at once."""

import re

import httpx
import pytest
from playwright.sync_api import Locator, expect
from sqlalchemy import create_engine, text

from herdsman.wire import lease_id
from tests.browser.chromium import Visitor
from tests.browser.site import Site
from tests.support.up_command import until

pytestmark = pytest.mark.timeout(300)

GPU = "GPU-of-n1"
LEASES, TOKENS = 50, 100
"""Rows of a page."""


def test_a_worker_is_drained_and_another_one_comes(admin: Visitor, site: Site) -> None:
    site.until_ready()
    worker = site.call("GET", "/fleet")["workers"][0]["worker_id"]
    admin.go(f"/workers/{worker}")
    admin.see("drain").click()
    expect(admin.see("dialog").get_by_test_id("cli")).to_have_text(f"herdsman workers drain {worker}")
    admin.see("dialog-cancel").click()
    assert site.call("GET", f"/workers/{worker}")["status"] == "active"
    admin.see("drain").click()
    admin.confirm()
    expect(admin.see("notice")).to_contain_text("It finishes what it holds and leaves")
    expect(admin.see("drain")).to_have_count(0)
    until(lambda: site.call("GET", f"/workers/{worker}")["status"] == "terminated")
    assert "drained" in {each["reason"] for each in site.call("GET", f"/why/worker/{worker}")["history"]}
    site.until_ready()


def test_a_pool_is_drained(admin: Visitor, site: Site) -> None:
    site.call("POST", "/workers/pool", {"pool_id": "painters", "served_by": "hand"})
    admin.go("/pools/painters")
    admin.see("drain-pool").click()
    expect(admin.see("dialog").get_by_test_id("cli")).to_have_text("herdsman pool drain painters")
    admin.confirm()
    expect(admin.see("notice")).to_contain_text("The pool is drained")
    assert site.call("GET", "/workers/pool/painters")["status"] in ("draining", "stopped")
    expect(admin.see("drain-pool")).to_have_count(0)


def test_a_pool_that_only_a_job_names_has_a_page(admin: Visitor, site: Site) -> None:
    site.submit(1, pool="nobodys", type="bronze")
    admin.go("/")
    admin.see("queue").get_by_role("link", name="nobodys").click()
    expect(admin.see("why")).to_contain_text("it was never created")
    expect(admin.see("trouble")).to_have_count(0)


def test_a_lease_is_taken_back(admin: Visitor, site: Site) -> None:
    lease = lease_id(lent(site, "ann"))
    admin.go("/pools")
    row = admin.row(lease)
    row.get_by_test_id("revoke-lease").click()
    expect(admin.see("dialog")).to_contain_text("ann learns of it with its next heartbeat")
    admin.confirm()
    expect(admin.see("notice")).to_contain_text("The lease is revoked")
    expect(row).to_have_count(0)
    admin.see("all-leases").click()
    expect(admin.row(lease).locator("[data-status]")).to_have_attribute("data-status", "revoked")


def test_the_leases_are_read_page_by_page(admin: Visitor, site: Site) -> None:
    mine = {lent(site, "bob") for _ in range(LEASES + 3)}
    admin.go("/pools")
    turned(admin, rows(admin, "leases"), LEASES)
    for each in mine:
        site.call("POST", f"/leases/{each}/release")


def test_the_quarantine_of_a_gpu_is_lifted(admin: Visitor, site: Site) -> None:
    measured(site)
    engine = create_engine(site.shell.environment["DATABASE_URL"])
    with engine.begin() as tx:
        tx.execute(
            text(
                "UPDATE orchestrator_gpus SET quarantined_at = measured_at, quarantine_reason = :why WHERE uuid = :gpu"
            ),
            {"why": "4000 MB were left behind", "gpu": GPU},
        )
    engine.dispose()
    admin.go("/pools")
    admin.row(GPU).get_by_test_id("clear-gpu").click()
    expect(admin.see("dialog")).to_contain_text("4000 MB were left behind")
    admin.confirm()
    expect(admin.see("notice")).to_contain_text("The quarantine is lifted")
    expect(admin.see("clear-gpu")).to_have_count(0)
    (gpu,) = (each for each in site.call("GET", "/gpus")["gpus"] if each["uuid"] == GPU)
    assert gpu["quarantined_at"] is None


def test_a_token_is_revoked_and_opens_nothing_any_more(admin: Visitor, site: Site) -> None:
    made = site.call("POST", "/tokens", {"name": "wall", "role": "viewer"})
    admin.go("/tokens")
    row = admin.row(made["id"])
    row.get_by_test_id("revoke-token").click()
    expect(admin.see("dialog")).to_contain_text("This cannot be undone")
    admin.confirm()
    expect(admin.see("notice")).to_contain_text("The token wall is revoked")
    expect(row.locator("[data-status]")).to_have_attribute("data-status", "revoked")
    expect(row.get_by_test_id("revoke-token")).to_have_count(0)
    header = {"Authorization": f"Bearer {made['token']}"}
    until(lambda: httpx.get(f"{site.url}/overview", headers=header).status_code == 401)


def test_the_token_that_opened_the_page_was_used(admin: Visitor, site: Site) -> None:
    found = site.call("GET", "/tokens?limit=200")["tokens"]
    (first,) = (each for each in found if each["name"] == "first")
    assert first["used_at"] is not None
    admin.go("/tokens")
    expect(admin.row(first["id"])).to_contain_text("ago")


def test_several_jobs_that_gave_up_run_again_at_once(admin: Visitor, site: Site) -> None:
    failed = [site.submit(-1, tags=["again"]) for _ in range(3)]
    for each in failed:
        site.wait(each, "dead_letter")
    admin.go("/jobs?tag=again")
    expect(admin.see("select-job")).to_have_count(3)
    admin.row(failed[0]).get_by_test_id("select-job").check()
    admin.row(failed[2]).get_by_test_id("select-job").check()
    expect(admin.see("selected-count")).to_have_text("2 jobs selected")
    admin.see("bulk-retry").click()
    admin.confirm()
    expect(admin.see("notice")).to_contain_text(re.compile(r"2 jobs queued again"))
    for each in (failed[0], failed[2]):
        until(lambda each=each: requeued(site, each) == 1)
    assert requeued(site, failed[1]) == 0
    expect(admin.see("selection")).to_have_count(0)


def test_a_group_of_failures_is_headed_by_what_a_person_can_read(admin: Visitor, site: Site) -> None:
    site.wait(site.submit(-7), "dead_letter")
    admin.go("/failures")
    heading = admin.see("failure-group").first.locator("h2")
    expect(heading).to_have_text(re.compile(r"econds is -\d: it must be a number from 0 to 86400"))


def test_tokens_are_read_page_by_page(admin: Visitor, site: Site) -> None:
    for number in range(TOKENS + 2):
        site.call("POST", "/tokens", {"name": f"t{number}", "role": "metrics", "expires_in_seconds": 600})
    admin.go("/tokens")
    both = admin.page.locator("[data-test=tokens] tbody tr, [data-test=worker-tokens] tbody tr")
    turned(admin, both, TOKENS)


def turned(admin: Visitor, here: Locator, full: int) -> None:
    """To the next page, which shows others, and back to the first."""
    expect(here).to_have_count(full)
    first = keys(here)
    admin.see("next-page").click()
    expect(admin.see("first-page")).to_be_visible()
    expect(here).not_to_have_count(full)
    assert not set(first) & set(keys(here))
    admin.see("first-page").click()
    expect(here).to_have_count(full)
    assert keys(here) == first


def keys(here: Locator) -> list[str]:
    return [str(each.get_attribute("data-key")) for each in here.all()]


def rows(admin: Visitor, table: str) -> Locator:
    return admin.see(table).locator("tbody tr")


def measured(site: Site) -> None:
    card = {"index": 0, "uuid": GPU, "name": "NVIDIA L4", "total_mb": 24_000, "used_mb": 0}
    site.call("POST", "/nodes/n1/gpus", {"gpus": [card]})


def lent(site: Site, agent: str) -> str:
    measured(site)
    wanted = {"agent": agent, "min_memory_mb": 10, "ttl_seconds": 300}
    return site.call("POST", "/leases", wanted)["token"]


def requeued(site: Site, job_id: str) -> int:
    return [each["reason"] for each in site.call("GET", f"/jobs/{job_id}/events")["events"]].count("requeued")
