"""Hours of the week in which a pool has another size. Only wall clocks are looked at; whose, the window says."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from herdsman.core.errors import InvalidRequest

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WHOLE_DAY = 24 * 60
MOST_WINDOWS = 32
_CLOCK = re.compile(r"([01]?[0-9]|2[0-4]):([0-5][0-9])", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many workers at least and at most; None leaves it as it is."""

    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """On these days, from the one minute until before the other. One that ends before it begins ends a day later."""

    days: frozenset[int]
    """0 is Monday. A window over midnight belongs to the day on which it begins."""
    begin: int
    """In minutes since midnight."""
    end: int
    zone: str = "UTC"
    sizes: Sizes = Sizes()

    def covers(self, local: datetime) -> bool:
        """`local` is the time of the window's own zone. An hour that a clock skips or repeats is as the clock shows it."""
        minute, today = local.hour * 60 + local.minute, local.weekday()
        if self.begin < self.end:
            return today in self.days and self.begin <= minute < self.end
        yesterday = (today - 1) % len(DAYS)
        return (today in self.days and minute >= self.begin) or (yesterday in self.days and minute < self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    windows: tuple[Window, ...] = ()
    outside: Sizes = Sizes(least=0)

    def __bool__(self) -> bool:
        return bool(self.windows)

    @property
    def zones(self) -> frozenset[str]:
        return frozenset(window.zone for window in self.windows)

    def sizes(self, local: Mapping[str, datetime]) -> Sizes:
        """`local` has the time of each zone. Where windows overlap, the most workers that any of them asks for."""
        open_now = [each.sizes for each in self.windows if each.covers(local[each.zone])]
        if not open_now:
            return self.outside
        return Sizes(
            least=_highest(each.least for each in open_now), most=_highest(each.most for each in open_now)
        )


def parse_days(text: str) -> frozenset[int]:
    """`mon-fri`, `sat,sun`, `fri-mon`, `daily`."""
    if text.strip().lower() == "daily":
        return frozenset(range(len(DAYS)))
    return frozenset(day for part in text.lower().split(",") for day in _days(part.strip(), text))


def parse_clock(field: str, text: str) -> int:
    """`08:30`, in minutes since midnight; `24:00` is the end of the day."""
    found = _CLOCK.fullmatch(text)
    minutes = int(found[1]) * 60 + int(found[2]) if found else WHOLE_DAY + 1
    if minutes > WHOLE_DAY:
        raise InvalidRequest(f"{field} is {text!r}: it must be a time of day such as 08:30, at most 24:00")
    return minutes


def check_window(window: Window) -> None:
    if window.begin == window.end or window.begin == WHOLE_DAY or window.end == 0:
        raise InvalidRequest(
            "a window of the schedule has no length: a whole day is from 00:00 to 24:00,"
            " and one that ends at midnight ends at 24:00"
        )
    check_sizes(window.sizes)


def check_sizes(sizes: Sizes) -> None:
    if sizes.least is not None and sizes.most is not None and sizes.least > sizes.most:
        raise InvalidRequest(f"min is {sizes.least} and max is {sizes.most}: min must not exceed max")


def shown_days(days: Iterable[int]) -> str:
    return ",".join(DAYS[day] for day in sorted(days))


def shown_clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _days(part: str, text: str) -> list[int]:
    first, dash, last = part.partition("-")
    known = {name: number for number, name in enumerate(DAYS)}
    begin, end = known.get(first.strip()), known.get(last.strip() if dash else first.strip())
    if begin is None or end is None:
        raise InvalidRequest(f"days is {text!r}: write days such as mon-fri or sat,sun, or daily")
    return [(begin + step) % len(DAYS) for step in range((end - begin) % len(DAYS) + 1)]


def _highest(numbers: Iterable[int | None]) -> int | None:
    return max((each for each in numbers if each is not None), default=None)
