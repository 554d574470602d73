"""Tables as lines of text: the same in the terminal, in a pipe and in a test."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.text import Text

from herdsman.cli.top.words import clean, middle
from herdsman.wire.fleet import StepOut

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
