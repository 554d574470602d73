"""What can go wrong with Redis. Nothing of it stops anybody: the loops wait a moment and go on."""

from collections.abc import Generator
from contextlib import contextmanager

from redis.exceptions import NoPermissionError, RedisError, ResponseError, WatchError

from herdsman.core.errors import HerdsmanError

_FULL = "exhausted the last possible ID"


class BusUnavailable(HerdsmanError):
    """Redis did not answer, or would not do it: away, loading, read-only, out of memory, unable to save."""


class GroupMissing(BusUnavailable):
    """The stream or its group is gone: somebody deleted it, or the server has forgotten everything."""


class StreamSpent(BusUnavailable):
    """Somebody used up the ids of the stream, so that nothing can be added any more."""


class NotAllowed(BusUnavailable):
    """The account may not do this."""


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
