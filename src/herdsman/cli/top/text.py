"""Text in a terminal: numbers and names kept short, and tables as lines."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rich.text import Text

from herdsman.fleet.wire import StepOut
from herdsman.text import printable_lines

ELLIPSIS = "…"
_FULL, _FREE = "█", "░"
_EIGHTHS = " ▁▂▃▄▅▆▇█"
# For terminals and files that know no other letters.
ASCII = str.maketrans({"█": "#", "░": ".", "…": "~", "▸": ">"} | dict(zip("▁▂▃▄▅▆▇", "__--==#", strict=True)))

_COLOUR_CODE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")

COLOURS = {
    "active": "green",
    "running": "green",
    "claimed": "cyan",
    "spawning": "cyan",
    "scheduled": "cyan",
    "pending": "yellow",
    "terminating": "yellow",
    "failed": "red",
    "dead_letter": "red",
    "error": "red",
    "cancelled": "dim",
    "done": "dim",
}


def clean(said: str) -> str:
    """Whatever a job or a person wrote, on one line: an escape in it must not reach the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in _COLOUR_CODE.sub("", said))


def span(seconds: float) -> str:
    """`42s`, `7m`, `3h`, `2d`."""
    whole = max(0, round(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def count(number: int) -> str:
    """`1,204`, and from there on in thousands: `12k`, `1.2M`."""
    if number < 10_000:
        return f"{number:,}"
    return f"{number // 1000}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


def money(usd: float) -> str:
    return f"${usd:,.2f}"


def ink(text: str, style: str = "") -> Text:
    """Of this style to its end and no further, whatever is put behind it."""
    return Text.assemble((printable_lines(text), style))


def state(name: str) -> Text:
    return ink(clean(name), COLOURS.get(name, ""))


def middle(name: str, width: int) -> str:
    """The begin and the end of an id: either may be what tells it from others."""
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return name[: width - 1 - tail] + ELLIPSIS + name[len(name) - tail :]


def bar(fraction: float, width: int, style: str = "green") -> Text:
    full = round(min(1.0, max(0.0, fraction)) * width)
    return ink(_FULL * full, style) + ink(_FREE * (width - full), "dim")


def load(fraction: float) -> str:
    """The colour of something that should not run full."""
    return "red" if fraction >= 0.95 else "yellow" if fraction >= 0.8 else "green"


def blocks(fractions: Sequence[float]) -> str:
    """One block for each, as high as it is full; what is not empty is seen."""
    return "".join(_EIGHTHS[max(int(each > 0), min(8, round(each * 8)))] for each in fractions)


def trend(numbers: Sequence[int], width: int) -> str:
    """The newest at the right end, the highest as a full block."""
    if not any(numbers):
        return ""
    points = _thinned(numbers, width)
    return blocks([each / max(numbers) for each in points])


def _thinned(numbers: Sequence[int], width: int) -> Sequence[int]:
    """As many as there is place for, each the highest of those that it stands for."""
    if len(numbers) <= width:
        return numbers
    edges = [len(numbers) * place // width for place in range(width + 1)]
    return [max(numbers[begin:end]) for begin, end in pairwise(edges)]


USUAL = 79
"""What is left of 80 columns beside the mark of the cursor; a wider terminal shows longer names."""


@dataclass(frozen=True, slots=True)
class JobAim:
    job_id: str


@dataclass(frozen=True, slots=True)
class WorkerAim:
    worker_id: str
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueAim:
    type: str
    pool: str


@dataclass(frozen=True, slots=True)
class StepAim:
    step: StepOut


Aim = JobAim | WorkerAim | QueueAim | StepAim
"""What a row is about: where Enter leads, and what the other keys act on."""


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    least: int
    most: int = 0
    """How wide it may become; of the last one, which takes the rest, it is not asked."""
    right: bool = False
    is_id: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    cells: tuple[Text, ...]
    aim: Aim

    def holds(self, needle: str) -> bool:
        inside = self.aim.jobs if isinstance(self.aim, WorkerAim) else ()
        return any(
            needle in text.lower() for text in (self.key, *inside, *(cell.plain for cell in self.cells))
        )


@dataclass(frozen=True, slots=True)
class Table:
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    empty: str
    """What to say when there are no rows."""

    def filtered(self, needle: str) -> "Table":
        wanted = needle.strip().lower()
        if not wanted:
            return self
        kept = tuple(row for row in self.rows if row.holds(wanted))
        return replace(self, rows=kept, empty=f"nothing here contains {clean(needle.strip())!r}")

    def heading(self, width: int) -> Text:
        titles = tuple(Text(column.title) for column in self.columns)
        line = _line(self.columns, titles, width)
        line.stylize("bold")
        return line

    def line(self, row: Row, width: int) -> Text:
        return _line(self.columns, row.cells, width)


def _line(columns: Sequence[Column], cells: Sequence[Text], width: int) -> Text:
    sizes = widths(columns, width)
    fitted = (_fitted(*each) for each in zip(cells, columns, sizes, strict=True))
    line = Text(" ").join(fitted)
    line.truncate(width, overflow="ellipsis", pad=True)
    return line


def widths(columns: Sequence[Column], width: int) -> list[int]:
    """Half of what there is beyond the usual lengthens the columns in their order; the last one has the rest."""
    spare, sizes = max(0, width - USUAL) // 2, list[int]()
    for column in columns[:-1]:
        grown = min(spare, max(0, column.most - column.least))
        spare -= grown
        sizes.append(column.least + grown)
    rest = width - sum(sizes) - len(sizes)
    return [*sizes, max(columns[-1].least, rest)]


def _fitted(cell: Text, column: Column, width: int) -> Text:
    text = Text(middle(cell.plain, width)) if column.is_id else cell.copy()
    text.truncate(width, overflow="ellipsis")
    space = " " * (width - text.cell_len)
    return Text(space) + text if column.right else text + Text(space)
