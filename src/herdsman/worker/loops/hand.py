"""The messages that a loop has in hand, so that another thread can give them back when the loop cannot."""

import logging
import threading
from collections.abc import Sequence
from typing import Generic, TypeVar

from herdsman.core.errors import HerdsmanError, StaleWrite
from herdsman.worker.loops.mailbox import Message

BodyT = TypeVar("BodyT")
logger = logging.getLogger(__name__)


class Hand(Generic[BodyT]):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Message[BodyT]] = []
        self._current: Message[BodyT] | None = None

    def take(self, messages: Sequence[Message[BodyT]]) -> None:
        with self._lock:
            self._waiting = list(messages)

    def next(self) -> Message[BodyT] | None:
        """The message to work on now; None when none is left, or they were given back meanwhile."""
        with self._lock:
            self._current = self._waiting.pop(0) if self._waiting else None
            return self._current

    def holds(self, message: Message[BodyT]) -> bool:
        """Whether it is the one that is worked on; it may have been given back meanwhile."""
        with self._lock:
            return self._current is message

    def put_down(self) -> None:
        with self._lock:
            self._current = None

    def give_back_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for message in waiting:
            _give_back(message)

    def give_back_all(self) -> None:
        with self._lock:
            current, self._current = self._current, None
        if current is not None:
            _give_back(current)
        self.give_back_waiting()


def _give_back(message: Message[BodyT]) -> None:
    try:
        message.nack(visibility_timeout=0)
    except StaleWrite:  # it has gone back by itself
        return
    except HerdsmanError as error:
        logger.warning(
            "message %s could not be given back: %s; it returns when its time is over", message.id, error
        )
