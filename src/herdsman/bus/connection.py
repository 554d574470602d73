"""Connections to Redis: one kind for commands, one for the ear that waits. Neither repeats anything by itself."""

import re
from datetime import timedelta
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from herdsman.bus.errors import BusUnavailable, NotAllowed
from herdsman.bus.faults import translated

OLDEST = (6, 2)
"""XAUTOCLAIM and trimming by id came with it."""
CONNECTING = timedelta(seconds=1)


def connect(url: str, silence: timedelta) -> Any:
    """A client that gives up after `silence`. The library would repeat an XADD whose answer was lost."""
    opened: Any = Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
        url,
        protocol=2,  # the same form of answers from every version of the library
        decode_responses=True,
        encoding_errors="replace",
        retry=Retry(NoBackoff(), 0),
        socket_timeout=silence.total_seconds(),
        socket_connect_timeout=CONNECTING.total_seconds(),
        socket_keepalive=True,
    )
    return opened


def check_version(client: Any) -> None:
    """`BusUnavailable` names the version that is needed. An account that may not ask is believed."""
    try:
        with translated():
            said = str(client.info("server").get("redis_version", ""))
    except NotAllowed:
        return
    numbers = tuple(int(each) for each in re.findall(r"\d+", said)[:2])
    if numbers and numbers < OLDEST:
        raise BusUnavailable(f"Redis {said} is too old: 6.2 or newer is needed")
