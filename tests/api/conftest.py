"""The whole app over SQLite, called as a client would, and a token for each role."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi import FastAPI

from herdsman.access.authenticator import Keyring
from herdsman.access.commands import Issued, admit_worker, create_bootstrap, create_token
from herdsman.access.rules import Caller, Role
from herdsman.context import Services
from herdsman.ids import DEFAULT_POOL, WorkerId
from herdsman.server.http_server import ApiServer, Listening, bind
from herdsman.server.state import ServerState, build_state
from herdsman.testing.clocks import ManualClock
from tests.api.calling import Client
from tests.support.apps import an_app
from tests.support.builders import a_worker
from tests.support.databases import Backend

BY_HAND = Caller(token_id="test", role=Role.ADMIN)


@pytest.fixture
def url(sqlite: Backend) -> Iterator[str]:
    """What HTTP adds is the same on every database; what the databases do, their contract tests show."""
    fresh = sqlite.fresh()
    yield fresh
    sqlite.drop(fresh)


@pytest.fixture
def hands() -> ManualClock:
    """The clock of the process."""
    return ManualClock()


@pytest.fixture
def keyring() -> Keyring:
    return Keyring(pepper=b"p" * 32)


Build = Callable[..., ServerState]


@pytest.fixture
def build(services: Services, hands: ManualClock, keyring: Keyring) -> Iterator[Build]:
    """Makes states of the server that differ in what is given."""
    built: list[ServerState] = []

    def build(**given: Any) -> ServerState:
        built.append(build_state(services, keyring, clock=hands, admin_key="the-admin-key", **given))
        return built[-1]

    yield build
    for each in built:
        each.stop_waiting()


@pytest.fixture
def state(build: Build) -> ServerState:
    return build()


@pytest.fixture
def app(state: ServerState) -> FastAPI:
    return an_app(state)


@pytest.fixture
def api_server(app: FastAPI, state: ServerState) -> Iterator[ApiServer]:
    """On a real port."""
    server = ApiServer(app, bind(Listening()), on_stop=state.stopping.set)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(app: FastAPI) -> Iterator[Client]:
    with Client(app) as client:
        yield client


@dataclass(frozen=True, slots=True)
class Tokens:
    services: Services
    keyring: Keyring

    def of(self, role: Role, name: str = "ann") -> Issued:
        match role:
            case Role.WORKER:
                worker = a_worker(self.services, name)
                return admit_worker(self.services, self.keyring, BY_HAND, worker, "first-life")
            case Role.BOOTSTRAP:
                a_worker(self.services, name)
                return create_bootstrap(self.services, self.keyring, WorkerId(name), DEFAULT_POOL)
            case _:
                return create_token(self.services, self.keyring, role=role, name=name)

    def header(self, role: Role, name: str = "ann") -> dict[str, str]:
        return bearer(self.of(role, name).secret)


@pytest.fixture
def tokens(services: Services, keyring: Keyring) -> Tokens:
    return Tokens(services, keyring)


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}
