"""When a message is given up, what is kept of it, and how it comes back."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from herdsman.worker.loops.mailbox import Mailbox, Message

BodyT = TypeVar("BodyT")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPolicy:
    max_deliveries: int = 5
    at_once: tuple[type[BaseException], ...] = ()
    """Errors that no further try will mend."""
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


def dead_letter(message: Message[BodyT], source: str, error: BaseException) -> DeadLetter[BodyT]:
    return DeadLetter(
        message_id=message.id,
        body=message.body,
        source=source,
        deliveries=message.delivery_count,
        first_sent_at=message.sent_at,
        died_at=datetime.now(UTC),
        error_type=type(error).__name__,
        error=str(error),
    )


def replay(graves: Mailbox[DeadLetter[BodyT]], mailbox: Mailbox[BodyT], most: int = 100) -> Sequence[str]:
    """Sends up to about so many dead letters again; each leaves its grave only once it has been sent."""
    sent: list[str] = []
    while len(sent) < most and (found := graves.receive(visibility_timeout=60, wait_time_seconds=0)):
        for message in found:
            sent.append(mailbox.send(message.body.body))
            message.ack()
    return sent
