"""What tokens are made and checked with. All replicas need the same pepper."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from herdsman.control.secret_file import read_secret, write_secret_once
from herdsman.core.access import Role
from herdsman.core.errors import InvalidSettings
from herdsman.core.token_text import ID_BYTES, SECRET_BYTES, keyed_hash, token_text
from herdsman.db.connection import Database
from herdsman.db.errors import Duplicate
from herdsman.store import tokens

PEPPER_BYTES = 32
_FINGERPRINT = "of the pepper itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyring:
    pepper: bytes = field(repr=False)
    worker_life: timedelta = timedelta(hours=24)
    bootstrap_life: timedelta = timedelta(minutes=30)
    repeat_within: timedelta = timedelta(seconds=60)
    """How long a worker whose answer was lost may ask again with its bootstrap token."""
    new_bytes: Callable[[int], bytes] = secrets.token_bytes

    def new(self, role: Role) -> tuple[str, str]:
        """An id and the text of a new token."""
        token_id = self.new_bytes(ID_BYTES).hex()
        return token_id, token_text(role, token_id, self.new_bytes(SECRET_BYTES))

    def hash(self, text: str) -> str:
        return keyed_hash(self.pepper, text)


def load_pepper(given: str | None, file: Path) -> bytes:
    """The setting, or else the file, which is made when it is not there."""
    text = given or read_secret(file)
    if text is None:
        write_secret_once(file, secrets.token_hex(PEPPER_BYTES))
        text = read_secret(file)
    if text is None or len(text.encode()) < PEPPER_BYTES:
        raise InvalidSettings(
            f"TOKEN_PEPPER has fewer than {PEPPER_BYTES} characters: make one with openssl rand -hex 32"
        )
    return text.encode()


def require_same_pepper(database: Database, keyring: Keyring) -> None:
    """The first replica leaves a hash of its pepper; one with another would call every good token a bad one."""
    mine = keyring.hash(_FINGERPRINT)
    known = database.read(tokens.pepper_mark)
    if known is None:
        try:
            database.transact(lambda tx: tokens.mark_pepper(tx, mine))
        except Duplicate:
            known = database.read(tokens.pepper_mark)
    if known not in (None, mine):
        raise InvalidSettings(
            "TOKEN_PEPPER is not the one that the tokens in this database were made with:"
            " give every replica the same, or the same file"
        )
