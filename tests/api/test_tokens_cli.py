"""`herdsman token` on a database of its own: made, listed, revoked, and good at the API."""

import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from herdsman.access.authenticator import Authenticator, Keyring
from herdsman.access.rules import Role
from herdsman.cli.database import token
from herdsman.context import Services
from herdsman.errors import InvalidRequest, NotFound, Unauthenticated
from herdsman.testing.clocks import ManualClock

runner = CliRunner()


@pytest.fixture(autouse=True)
def here(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setenv("LOCAL_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("TOKEN_PEPPER", "p" * 32)

    def silent(_level: str, _form: str, **_more: object) -> None:
        return

    # It would leave the runner's own standard error, which is closed by then, to the tests that follow.
    monkeypatch.setattr("herdsman.telemetry.logs.configure_logs", silent)


def typed(*words: str) -> str:
    with capture_logs():  # they go to standard error where they have been set up
        done = runner.invoke(token, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def authenticator(services: Services) -> Authenticator:
    return Authenticator(services, ManualClock(), Keyring(pepper=b"p" * 32))


def test_a_token_that_was_typed_is_good_at_the_api(services: Services) -> None:
    secret = typed("create", "ci", "--role", "submitter", "--agent", "ann", "--days", "30").strip()
    caller = authenticator(services).verify(secret)
    assert (caller.role, caller.agent) == (Role.SUBMITTER, "ann")
    assert secret not in typed("list", "-o", "json")


def test_a_token_is_listed_and_revoked(services: Services) -> None:
    assert "no tokens" in typed("list")
    made = json.loads(typed("create", "wall", "-o", "json"))
    assert (made["role"], made["expires_at"]) == ("viewer", None)
    assert made["id"] in typed("list")
    assert "is revoked" in typed("revoke", made["id"])
    assert "revoked" in typed("list")
    with pytest.raises(Unauthenticated):
        authenticator(services).verify(made["token"])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="days"):
        typed("create", "x", "--days", "1e300")
    with pytest.raises(InvalidRequest, match="role"):
        typed("create", "x", "--role", "worker")
    with pytest.raises(NotFound):
        typed("revoke", "0123456789abcdef")
