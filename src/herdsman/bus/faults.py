"""What can go wrong with Redis. Nothing of it stops anybody: the loops wait a moment and go on."""

from collections.abc import Generator
from contextlib import contextmanager

from redis.exceptions import NoPermissionError, RedisError, ResponseError, WatchError

from herdsman.bus.errors import BusUnavailable, GroupMissing, NotAllowed, StreamSpent

_FULL = "exhausted the last possible ID"


@contextmanager
def translated() -> Generator[None]:
    """Messages of the client name the address and never the password."""
    try:
        yield
    except WatchError:  # no fault: somebody else was quicker
        raise
    except ResponseError as error:
        raise _kind(error)(f"Redis refuses: {type(error).__name__}: {error}") from error
    except (RedisError, OSError) as error:
        raise BusUnavailable(f"Redis does not answer: {type(error).__name__}: {error}") from error


def _kind(error: ResponseError) -> type[BusUnavailable]:
    said = str(error)
    if said.startswith("NOGROUP") or "no such key" in said:
        return GroupMissing
    if _FULL in said:
        return StreamSpent
    return NotAllowed if isinstance(error, NoPermissionError) else BusUnavailable
