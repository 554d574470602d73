"""A mailbox in the memory of one process."""

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import heappop, heappush
from typing import Generic, TypeVar

from herdsman.core.errors import StaleWrite
from herdsman.worker.loops.heartbeat import Ticks
from herdsman.worker.loops.mailbox import Message

BodyT = TypeVar("BodyT")

SHORTEST_SLEEP, LONGEST_SLEEP = 0.001, 3600.0


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class _Letter(Generic[BodyT]):
    number: int
    id: str
    body: BodyT
    sent_at: datetime
    visible_at: float
    deliveries: int = 0
    receipt: str | None = None


class InMemoryMailbox(Generic[BodyT]):
    """Oldest first. A message that is neither acked nor extended in time is delivered again."""

    def __init__(self, *, batch: int = 1, clock: Ticks = time, now: Callable[[], datetime] = _now) -> None:
        self._batch = batch
        self._clock = clock
        self._now = now
        self._changed = threading.Condition()
        self._letters: dict[str, _Letter[BodyT]] = {}
        self._order: list[tuple[float, int, str]] = []
        """When each letter can be seen; an entry that no longer agrees with its letter is void."""
        self._numbers = itertools.count(1)
        self._wakes = 0
        self._closed = False

    def __len__(self) -> int:
        with self._changed:
            return len(self._letters)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Loops that receive from it end; what is in it stays."""
        self._closed = True
        self.wake()

    def send(self, body: BodyT) -> str:
        with self._changed:
            number = next(self._numbers)
            letter = _Letter(number, f"m{number}", body, self._now(), visible_at=0.0)
            self._letters[letter.id] = letter
            self._show(letter, self._clock.monotonic())
            return letter.id

    def receive(
        self, *, visibility_timeout: float = 1800, wait_time_seconds: float = 30
    ) -> list[Message[BodyT]]:
        until = self._clock.monotonic() + wait_time_seconds
        with self._changed:
            wakes = self._wakes
            while not (due := self._due()):
                left = until - self._clock.monotonic()
                if left <= 0 or wakes != self._wakes:
                    return []
                self._changed.wait(min(left, max(SHORTEST_SLEEP, self._until_next())))
            return [self._deliver(letter, visibility_timeout) for letter in due]

    def ack(self, message: Message[BodyT], output: object = None) -> None:  # noqa: ARG002  nobody keeps results here
        with self._changed:
            del self._letters[self._held(message).id]

    def nack(
        self,
        message: Message[BodyT],
        *,
        visibility_timeout: float = 0,
        error: BaseException | None = None,  # noqa: ARG002  nobody keeps errors here
    ) -> None:
        with self._changed:
            letter = self._held(message)
            letter.receipt = None
            self._show(letter, self._clock.monotonic() + visibility_timeout)

    def bury(self, message: Message[BodyT], error: BaseException) -> None:  # noqa: ARG002
        self.ack(message)

    def extend(self, message: Message[BodyT], visibility_timeout: float) -> None:
        with self._changed:
            letter = self._held(message)
            self._show(letter, max(letter.visible_at, self._clock.monotonic() + visibility_timeout))

    def wake(self) -> None:
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def _show(self, letter: _Letter[BodyT], at: float) -> None:
        letter.visible_at = at
        heappush(self._order, (at, letter.number, letter.id))
        self._changed.notify_all()

    def _due(self) -> list[_Letter[BodyT]]:
        """Takes them off the order; whoever asks delivers them, which puts them back."""
        due: list[_Letter[BodyT]] = []
        while len(due) < self._batch and self._until_next() <= 0:
            due.append(self._letters[heappop(self._order)[2]])
        return due

    def _until_next(self) -> float:
        """Seconds until the next letter can be seen; void entries before it are dropped."""
        while self._order:
            at, _, name = self._order[0]
            letter = self._letters.get(name)
            if letter is not None and letter.visible_at == at:
                return at - self._clock.monotonic()
            heappop(self._order)
        return LONGEST_SLEEP

    def _deliver(self, letter: _Letter[BodyT], visibility_timeout: float) -> Message[BodyT]:
        letter.deliveries += 1
        letter.receipt = f"{letter.id}-{letter.deliveries}"
        self._show(letter, self._clock.monotonic() + visibility_timeout)
        return Message(
            id=letter.id,
            body=letter.body,
            receipt_handle=letter.receipt,
            delivery_count=letter.deliveries,
            sent_at=letter.sent_at,
            mailbox=self,
        )

    def _held(self, message: Message[BodyT]) -> _Letter[BodyT]:
        """A receipt counts until its time is over, even where nobody else has taken the message yet."""
        letter = self._letters.get(message.id)
        if letter is None or letter.receipt != message.receipt_handle:
            raise StaleWrite(f"message {message.id} was given back, taken or ended since: leave it alone")
        if letter.visible_at <= self._clock.monotonic():
            raise StaleWrite(f"message {message.id} was held too long and is due again: leave it alone")
        return letter
