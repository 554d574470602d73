"""Tokens over HTTP: made, used, revoked, guessed."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from herdsman.access.authenticator import Authenticator
from herdsman.access.commands import revoke_token
from herdsman.access.rules import Caller, Role, token_text
from herdsman.context import Services
from herdsman.fleet.commands import move_worker
from herdsman.ids import WorkerId
from herdsman.server.state import ServerState
from herdsman.states import Reason, WorkerStatus
from herdsman.testing.clocks import ManualClock
from tests.api.calling import Client
from tests.api.conftest import Tokens, bearer
from tests.support.databases import MovingClock


def test_an_admin_makes_lists_and_revokes_tokens(client: Client, tokens: Tokens) -> None:
    admin = tokens.header(Role.ADMIN)
    made = client.post("/tokens", json={"role": "viewer", "name": "wall"}, headers=admin)
    assert made.status_code == 201
    viewer = bearer(made.json()["token"])
    assert client.get("/leader", headers=viewer).status_code != 401
    listed = client.get("/tokens", headers=admin)
    assert made.json()["token"] not in listed.text
    assert made.json()["id"] in {each["id"] for each in listed.json()["tokens"]}
    assert client.delete(f"/tokens/{made.json()['id']}", headers=admin).json()["revoked_at"]
    assert client.get("/leader", headers=viewer).status_code == 401


def test_the_pages_of_tokens_are_followed_by_their_cursor(client: Client, tokens: Tokens) -> None:
    admin = tokens.header(Role.ADMIN)
    for number in range(4):
        tokens.of(Role.VIEWER, f"v{number}")
    first = client.get("/tokens?limit=3", headers=admin).json()
    rest = client.get(f"/tokens?limit=3&after={first['next']}", headers=admin).json()
    assert len({each["id"] for each in first["tokens"] + rest["tokens"]}) == 5
    assert rest["next"] is None


def test_x3_the_secret_is_not_in_the_database(services: Services, tokens: Tokens) -> None:
    secret = tokens.of(Role.ADMIN).secret
    rows = services.database.read(lambda tx: tx.execute(text("SELECT * FROM api_tokens")).all())
    assert rows
    assert secret not in str(rows)
    assert secret.removeprefix(f"hm_admin_{rows[0].id}_")[:12] not in str(rows)


def test_a_token_that_was_revoked_elsewhere_ends_within_5_seconds(
    client: Client, services: Services, tokens: Tokens, hands: ManualClock
) -> None:
    """The database's clock and ours stand; only the memory of this process ages."""
    issued = tokens.of(Role.VIEWER)
    assert client.get("/leader", headers=bearer(issued.secret)).status_code != 401
    revoke_token(services, issued.token.id)
    hands.advance(timedelta(seconds=4.9))
    assert client.get("/leader", headers=bearer(issued.secret)).status_code == 401


def test_a_token_is_not_looked_up_for_every_request(
    client: Client, state: ServerState, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = tokens.header(Role.METRICS)
    asked: list[str] = []
    verify = state.authenticator.verify

    def counted(secret: str) -> Caller:
        asked.append(secret)
        return verify(secret)

    monkeypatch.setattr(state.authenticator, "verify", counted)
    for _ in range(5):
        client.get("/nothing", headers=header)
    assert len(asked) == 1


def test_only_so_many_tokens_are_remembered(services: Services, tokens: Tokens, hands: ManualClock) -> None:
    small = Authenticator(services, hands, tokens.keyring, most=2)
    secrets = [tokens.of(Role.VIEWER, f"v{number}").secret for number in range(3)]
    for secret in secrets:
        small.verify(secret)
    assert [small.met(secret) for secret in secrets] == [False, True, True]


def test_a_token_ends_at_its_time_even_when_it_is_remembered(
    client: Client, tokens: Tokens, clock: MovingClock, hands: ManualClock
) -> None:
    admin = tokens.header(Role.ADMIN)
    asked = {"role": "viewer", "name": "brief", "expires_in_seconds": 60}
    header = bearer(client.post("/tokens", json=asked, headers=admin).json()["token"])
    clock.advance(timedelta(seconds=30))
    assert client.get("/nothing", headers=header).status_code == 404
    clock.advance(timedelta(seconds=30))
    hands.advance(timedelta(seconds=30))
    assert client.get("/nothing", headers=header).status_code == 401


def test_unknown_wrong_expired_and_revoked_tokens_get_the_same_answer(
    client: Client, services: Services, tokens: Tokens
) -> None:
    revoked = tokens.of(Role.VIEWER, "revoked")
    revoke_token(services, revoked.token.id)
    wrong = token_text(Role.VIEWER, tokens.of(Role.VIEWER).token.id, b"x" * 32)
    unknown = token_text(Role.VIEWER, "0" * 16, b"x" * 32)
    answers = [client.get("/leader", headers=bearer(secret)) for secret in (revoked.secret, wrong, unknown, "nonsense")]
    assert {(answer.status_code, answer.text) for answer in answers} == {(401, answers[0].text)}
    assert {answer.headers["www-authenticate"] for answer in answers} == {"Bearer"}


@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer ", "Basic abc", f"Bearer {'x' * 513}", "Bearer hm_\u00e9"],
)
def test_no_token_or_half_of_one_is_refused(client: Client, given: str | None) -> None:
    header = {} if given is None else {"authorization": given.encode("latin-1")}
    assert client.get("/leader", headers=header).status_code == 401


