"""When to ask again, and after how long. Every word to the server may be repeated, so only patience is a limit."""

from dataclasses import dataclass
from datetime import timedelta

TRY_AGAIN = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    most: timedelta = timedelta(seconds=30)
    """How long a request is repeated, from its first try; zero means that it is sent once."""
    base: timedelta = timedelta(milliseconds=200)
    cap: timedelta = timedelta(seconds=5)

    def pause(
        self, *, tries: int, asked: timedelta | None, spent: timedelta, spread: float
    ) -> timedelta | None:
        """The time to wait after so many tries; None when it is time to give up.

        `asked` is what the server wants, and is never cut short; `spread` in [0, 1) keeps clients apart.
        """
        plain = min(self.cap, self.base * 2 ** min(tries - 1, 20))
        pause = plain * (0.5 + spread / 2) if asked is None else asked + self.base * spread
        return pause if spent + pause < self.most else None
