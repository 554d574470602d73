"""Where a loop gets its messages: each is hidden from others while it is worked on, and comes back if it is not."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

from herdsman.errors import StaleWrite
from herdsman.loops.heartbeat import Ticks

BodyT = TypeVar("BodyT")
RequestT = TypeVar("RequestT")
OutputT = TypeVar("OutputT")


@dataclass(frozen=True, kw_only=True, eq=False)  # Python 3.11 has no slots in what is generic
class Message(Generic[BodyT]):
    """One delivery. What is said through it is refused with `StaleWrite` once the message went to somebody else."""

    id: str
    body: BodyT
    receipt_handle: str
    delivery_count: int
    sent_at: datetime | None
    """None where the mailbox does not know."""
    mailbox: "Mailbox[BodyT]"

    def ack(self, output: object = None) -> None:
        """The message is done with; a mailbox that keeps results keeps this one."""
        self.mailbox.ack(self, output)

    def nack(self, *, visibility_timeout: float = 0, error: BaseException | None = None) -> None:
        """Give it back, to be delivered again after this many seconds; the error says why, where there is one."""
        self.mailbox.nack(self, visibility_timeout=visibility_timeout, error=error)

    def reject(self, error: BaseException) -> None:
        """Give it up for good: it is not delivered again."""
        self.mailbox.reject(self, error)

    def extend(self, visibility_timeout: float) -> None:
        """Keep it for at least this many seconds from now."""
        self.mailbox.extend(self, visibility_timeout)


class Mailbox(Protocol[BodyT]):
    @property
    def closed(self) -> bool:
        """Nothing will come from here any more."""
        ...

    def send(self, body: BodyT) -> str:
        """The id of the new message."""
        ...

    def receive(self, *, visibility_timeout: float = 1800, wait_time_seconds: float = 30) -> Sequence[Message[BodyT]]:
        """What there is, hidden from others for a while; waits when there is nothing, and may return empty-handed."""
        ...

    def ack(self, message: Message[BodyT], output: object = None) -> None: ...

    def nack(
        self, message: Message[BodyT], *, visibility_timeout: float = 0, error: BaseException | None = None
    ) -> None: ...

    def reject(self, message: Message[BodyT], error: BaseException) -> None: ...

    def extend(self, message: Message[BodyT], visibility_timeout: float) -> None: ...

    def wake(self) -> None:
        """Whoever waits in `receive` returns now."""
        ...


# No slots in what is generic: with them, `MainLoopRequest[X](...)` is an error on Python 3.11.


@dataclass(frozen=True, kw_only=True)
class MainLoopResult(Generic[OutputT]):
    """One of `output` and `error` counts: the error is None when the work was done."""

    message_id: str
    output: OutputT | None = None
    error: str | None = None
    trace_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class MainLoopRequest(Generic[RequestT]):
    request: RequestT
    reply_to: Mailbox[MainLoopResult[object]] | None = None
    trace_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPolicy:
    max_deliveries: int = 5
    at_once: tuple[type[BaseException], ...] = ()
    """Errors that no further try will repair."""
    never: tuple[type[BaseException], ...] = ()
    """Errors that are not the message's fault, however often they come."""
    backoff: float = 1.0
    longest_backoff: float = 300.0

    def gives_up(self, error: BaseException, deliveries: int) -> bool:
        if isinstance(error, self.never):
            return False
        return isinstance(error, self.at_once) or deliveries >= self.max_deliveries

    def worn_out(self, deliveries: int) -> bool:
        """Delivered too often without a word: it takes its worker down each time.

        Where some errors never count, the number of deliveries proves nothing.
        """
        return not self.never and deliveries > self.max_deliveries

    def delay(self, deliveries: int) -> float:
        """Seconds before the next try: doubled each time."""
        return min(self.longest_backoff, self.backoff * 2 ** min(deliveries - 1, 30))


@dataclass(frozen=True, kw_only=True)  # Python 3.11 has no slots in what is generic
class DeadLetter(Generic[BodyT]):
    """The body is the message as it was, with its reply address and its trace id."""

    message_id: str
    body: BodyT
    source: str
    deliveries: int
    first_sent_at: datetime | None
    died_at: datetime
    error_type: str
    error: str


def replay(dead_letters: Mailbox[DeadLetter[BodyT]], mailbox: Mailbox[BodyT], most: int = 100) -> Sequence[str]:
    """Sends up to about so many dead letters again; each is acked only once it has been sent."""
    sent: list[str] = []
    while len(sent) < most and (found := dead_letters.receive(visibility_timeout=60, wait_time_seconds=0)):
        for message in found:
            sent.append(mailbox.send(message.body.body))
            message.ack()
    return sent


SHORTEST_SLEEP, LONGEST_SLEEP = 0.001, 3600.0


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

    def __init__(self, *, batch: int = 1, clock: Ticks = time, now: Callable[[], datetime] | None = None) -> None:
        self._batch = batch
        self._clock = clock
        self._now = now or partial(datetime.now, UTC)
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

    def receive(self, *, visibility_timeout: float = 1800, wait_time_seconds: float = 30) -> list[Message[BodyT]]:
        until = self._clock.monotonic() + wait_time_seconds
        with self._changed:
            wakes = self._wakes
            while self._until_next() > 0:
                left = until - self._clock.monotonic()
                if left <= 0 or wakes != self._wakes:
                    return []
                self._changed.wait(min(left, max(SHORTEST_SLEEP, self._until_next())))
            due: list[_Letter[BodyT]] = []
            while len(due) < self._batch and self._until_next() <= 0:
                due.append(self._letters[heappop(self._order)[2]])
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

    def reject(self, message: Message[BodyT], error: BaseException) -> None:  # noqa: ARG002
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
