"""Files by which the programs of one machine find each other: where the API is, and what opens it."""

import fcntl
import json
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from herdsman.access.secret_file import read_secret, write_secret
from herdsman.providers.local.processes import Identity, identify, is_alive
from herdsman.settings import Settings
from herdsman.settings.kinds import hide_password

_MOST_HOLDERS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """A control plane of this machine, in its own words."""

    url: str
    database: str
    command: str
    """`up` or `serve`."""
    process: Identity | None
    """None where an older version has written it."""

    @property
    def alive(self) -> bool:
        """The very process that wrote it still runs; another one with its number is not taken for it."""
        return self.process is not None and is_alive(self.process)


@dataclass(frozen=True, slots=True)
class RuntimeFiles:
    directory: Path

    @property
    def pepper(self) -> Path:
        return self.directory / "pepper"

    @property
    def admin_token(self) -> Path:
        return self.directory / "admin-token"

    def announce(self, url: str, database: str, command: str = "up") -> None:
        """The API of `database` answers at `url` from now on, and this process is it."""
        me = identify(os.getpid())
        said = {"url": url, "database": database, "command": command, "process": me and asdict(me)}
        write_secret(self._api, json.dumps(said))

    def withdraw(self) -> None:
        """What another has said meanwhile stays."""
        said = self.announced()
        if said is None or said.process is None or said.process.pid == os.getpid():
            with suppress(OSError):
                self._api.unlink()

    def announced(self) -> Announced | None:
        """What was said last; whoever said it may be gone."""
        try:
            said: Any = json.loads(read_secret(self._api) or "null")
            process = said.get("process")
            return Announced(
                url=str(said["url"]),
                database=str(said["database"]),
                command=str(said.get("command", "up")),
                process=None if process is None else Identity(**process),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def running(self) -> Announced | None:
        """The control plane that runs here now."""
        said = self.announced()
        return said if said is not None and said.alive else None

    @contextmanager
    def occupied(self, holder: str) -> Generator[None]:
        """This process is the replica of this directory, by the name under which it leads, until it ends."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._replica, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:  # then nobody can tell that it has ended
            yield
            return
        with os.fdopen(descriptor, "r+") as file:
            if _lock(file):
                # One that ends before it has led leaves the lead to those before it: they are remembered, too.
                names = [*file.read().splitlines(), holder][-_MOST_HOLDERS:]
                file.seek(0)
                file.truncate()
                file.write("\n".join(names))
                file.flush()
            yield

    def departed(self) -> tuple[str, ...]:
        """The names of the last replicas of this directory, where they have surely ended."""
        try:
            with self._replica.open() as file:
                return tuple(file.read().splitlines()) if _lock(file) else ()
        except OSError:
            return ()

    def token(self) -> str | None:
        return read_secret(self.admin_token)

    @property
    def _api(self) -> Path:
        return self.directory / "api"

    @property
    def _replica(self) -> Path:
        return self.directory / "replica"


def _lock(file: IO[str]) -> bool:
    """Whether nobody else has it. It falls with the process, also with one in another container of this machine."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def runtime_files(settings: Settings) -> RuntimeFiles:
    return RuntimeFiles(Path(settings.local.local_state_dir).expanduser().absolute())


def shown_database(settings: Settings) -> str:
    """The database without its password: enough to know it again."""
    return hide_password(settings.database.database_url.get_secret_value())
