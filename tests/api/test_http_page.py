"""The page on HTTP says what the code does."""

from typing import get_args

from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from herdsman.access.rules import Role
from herdsman.db.paging import LARGEST_PAGE
from herdsman.jobs.sql import LARGEST_BATCH
from herdsman.jobs.worker_wire import LONGEST_POLL
from herdsman.server.app import served
from herdsman.server.metrics import OFTEN_S
from herdsman.server.routes.events import Kind
from herdsman.wire import TABLE
from tests.api.calling import Client
from tests.api.conftest import Tokens
from tests.docs.pages import page, table

PAGE = page("docs/reference/http.md")
WORDS = " ".join(PAGE.text.split())


def test_every_route_has_its_line(app: FastAPI) -> None:
    rows = [(row[0], row[1]) for row in table(PAGE.section("Routes"))]
    assert sorted(rows) == sorted(served(app))


def test_the_errors_are_those_of_the_code() -> None:
    known = {(str(status), f"urn:herdsman:{code}") for _, status, code in TABLE}
    ours = {("409", "urn:herdsman:not-finished"), ("409", "urn:herdsman:not-leader")}
    rows = {(row[0], row[1]) for row in table(PAGE.section("Errors"))}
    assert rows - known == ours


def test_every_metric_is_explained(client: Client, tokens: Tokens) -> None:
    text = client.get("/metrics", headers=tokens.header(Role.METRICS)).text
    shown = {family.name for family in text_string_to_metric_families(text)}
    shown = {name for name in shown if not name.endswith("_created")}
    assert {row[0] for row in table(PAGE.section("Metrics"))} == shown


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"up to {LARGEST_BATCH} jobs" in WORDS
    assert f"`limit` (1 to {LARGEST_PAGE})" in WORDS
    assert f"`wait_seconds` (0 to {LONGEST_POLL:g})" in WORDS
    assert f"at most every {OFTEN_S:g} seconds" in WORDS
    kinds = ", ".join(f"`{kind}`" for kind in get_args(Kind))
    assert f"`kind` ({kinds})" in WORDS
