"""How much one client may ask for: sizes of requests, open streams, failed logins."""

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv6Address, ip_address

from herdsman.errors import TooMany
from herdsman.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    hosts: frozenset[str] = frozenset()
    """Names by which this server may be called, besides those of the machine itself."""
    body_bytes: int = 1_048_576 + 65_536
    """A payload of 1 MiB, and room for the words around it."""
    large_body_bytes: int = 16_777_216
    """Where one request speaks of many jobs."""
    body_deadline: timedelta = timedelta(seconds=15)
    header_bytes: int = 16_384
    headers: int = 100
    streams: int = 1_000
    """Of events, open at a time: in all, and of one token and one address."""
    streams_per_token: int = 50
    streams_per_address: int = 200


class LoginThrottle:
    """A token bucket of failed logins for each address. Safe to be used by many threads."""

    def __init__(
        self, clock: Clock, *, burst: int = 20, every: timedelta = timedelta(seconds=3), most_addresses: int = 10_000
    ) -> None:
        self._clock = clock
        self._burst = burst
        self._every = every.total_seconds()
        self._most = most_addresses
        # The moment at which the bucket will be full again says all there is to know about it.
        self._full_at: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, address: str, token_id: str = "") -> None:
        """Raises `TooMany` while there is no try left; each token that there is has tries of its own."""
        with self._lock:
            missing = self._full_at.get((network(address), token_id), 0.0) - self._clock.monotonic()
        wait = missing - (self._burst - 1) * self._every
        if wait > 0:
            after = timedelta(seconds=math.ceil(wait))
            raise TooMany("too many wrong tokens came from this address: wait", retry_after=after)

    def note(self, address: str, token_id: str = "") -> None:
        key, now = (network(address), token_id), self._clock.monotonic()
        with self._lock:
            self._full_at[key] = max(self._full_at.pop(key, now), now) + self._every
            while len(self._full_at) > self._most:
                self._full_at.popitem(last=False)


def network(address: str) -> str:
    """One customer has a whole IPv6 network of 64 bits, and may take any address of it."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return f"{int(parsed) >> 64:x}::/64"
    return address
