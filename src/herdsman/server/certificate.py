"""The certificate that the API speaks TLS with: whose it is, and how long it is good."""

import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from herdsman.errors import InvalidSettings

_ANY_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME: we look at the dates ourselves, so that we can name them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    names: tuple[str, ...]
    begins: datetime
    ends: datetime


def read_certificate(file: Path, key: Path) -> Certificate:
    """What a client would be shown, found out by a handshake with ourselves: so the key is known to fit, too."""
    try:
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(file, key, password="")
        asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        asking.check_hostname = False
        asking.load_verify_locations(file)
        # Whoever has signed it is not our question.
        asking.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags(_ANY_TIME)
        # A handshake in memory: nothing listens, and nobody is called.
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = serving.wrap_bio(to_server, to_client, server_side=True)
        client = asking.wrap_bio(to_client, to_server)
        for side in (client, server, client, server, client):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
        found: Any = client.getpeercert()
    except OSError as error:  # ssl.SSLError is one
        said = error.strerror or str(error)
        raise InvalidSettings(
            f"the certificate {file} cannot be used with the key {key}: {said};"
            " set API_TLS_CERTIFICATE and API_TLS_KEY to files in PEM that belong together"
        ) from error
    return Certificate(
        names=tuple(value for kind, value in found.get("subjectAltName", ()) if kind in ("DNS", "IP Address")),
        begins=_instant(found["notBefore"]),
        ends=_instant(found["notAfter"]),
    )


def require_valid(file: Path, certificate: Certificate, now: datetime) -> None:
    """One that clients will refuse is refused here first, where somebody reads it."""
    if now < certificate.begins:
        said = f"is good only from {certificate.begins:%Y-%m-%d %H:%M} UTC on: set the clock, or wait"
    elif now >= certificate.ends:
        said = f"has expired at {certificate.ends:%Y-%m-%d %H:%M} UTC: renew it, and start again"
    else:
        return
    raise InvalidSettings(f"the certificate {file} (API_TLS_CERTIFICATE) {said}")


def _instant(said: str) -> datetime:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(said), UTC)
