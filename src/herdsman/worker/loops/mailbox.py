"""Where a loop gets its messages: each is hidden from others while it is worked on, and comes back if it is not."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

BodyT = TypeVar("BodyT")


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

    def bury(self, error: BaseException) -> None:
        """Give it up for good: it is not delivered again."""
        self.mailbox.bury(self, error)

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

    def receive(
        self, *, visibility_timeout: float = 1800, wait_time_seconds: float = 30
    ) -> Sequence[Message[BodyT]]:
        """What there is, hidden from others for a while; waits when there is nothing, and may return empty-handed."""
        ...

    def ack(self, message: Message[BodyT], output: object = None) -> None: ...

    def nack(
        self,
        message: Message[BodyT],
        *,
        visibility_timeout: float = 0,
        error: BaseException | None = None,
    ) -> None: ...

    def bury(self, message: Message[BodyT], error: BaseException) -> None: ...

    def extend(self, message: Message[BodyT], visibility_timeout: float) -> None: ...

    def wake(self) -> None:
        """Whoever waits in `receive` returns now."""
        ...
