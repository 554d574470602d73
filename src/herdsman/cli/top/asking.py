"""Questions to the server in threads of their own: an answer that takes long keeps no key waiting."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread

from textual.message import Message

from herdsman.core.errors import HerdsmanError, StoreUnavailable, Unreachable

PATIENCE_S = 3.0
"""A server that is silent for longer is said to be away, before it is certain."""


class Answered(Message):
    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class Refused(Message):
    def __init__(self, error: HerdsmanError) -> None:
        super().__init__()
        self.error = error


class Broken(Message):
    """A mistake of ours: the program must end and show it."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def ask(question: Callable[[], object], tell: Callable[[Message], object]) -> None:
    """Nobody waits for the thread: who leaves, leaves at once."""
    Thread(target=_ask, args=(question, tell), name="top", daemon=True).start()


def _ask(question: Callable[[], object], tell: Callable[[Message], object]) -> None:
    try:
        said: Message = Answered(question())
    except HerdsmanError as error:
        said = Refused(error)
    except Exception as error:  # noqa: BLE001  (the outermost of this thread; the screen raises it)
        said = Broken(error)
    with suppress(RuntimeError):  # the screen was closed meanwhile
        tell(said)


@dataclass(slots=True)
class Contact:
    """How long ago the server said something."""

    answered_at: float
    asked_at: float | None = None
    """While a question is open."""
    error: HerdsmanError | None = None

    def asks(self, now: float) -> bool:
        """Whether a question may be asked: one at a time."""
        if self.asked_at is not None:
            return False
        self.asked_at = now
        return True

    def hears(self, now: float) -> None:
        self.answered_at, self.asked_at, self.error = now, None, None

    def fails(self, error: HerdsmanError) -> None:
        self.asked_at, self.error = None, error

    def trouble(self, now: float) -> str:
        """What is wrong, for how long; empty when nothing is."""
        silent = round(now - self.answered_at)
        if isinstance(self.error, Unreachable | StoreUnavailable):
            return f"no answer for {silent}s, this is how it was then: {self.error}"
        if self.error is not None:
            return str(self.error)
        if self.asked_at is not None and now - self.asked_at > PATIENCE_S:
            return f"no answer for {silent}s, this is how it was then"
        return ""
