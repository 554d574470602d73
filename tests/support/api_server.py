"""The API over a database, in a thread of this process: what commands and workers speak to, and no control loop."""

from collections.abc import Generator
from contextlib import contextmanager

from herdsman.access.commands import first_admin_token
from herdsman.context import Services
from herdsman.db.upgrade import upgrade
from herdsman.server.http_server import ApiServer, bind
from herdsman.server.replica import listening
from herdsman.server.runtime_files import runtime_files, shown_database
from herdsman.server.state import build_state
from herdsman.server.wiring import open_keyring, open_results, open_services
from herdsman.settings import Settings, load_settings
from tests.support.apps import an_app
from tests.support.databases import sqlite_file
from tests.support.shell import Shell


@contextmanager
def served(shell: Shell) -> Generator[Shell]:
    """Beside a server of the shell's database, which is made here where there is none."""
    if not shell.database.exists():
        shell.database.write_bytes(sqlite_file())
    with serving(settings_of(shell)):
        yield shell


@contextmanager
def serving(settings: Settings) -> Generator[Services]:
    """Programs with these settings find it as they find a `herdsman serve` of this machine: by its runtime files."""
    free = settings.model_copy(update={"api": settings.api.model_copy(update={"api_port": 0})})
    services = open_services(free)
    try:
        upgrade(services.database)
        keyring, where = open_keyring(free, services), runtime_files(free)
        state = build_state(services, keyring, results=open_results(free), settings=free)
        server = ApiServer(an_app(state), bind(listening(free)), on_stop=state.stop_waiting)
        server.start()
        try:
            first_admin_token(services, keyring, where.admin_token)
            where.announce(server.url, shown_database(free), "serve")
            yield services
        finally:
            where.withdraw()
            server.stop()
    finally:
        services.database.close()


def settings_of(shell: Shell) -> Settings:
    """Those that a command of this shell has, whose home is not the one of this process."""
    state = shell.directory / ".local" / "state" / "herdsman"
    return load_settings({"LOCAL_STATE_DIR": str(state), **shell.environment}, shell.directory)
