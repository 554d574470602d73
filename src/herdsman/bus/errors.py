"""What is said of Redis when something goes wrong with it, whoever pretends to be Redis."""

from herdsman.core.errors import HerdsmanError


class BusUnavailable(HerdsmanError):
    """Redis did not answer, or would not do it: away, loading, read-only, out of memory, unable to save."""


class GroupMissing(BusUnavailable):
    """The stream or its group is gone: somebody deleted it, or the server has forgotten everything."""


class StreamSpent(BusUnavailable):
    """Somebody used up the ids of the stream, so that nothing can be added any more."""


class NotAllowed(BusUnavailable):
    """The account may not do this."""
