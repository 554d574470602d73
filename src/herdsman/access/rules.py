"""Who calls, and what for: roles, callers and tokens as values."""

import hmac
import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from zlib import crc32

from herdsman.ids import PoolId, WorkerId


class Role(StrEnum):
    ADMIN = "admin"
    OPERATOR = "operator"
    """Runs the fleet and anybody's jobs, but gives nobody rights."""
    SUBMITTER = "submitter"
    """Submits and sees the jobs of one agent."""
    WORKER = "worker"
    """One worker, in one incarnation."""
    ENROLLER = "enroller"
    """Registers new workers, and nothing else: for machines that are added by hand."""
    BOOTSTRAP = "bootstrap"
    """Good for one exchange: a machine that starts becomes its worker."""
    VIEWER = "viewer"
    METRICS = "metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is known of a token; the secret itself is kept nowhere."""

    id: str
    role: Role
    name: str
    created_at: datetime
    agent: str | None = None
    worker_id: WorkerId | None = None
    incarnation: str | None = None
    pool: PoolId | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    used_at: datetime | None = None

    def live(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def ageing(self, now: datetime) -> bool:
        """Less than half of its life is left."""
        return self.expires_at is not None and now - self.created_at > (self.expires_at - self.created_at) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who a request comes from, as its token says; never as its body or path say (X2)."""

    token_id: str
    role: Role
    name: str = ""
    agent: str | None = None
    worker_id: WorkerId | None = None
    incarnation: str | None = None
    pool: PoolId | None = None
    ageing: bool = False
    """A worker with such a token is given a new one with its next heartbeat."""

    @property
    def who(self) -> str:
        """As the audit names it."""
        if self.role is Role.WORKER and self.worker_id is not None:
            return f"worker:{self.worker_id}"
        return f"{self.role}:{self.name or self.token_id}"

    @property
    def only_agent(self) -> str | None:
        """The one agent whose jobs this caller may see and submit; None for everybody's."""
        return self.agent if self.role is Role.SUBMITTER else None

    def sees(self, agent: str) -> bool:
        """Whether a job of this agent exists at all, as far as the caller is concerned."""
        return self.role is not Role.SUBMITTER or self.agent == agent


PREFIX = "hm"
ID_BYTES = 8
SECRET_BYTES = 32
_TEXT = re.compile(r"(hm_[a-z]{1,16}_([0-9a-f]{16})_[A-Za-z0-9_-]{43})_([0-9a-f]{8})", re.ASCII)


def token_text(role: Role, token_id: str, secret: bytes) -> str:
    body = f"{PREFIX}_{role}_{token_id}_{urlsafe_b64encode(secret).rstrip(b'=').decode()}"
    return f"{body}_{_checksum(body)}"


def token_id(text: str) -> str | None:
    """The id in a text that could be a token; None for one with a slip in it, so that nobody is asked."""
    found = _TEXT.fullmatch(text)
    return found[2] if found and _checksum(found[1]) == found[3] else None


def keyed_hash(pepper: bytes, text: str) -> str:
    """All that is stored of a token; without the pepper a copy of the table proves nothing."""
    return hmac.digest(pepper, text.encode(errors="surrogateescape"), "sha256").hex()


def _checksum(body: str) -> str:
    return f"{crc32(body.encode()):08x}"
