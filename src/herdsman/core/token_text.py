"""The text of a token: a prefix to find leaked ones by, the role, the id, the secret and a checksum."""

import hmac
import re
from base64 import urlsafe_b64encode
from hashlib import sha256
from zlib import crc32

from herdsman.core.access import Role

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
    return hmac.new(pepper, text.encode(errors="surrogateescape"), sha256).hexdigest()


def _checksum(body: str) -> str:
    return f"{crc32(body.encode()):08x}"