def test_two_tokens_in_one_request_are_none(client: Client, tokens: Tokens) -> None:
    value = tokens.header(Role.ADMIN)["authorization"]
    both = [("authorization", value), ("authorization", value)]
    assert client.get("/tokens", headers=both).status_code == 401


def test_wrong_tokens_in_bulk_are_turned_away(client: Client, tokens: Tokens, hands: ManualClock) -> None:
    good = tokens.header(Role.ADMIN)
    assert client.get("/tokens", headers=good).status_code == 200
    wrong = bearer(token_text(Role.ADMIN, "0" * 16, b"x" * 32))
    codes = [client.get("/tokens", headers=wrong).status_code for _ in range(40)]
    assert codes == [401] * 20 + [429] * 20
    refused = client.get("/tokens", headers=wrong)
    assert int(refused.headers["retry-after"]) >= 1
    hands.advance(timedelta(seconds=4))
    assert client.get("/tokens", headers=wrong).status_code == 401
    assert client.get("/tokens", headers=wrong).status_code == 429
    # Behind one address may also be those who guess nothing, and have to be looked up again by now.
    assert client.get("/tokens", headers=good).status_code == 200


def test_new_tokens_get_in_beside_those_who_guess(
    client: Client,
    tokens: Tokens,
    state: ServerState,
    hands: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind one address may be a whole office; and whoever guesses there costs the database next to nothing."""
    guess = [bearer(token_text(Role.ADMIN, f"{number:016x}", b"x" * 32)) for number in range(200)]
    assert [client.get("/leader", headers=each).status_code for each in guess[:40]].count(429) == 20
    new = tokens.of(Role.VIEWER)
    hands.advance(timedelta(seconds=1))
    assert client.get("/leader", headers=bearer(new.secret)).status_code == 200
    assert client.get("/leader", headers=bearer("the-admin-key")).status_code == 200
    # Who knows the id of a token has as many tries for it as for any other.
    wrong = bearer(token_text(Role.VIEWER, new.token.id, b"x" * 32))
    codes = [client.get("/leader", headers=wrong).status_code for _ in range(30)]
    assert codes == [401] * 20 + [429] * 10
    reads: list[object] = []
    plain = state.services.database.read

    def counted(work: Any, **how: Any) -> Any:
        reads.append(work)
        return plain(work, **how)

    monkeypatch.setattr(state.services.database, "read", counted)
    assert {client.get("/leader", headers=each).status_code for each in guess} == {429}
    assert len(reads) <= 1


def test_a_text_that_can_be_no_token_is_not_looked_up(
    client: Client, state: ServerState, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tokens.of(Role.VIEWER).secret

    def asked(_work: object) -> None:
        raise AssertionError("the database was asked")

    monkeypatch.setattr(state.services.database, "read", asked)
    for slip in (secret[:-1], secret[:-1] + "g", secret.replace("_viewer_", "_admin_"), "nonsense"):
        assert client.get("/leader", headers=bearer(slip)).status_code == 401


def test_the_admin_key_of_the_settings_is_an_admin(client: Client) -> None:
    assert client.get("/tokens", headers=bearer("the-admin-key")).status_code == 200
    assert client.get("/tokens", headers=bearer("the-admin-kez")).status_code == 401


@pytest.mark.parametrize("to", [WorkerStatus.ERROR, WorkerStatus.TERMINATING])
def test_the_token_of_a_worker_dies_with_it(
    client: Client, services: Services, tokens: Tokens, hands: ManualClock, to: WorkerStatus
) -> None:
    """W2: draining it may still finish; once it is given up, nothing."""
    header = tokens.header(Role.WORKER, "w1")
    assert client.get("/nothing", headers=header).status_code == 404
    move_worker(services, WorkerId("w1"), to, Reason.STOPPED)
    hands.advance(timedelta(seconds=4.9))
    expected = 404 if to is WorkerStatus.TERMINATING else 401
    assert client.get("/nothing", headers=header).status_code == expected


@pytest.mark.parametrize("role", ["worker", "bootstrap", "root"])
def test_nobody_makes_the_token_of_a_worker_by_hand(client: Client, tokens: Tokens, role: str) -> None:
    answer = client.post("/tokens", json={"role": role, "name": "x"}, headers=tokens.header(Role.ADMIN))
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_x5_an_error_does_not_repeat_what_was_sent(client: Client, tokens: Tokens) -> None:
    body = {"role": "viewer", "name": ["hunter2-secret"], "password": "hunter2-secret"}
    answer = client.post("/tokens", json=body, headers=tokens.header(Role.ADMIN))
    assert answer.status_code == 422
    assert "hunter2-secret" not in answer.text
    assert {each["field"] for each in answer.json()["errors"]} == {"body.name", "body.password"}
