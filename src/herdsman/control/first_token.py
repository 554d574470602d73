"""The first token of an installation: nobody could make it over HTTP."""

from pathlib import Path

from herdsman.control.keyring import Keyring
from herdsman.control.secret_file import write_secret
from herdsman.control.services import Services
from herdsman.core.access import Role, Token
from herdsman.db.connection import Tx
from herdsman.store import tokens

NAME = "first"


def first_admin_token(services: Services, keyring: Keyring, file: Path) -> str | None:
    """An admin token, for its owner to see once and to find in `file`; None when there is one already."""
    if services.database.read(lambda tx: tokens.count_live(tx, Role.ADMIN)):
        return None
    token_id, secret = keyring.new(Role.ADMIN)
    # The file first: a token that nobody knows would keep this from ever making another.
    write_secret(file, secret)
    services.database.transact(lambda tx: _add(tx, token_id, keyring.hash(secret)))
    return secret


def _add(tx: Tx, token_id: str, hashed: str) -> None:
    tokens.add(tx, Token(id=token_id, role=Role.ADMIN, name=NAME, created_at=tx.now()), hashed)
