"""Tokens: made, listed and revoked by people; exchanged and renewed by workers."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog

from herdsman.access import sql
from herdsman.access.authenticator import Keyring
from herdsman.access.rules import Caller, Role, Token
from herdsman.access.secret_file import write_secret
from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.db.paging import check_limit
from herdsman.errors import Conflict, Forbidden, InvalidRequest, NotFound, StaleWrite, Unauthenticated
from herdsman.ids import LONGEST, PoolId, WorkerId, check_name
from herdsman.states import SERVING

log = structlog.get_logger()
LONGEST_LIFE = timedelta(days=3650)
FOR_PEOPLE = (Role.ADMIN, Role.OPERATOR, Role.SUBMITTER, Role.ENROLLER, Role.VIEWER, Role.METRICS)
_PRUNED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Issued:
    token: Token
    secret: str = field(repr=False)
    """Shown once; only its hash is kept."""


def create_token(
    services: Services,
    keyring: Keyring,
    *,
    role: Role,
    name: str,
    agent: str | None = None,
    expires_in: timedelta | None = None,
    who: str = "cli",
) -> Issued:
    """For a person or a program. That of a submitter is good for one agent: the one named, or `name`."""
    if role not in FOR_PEOPLE:
        raise InvalidRequest(f"role is {role}: workers get their tokens when they start")
    check_name("name", name, LONGEST["agent"])
    if agent is not None:
        check_name("agent", agent)
        if role is not Role.SUBMITTER:
            raise InvalidRequest(f"agent is {agent!r}: only the token of a submitter is bound to an agent")
    if expires_in is not None and not timedelta(0) < expires_in <= LONGEST_LIFE:
        raise InvalidRequest(f"expires_in is {expires_in}: it must be more than 0 and at most {LONGEST_LIFE}")
    whose = (agent or name) if role is Role.SUBMITTER else None
    issued = services.database.transact(lambda tx: _add(tx, keyring, role, name, expires_in, agent=whose))
    log.info("token.created", token_id=issued.token.id, role=role, name=name, who=who)
    return issued


def create_bootstrap(services: Services, keyring: Keyring, worker_id: WorkerId, pool: PoolId) -> Issued:
    """All that a new machine is given: good once, for a short while, to become this worker."""
    life = keyring.bootstrap_life
    return services.database.transact(
        lambda tx: _add(tx, keyring, Role.BOOTSTRAP, worker_id, life, worker_id=worker_id, pool=pool)
    )


def list_tokens(services: Services, *, after: str | None = None, limit: int = 100) -> list[Token]:
    check_limit(limit)
    if after is not None:
        check_name("after", after, 32)
    return services.database.read(lambda tx: sql.page_tokens(tx, after=after, limit=limit))


def revoke_token(services: Services, token_id: str, *, who: str = "cli") -> Token:
    """It ends everywhere within seconds; one that was revoked before stays so."""
    check_name("token_id", token_id, 32)

    def revoke(tx: Tx) -> Token:
        sql.revoke_token(tx, token_id)
        return sql.get_token(tx, token_id)

    revoked = services.database.transact(revoke)
    log.info("token.revoked", token_id=token_id, who=who)
    return revoked


def prune_tokens(services: Services, older_than: timedelta = timedelta(days=7)) -> int:
    """Forget those that ended so long ago; renewed tokens would pile up."""
    return services.database.transact(lambda tx: sql.prune_tokens(tx, older_than, _PRUNED_AT_ONCE))


def admit_worker(
    services: Services, keyring: Keyring, caller: Caller, worker_id: WorkerId, incarnation: str, *, new: bool = False
) -> Issued:
    """The token of a worker whose row is there, and `new` if this request made it. Older incarnations of the same
    worker end (W1)."""
    check_name("incarnation", incarnation, 64)
    match caller.role:
        case Role.BOOTSTRAP:
            return exchange_bootstrap(services, keyring, caller, worker_id, incarnation)
        case Role.WORKER:
            _require_own(caller, worker_id)
            return services.database.transact(lambda tx: _reissue(tx, keyring, caller, worker_id, incarnation))
        case Role.ADMIN | Role.OPERATOR:
            return services.database.transact(lambda tx: _issue(tx, keyring, worker_id, incarnation))
        case Role.ENROLLER:

            def enrol(tx: Tx) -> Issued:
                # An enroller must not become a worker that is there; the same request, sent again, is answered.
                if not new and not sql.is_given_to(tx, worker_id, incarnation):
                    raise Conflict(
                        f"there is a worker {worker_id!r} already, and an enroller adds new ones:"
                        " choose another id, or none"
                    )
                return _issue(tx, keyring, worker_id, incarnation)

            return services.database.transact(enrol)
        case _:
            raise Forbidden(f"a token with the role {caller.role} cannot register workers")


def exchange_bootstrap(
    services: Services, keyring: Keyring, caller: Caller, worker_id: WorkerId, incarnation: str
) -> Issued:
    """Once. Only the same incarnation, whose answer may have been lost, may ask again for a short while."""
    _require_own(caller, worker_id)

    def exchange(tx: Tx) -> Issued | None:
        if not sql.use_token(tx, caller.token_id, incarnation):
            known = sql.get_token(tx, caller.token_id, locked=True)
            lately = known.used_at is not None and tx.now() - known.used_at <= keyring.repeat_within
            if not (lately and known.live(tx.now()) and known.incarnation == incarnation):
                return None
        return _issue(tx, keyring, worker_id, incarnation)

    issued = services.database.transact(exchange)
    if issued is None:
        # Somebody else holds what only one machine was given.
        log.error("token.bootstrap_used_again", token_id=caller.token_id, worker_id=worker_id, incarnation=incarnation)
        raise Forbidden(f"the bootstrap token of worker {worker_id!r} was used before: start a new worker")
    return issued


def renew_worker_token(services: Services, keyring: Keyring, caller: Caller) -> Issued | None:
    """A new one when less than half of the life is left. The old one stays good to its end, so no answer is missed."""
    worker_id, incarnation = caller.worker_id, caller.incarnation
    if not caller.ageing or caller.role is not Role.WORKER or worker_id is None or incarnation is None:
        return None
    return services.database.transact(lambda tx: _reissue(tx, keyring, caller, worker_id, incarnation))


def _require_own(caller: Caller, worker_id: WorkerId) -> None:
    if caller.worker_id != worker_id:
        raise Forbidden(f"the token is not that of worker {worker_id!r}")


def _reissue(tx: Tx, keyring: Keyring, caller: Caller, worker_id: WorkerId, incarnation: str) -> Issued:
    """The token of an old incarnation may still be cached as good for seconds, so it is read once more."""
    if not sql.get_token(tx, caller.token_id, locked=True).live(tx.now()):
        raise Unauthenticated("the token has ended")
    return _issue(tx, keyring, worker_id, incarnation)


def _issue(tx: Tx, keyring: Keyring, worker_id: WorkerId, incarnation: str) -> Issued:
    status = sql.lock_worker(tx, worker_id)
    if status is None:
        raise NotFound(f"there is no worker {worker_id!r}")
    if status not in SERVING:
        raise StaleWrite(f"worker {worker_id!r} is {status}: stop its handler and exit")
    sql.supersede(tx, worker_id, incarnation)
    sql.note_registered(tx, worker_id)
    bound = {"worker_id": worker_id, "incarnation": incarnation}
    return _add(tx, keyring, Role.WORKER, worker_id, keyring.worker_life, **bound)


def _add(tx: Tx, keyring: Keyring, role: Role, name: str, life: timedelta | None, **bound_to: Any) -> Issued:
    """`bound_to` is what the token is good for beyond its role: an agent, a worker, its incarnation, a pool."""
    token_id, secret = keyring.new(role)
    expires_at = None if life is None else tx.now() + life
    token = Token(id=token_id, role=role, name=name, created_at=tx.now(), expires_at=expires_at, **bound_to)
    sql.add_token(tx, token, keyring.hash(secret))
    return Issued(token, secret)


NAME = "first"


def first_admin_token(services: Services, keyring: Keyring, file: Path) -> str | None:
    """An admin token, for its owner to see once and to find in `file`; None when there is one already."""
    if services.database.read(lambda tx: sql.count_live(tx, Role.ADMIN)):
        return None
    token_id, secret = keyring.new(Role.ADMIN)
    # The file first: a token that nobody knows would keep this from ever making another.
    write_secret(file, secret)
    services.database.transact(
        lambda tx: sql.add_token(
            tx, Token(id=token_id, role=Role.ADMIN, name=NAME, created_at=tx.now()), keyring.hash(secret)
        )
    )
    return secret
