"""Makes and checks tokens. All replicas need the same pepper."""

import hmac
import math
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from herdsman.access import sql
from herdsman.access.rules import ID_BYTES, SECRET_BYTES, Caller, Role, keyed_hash, token_id, token_text
from herdsman.access.secret_file import read_secret, write_secret_once
from herdsman.context import Services
from herdsman.db.connection import Database, Tx
from herdsman.db.errors import Duplicate
from herdsman.errors import HerdsmanError, InvalidSettings, NotFound, Unauthenticated
from herdsman.fleet import workers_sql
from herdsman.ports import Clock
from herdsman.states import SERVING

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
    known = database.read(sql.pepper_mark)
    if known is None:
        try:
            database.transact(lambda tx: sql.mark_pepper(tx, mine))
        except Duplicate:
            known = database.read(sql.pepper_mark)
    if known not in (None, mine):
        raise InvalidSettings(
            "TOKEN_PEPPER is not the one that the tokens in this database were made with:"
            " give every replica the same, or the same file"
        )


REMEMBERED = timedelta(seconds=3)
MOST_REMEMBERED = 20_000
KEPT_IN_OUTAGE = timedelta(hours=24)
"""So long a token that only opens metrics and health is good without the database: who watches must see the outage."""
ADMIN_KEY = "admin-api-key"
ISSUED_EVERY = timedelta(seconds=1)
NOTED_EVERY = timedelta(minutes=1)
"""How often it is written down that a token is in use."""
_PEOPLES = frozenset(Role) - {Role.WORKER, Role.BOOTSTRAP}
"""Of a worker the beats say that it lives, and the use of a bootstrap token ends it."""
_CALLERS = ("role", "name", "agent", "worker_id", "incarnation", "pool")
"""What a caller is, as its token says."""
_NOBODYS = "0" * 64
_REFUSED = "the token is not known, or was revoked: check it for a slip, or ask an admin for a new one"
# Said only to who sends the whole secret: nobody can learn anything from it by guessing.
_EXPIRED = "the token has expired at {at:%Y-%m-%d %H:%M} UTC: ask an admin for a new one"


@dataclass(frozen=True, slots=True)
class _Known:
    caller: Caller
    good_until: float
    ends: float
    """Not even an outage makes it good for longer."""


class Authenticator:
    """Thread-safe."""

    def __init__(
        self,
        services: Services,
        clock: Clock,
        keyring: Keyring,
        *,
        admin_key: str | None = None,
        most: int = MOST_REMEMBERED,
    ) -> None:
        self._services = services
        self._clock = clock
        self._keyring = keyring
        self._admin = None if admin_key is None else keyring.hash(admin_key)
        self._most = most
        # By their hashes: not even the memory of this process holds a token longer than its request.
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()
        """For writers: one look-up needs none."""
        self._issued: frozenset[str] = frozenset()
        self._read_ids_at = -math.inf
        self._reading_ids = threading.Lock()

    def known(self, secret: str) -> Caller | None:
        """The caller as verified a moment ago, without a query."""
        found = self._known.get(self._keyring.hash(secret))
        return found.caller if found and self._clock.monotonic() < found.good_until else None

    def kept(self, secret: str) -> Caller | None:
        """The caller as last verified, for while the database is away: only for tokens that may do nothing but watch."""
        found = self._known.get(self._keyring.hash(secret))
        if found is None or found.caller.role is not Role.METRICS:
            return None
        return found.caller if self._clock.monotonic() < found.ends else None

    def met(self, secret: str) -> bool:
        """Whether it was good once, however long ago: its bearer is not guessing."""
        return self._known.get(self._keyring.hash(secret)) is not None

    def issued(self, secret: str) -> str | None:
        """The id in it, if there is such a token. However many guess, the database is asked once a second."""
        hashed, named = self._keyring.hash(secret), token_id(secret)
        if self._admin is not None and hmac.compare_digest(hashed, self._admin):
            return ADMIN_KEY
        with self._reading_ids:
            now = self._clock.monotonic()
            if named not in self._issued and now >= self._read_ids_at:
                self._issued = self._services.database.read(sql.live_ids)
                self._read_ids_at = now + ISSUED_EVERY.total_seconds()
            return named if named in self._issued else None

    def verify(self, secret: str) -> Caller:
        """Raises `Unauthenticated`, with the same words whatever is wrong with it, except that its time is over."""
        hashed = self._keyring.hash(secret)
        if self._admin is not None and hmac.compare_digest(hashed, self._admin):
            return Caller(token_id=ADMIN_KEY, role=Role.ADMIN, name=ADMIN_KEY)
        named = token_id(secret)
        if named is None:
            raise Unauthenticated(_REFUSED)
        asked_at = self._clock.monotonic()
        found = self._services.database.read(lambda tx: _read(tx, named, hashed))
        if isinstance(found, str):
            with self._lock:
                self._known.pop(hashed, None)
            raise Unauthenticated(found)
        caller, left, unnoted = found
        if unnoted:
            # For admins who look for unused tokens. The caller is let in even where it cannot be written.
            with suppress(HerdsmanError):
                self._services.database.transact(lambda tx: sql.note_use(tx, named, NOTED_EVERY))
        good, kept = (
            asked_at + (life if left is None else min(life, left)).total_seconds()
            for life in (REMEMBERED, KEPT_IN_OUTAGE)
        )
        with self._lock:
            self._known[hashed] = _Known(caller, good, kept)
            self._known.move_to_end(hashed)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return caller

    def forget(self, token_id: str) -> None:
        """It was revoked here: this process need not wait for its memory to fade."""
        with self._lock:
            for hashed in [each for each, known in self._known.items() if known.caller.token_id == token_id]:
                del self._known[hashed]


def _read(tx: Tx, named: str, hashed: str) -> tuple[Caller, timedelta | None, bool] | str:
    """One query and one comparison whatever is wrong, so that the time it takes tells nothing."""
    found = sql.find_token(tx, named)
    same = hmac.compare_digest(hashed, found[1] if found else _NOBODYS)
    # The token of a worker dies with it.
    if found is not None and same and not (found[0].worker_id is None or found[2] in SERVING):
        # Whose end it was, and why: said only to who sends the whole secret.
        worker_id = found[0].worker_id
        assert worker_id is not None
        try:
            worker = workers_sql.get_worker(tx, worker_id)
        except NotFound:
            return f"worker {worker_id!r} is gone, and its token with it: start a new worker"
        reason = worker.error or worker.reason
        return f"worker {worker.id!r} is {worker.status} ({reason}), and its token with it: start a new worker"
    if found is None or not same or found[0].revoked_at is not None:
        return _REFUSED
    token = found[0]
    if not token.live(tx.now()):
        return _EXPIRED.format(at=token.expires_at)
    left = None if token.expires_at is None else token.expires_at - tx.now()
    shared = {name: getattr(token, name) for name in _CALLERS}
    caller = Caller(token_id=token.id, ageing=token.ageing(tx.now()), **shared)
    unnoted = token.used_at is None or tx.now() - token.used_at > NOTED_EVERY
    return caller, left, token.role in _PEOPLES and unnoted
