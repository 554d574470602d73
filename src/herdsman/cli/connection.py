"""The way to the server: where it is, which token opens it, and errors that say what to do about them."""

from datetime import timedelta
from typing import TypeVar

from herdsman.cli.context import settings_here
from herdsman.cli.errors import Server
from herdsman.client import Client
from herdsman.client.call import Call
from herdsman.errors import Unreachable
from herdsman.server.runtime_files import runtime_files, shown_database
from herdsman.settings import Settings

T = TypeVar("T")

PATIENCE = timedelta(seconds=15)
"""How long a command waits for a server that restarts."""


class ServerClient(Client):
    """The client of a person at a terminal: its errors say what to do from there."""

    def __init__(self, url: str, token: str | None, *, token_from: str, patience: timedelta) -> None:
        self.server = Server(url, token_from=None if token is None else token_from)
        super().__init__(url, token, patience=patience, on_version=self.server.met)

    def send(self, call: Call[T]) -> T:
        with self.server.explained():
            return super().send(call)


def connect() -> ServerClient:
    """To the server that API_URL names; without it, to the one of this machine."""
    settings = settings_here()
    url = server_url(settings)
    # One that has ended without a word has left its address behind: nobody need wait for it.
    expected = settings.api.api_url is not None or runtime_files(settings).running() is not None
    return client_of(settings, url, PATIENCE if expected else timedelta(0))


def client_of(settings: Settings, url: str, patience: timedelta) -> ServerClient:
    given, where = settings.api.api_token, runtime_files(settings)
    token, source = (
        (where.token(), str(where.admin_token)) if given is None else (given.get_secret_value(), "API_TOKEN")
    )
    return ServerClient(url, token, token_from=source, patience=patience)


def server_url(settings: Settings) -> str:
    """`Unreachable`, and how to start one, where API_URL names no server and none of this database was started here."""
    if settings.api.api_url is not None:
        return settings.api.api_url
    there, database = runtime_files(settings).announced(), shown_database(settings)
    if there is None:
        raise Unreachable(
            "no server runs on this machine: start one with herdsman up or herdsman serve,"
            " or set API_URL to where one is"
        )
    if there.database != database:
        raise Unreachable(
            f"the server of this machine uses the database {there.database}, and DATABASE_URL is {database} here:"
            f" set API_URL={there.url} to use it, or start another with herdsman up and a LOCAL_STATE_DIR of its own"
        )
    return there.url
