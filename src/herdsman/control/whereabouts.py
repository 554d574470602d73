"""Files by which the programs of one machine find each other: where the API is, and what opens it."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from herdsman.control.secret_file import read_secret, write_secret
from herdsman.settings import Settings
from herdsman.settings.urls import hide_password


@dataclass(frozen=True, slots=True)
class Whereabouts:
    directory: Path

    @property
    def pepper(self) -> Path:
        return self.directory / "pepper"

    @property
    def admin_token(self) -> Path:
        return self.directory / "admin-token"

    def announce(self, url: str, database: str) -> None:
        """The API of `database` answers at `url` from now on."""
        write_secret(self._api, json.dumps({"url": url, "database": database}))

    def withdraw(self) -> None:
        with suppress(OSError):
            self._api.unlink()

    def api_of(self, database: str) -> str | None:
        """Where the API of this very database was said to be; it may be gone."""
        try:
            said: Any = json.loads(read_secret(self._api) or "null")
        except ValueError:
            return None
        return said["url"] if isinstance(said, dict) and said.get("database") == database else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]

    def token(self) -> str | None:
        return read_secret(self.admin_token)

    @property
    def _api(self) -> Path:
        return self.directory / "api"


def whereabouts(settings: Settings) -> Whereabouts:
    return Whereabouts(Path(settings.local.local_state_dir).expanduser().absolute())


def shown_database(settings: Settings) -> str:
    """The database without its password: enough to know it again."""
    return hide_password(settings.database.database_url.get_secret_value())
