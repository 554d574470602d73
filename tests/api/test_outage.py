"""While the database is away: who watches goes on watching, and nobody is told where the database is."""

from collections.abc import Iterator
from datetime import timedelta
from threading import Event
from typing import Any

import pytest

from herdsman.access.authenticator import KEPT_IN_OUTAGE, Keyring
from herdsman.access.commands import create_token, revoke_token
from herdsman.access.rules import Role, token_text
from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.errors import StoreUnavailable
from herdsman.jobs.model import JobPolicy
from herdsman.server import app
from herdsman.server import metrics as look
from herdsman.server.state import build_state
from herdsman.server.wiring import new_job_id
from herdsman.testing.clocks import ManualClock
from tests.api.calling import Client
from tests.api.conftest import Tokens, bearer
from tests.support.apps import an_app
from tests.support.databases import opened
from tests.support.servers.server import free_port

FADED = timedelta(seconds=4)
"""By then a token has to be looked up again."""


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """The database is away while this is set."""
    gone, plain = Event(), Database.read

    def read(self: Database, work: Any) -> Any:
        if gone.is_set():
            raise StoreUnavailable("it is away")
        return plain(self, work)

    monkeypatch.setattr(Database, "read", read)
    yield gone


def test_a_token_of_metrics_outlives_an_outage_and_no_other_does(
    client: Client, tokens: Tokens, hands: ManualClock, away: Event
) -> None:
    headers = {role: tokens.header(role) for role in (Role.METRICS, Role.VIEWER)}
    assert [client.get("/metrics", headers=each).status_code for each in headers.values()] == [200, 200]
    away.set()
    hands.advance(FADED)
    assert client.get("/metrics", headers=headers[Role.VIEWER]).status_code == 503
    page = client.get("/metrics", headers=headers[Role.METRICS])
    assert page.status_code == 200
    assert "herdsman_requests_total{" in page.text
    assert client.get("/health/ready", headers=headers[Role.METRICS]).status_code == 503


def test_a_token_that_was_never_seen_is_not_good_in_an_outage(client: Client, tokens: Tokens, away: Event) -> None:
    header = tokens.header(Role.METRICS)
    away.set()
    assert client.get("/metrics", headers=header).status_code == 503


def test_a_token_outlives_neither_its_own_end_nor_a_day_of_outage(
    client: Client, services: Services, tokens: Tokens, hands: ManualClock, away: Event
) -> None:
    hour = create_token(services, tokens.keyring, role=Role.METRICS, name="brief", expires_in=timedelta(hours=1))
    brief, lasting = bearer(hour.secret), tokens.header(Role.METRICS)
    for header in (brief, lasting):
        assert client.get("/metrics", headers=header).status_code == 200
    away.set()
    hands.advance(timedelta(hours=1))
    assert client.get("/metrics", headers=brief).status_code == 503
    assert client.get("/metrics", headers=lasting).status_code == 200
    hands.advance(KEPT_IN_OUTAGE)
    assert client.get("/metrics", headers=lasting).status_code == 503


def test_a_token_that_was_revoked_is_not_kept(
    client: Client, services: Services, tokens: Tokens, hands: ManualClock, away: Event
) -> None:
    """While the database is there it is asked, and an outage that comes later brings nothing back."""
    issued = tokens.of(Role.METRICS)
    assert client.get("/metrics", headers=bearer(issued.secret)).status_code == 200
    revoke_token(services, issued.token.id)
    hands.advance(FADED)
    assert client.get("/metrics", headers=bearer(issued.secret)).status_code == 401
    away.set()
    assert client.get("/metrics", headers=bearer(issued.secret)).status_code == 503


def test_a_scrape_does_not_wait_for_a_database_that_hangs(
    client: Client, tokens: Tokens, hands: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    header, released = tokens.header(Role.METRICS), Event()
    monkeypatch.setattr(look, "OFTEN_S", 0.0)
    monkeypatch.setattr(look, "SHARE", 0)
    assert client.get("/metrics", headers=header).status_code == 200
    hands.advance(FADED)
    monkeypatch.setattr(app, "PATIENCE", timedelta(milliseconds=50))
    monkeypatch.setattr(look, "PATIENCE_S", 0.05)
    plain = Database.read

    def read(self: Database, work: Any) -> Any:
        assert released.wait(60)
        return plain(self, work)

    monkeypatch.setattr(Database, "read", read)
    try:
        page = client.get("/metrics", headers=header)
        assert page.status_code == 200
        assert "herdsman_database_up 0.0" in page.text.splitlines()
    finally:
        released.set()
        monkeypatch.setattr(look, "PATIENCE_S", 60.0)
    back = client.get("/metrics", headers=header).text
    assert "herdsman_database_up 1.0" in back.splitlines()


SECRETS = ("somebody", "secretdb", "correct-horse", "127.0.0.1", "localhost")


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_no_answer_names_the_database_its_user_or_its_host(
    scheme: str,
    hands: ManualClock,
    keyring: Keyring,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("herdsman.server.errors._faults._next", 0.0)
    port = free_port()
    with opened(f"{scheme}://somebody:correct-horse@127.0.0.1:{port}/secretdb") as database:
        services = Services(database, JobPolicy(), new_job_id)
        state = build_state(services, keyring, clock=hands, admin_key="the-admin-key")
        admin = bearer("the-admin-key")
        with Client(an_app(state)) as client:
            answers = [
                client.get("/jobs", headers=admin),
                client.get("/jobs", headers=bearer(token_text(Role.VIEWER, "0" * 16, b"x" * 32))),
                client.post("/jobs/submit", json={"type": "demo"}, headers=admin),
                client.get("/health/ready", headers=admin),
                client.get("/health", headers=admin),
            ]
    assert [each.status_code for each in answers] == [503] * 5
    for answer in answers:
        assert not [each for each in (*SECRETS, str(port)) if each in answer.text], answer.text
    assert "secretdb" in capsys.readouterr().out, "the log says what the answers do not"
