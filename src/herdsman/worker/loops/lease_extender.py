"""Holds a message for as long as its work shows signs of life, and no longer."""

import time
from typing import Any

from herdsman.worker.loops.heartbeat import Ticks
from herdsman.worker.loops.mailbox import Message


class LeaseExtender:
    """A beat extends the message's visibility; work that is stuck does not beat, and loses its message."""

    def __init__(
        self,
        message: Message[Any],
        *,
        interval: float = 60.0,
        extension: float = 300.0,
        clock: Ticks = time,
    ) -> None:
        self._message = message
        self._interval = interval
        self._extension = extension
        self._clock = clock
        self._extended_at = clock.monotonic()

    def beat(self) -> None:
        """At most one extension per interval. `StaleWrite`: the message is somebody else's now, so stop."""
        now = self._clock.monotonic()
        if now - self._extended_at >= self._interval:
            self._message.extend(self._extension)
            self._extended_at = now
