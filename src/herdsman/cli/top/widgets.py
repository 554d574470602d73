"""A table with a cursor, and small windows above the page."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from herdsman.cli.top.text import Aim, Row, Table

MARK = "▸"


class Listing(Widget, can_focus=True):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Down"),
        Binding("k,up", "move(-1)", "Up"),
        Binding("g,home", "move(-1000000)", "First"),
        Binding("G,end", "move(1000000)", "Last"),
        Binding("pagedown,ctrl+d", "leap(1)", "Page down"),
        Binding("pageup,ctrl+u", "leap(-1)", "Page up"),
        Binding("enter", "choose", "Look closer"),
    ]

    class Chosen(Message):
        def __init__(self, aim: Aim) -> None:
            super().__init__()
            self.aim = aim

    def __init__(self, table: Table, *, id: str | None = None) -> None:  # noqa: A002  (textual's word)
        super().__init__(id=id)
        self._table = table
        self._needle = ""
        self._cursor = 0
        self._first = 0

    @property
    def rows(self) -> tuple[Row, ...]:
        return self._table.filtered(self._needle).rows

    @property
    def aim(self) -> Aim | None:
        return self.rows[self._cursor].aim if self.rows else None

    def show(self, table: Table) -> None:
        """The cursor stays on its row, wherever that is now."""
        before = self.rows[self._cursor].key if self.rows else None
        self._table = table
        self._place(before)

    def narrow(self, needle: str) -> None:
        before = self.rows[self._cursor].key if self.rows else None
        self._needle = needle
        self._place(before)

    def action_move(self, by: int) -> None:
        self._cursor = max(0, min(len(self.rows) - 1, self._cursor + by))
        self.refresh()

    def action_leap(self, pages: int) -> None:
        self.action_move(pages * self._space)

    def action_choose(self) -> None:
        if self.aim is not None:
            self.post_message(self.Chosen(self.aim))

    def render(self) -> Text:
        width, rows = self.size.width - 1, self.rows
        table = self._table.filtered(self._needle)
        self._first = self._scrolled(len(rows))
        lines = [self._heading(table, width)]
        if not rows:
            lines.append(Text(f" {table.empty}", "dim"))
        for number, row in enumerate(rows[self._first : self._first + self._space], start=self._first):
            lines.append(self._line(table.line(row, width), number))
        return Text("\n", no_wrap=True, overflow="crop").join(lines)

    @property
    def _space(self) -> int:
        return max(1, self.size.height - 1)

    def _place(self, key: str | None) -> None:
        rows = self.rows
        same = (number for number, row in enumerate(rows) if row.key == key)
        self._cursor = next(same, max(0, min(self._cursor, len(rows) - 1)))
        self.refresh()

    def _scrolled(self, rows: int) -> int:
        """The first line that is shown: the cursor is in sight, and no line is left empty that need not be."""
        lowest = max(0, self._cursor - self._space + 1)
        return max(lowest, min(self._first, self._cursor, max(0, rows - self._space)))

    def _heading(self, table: Table, width: int) -> Text:
        line = Text(" ") + table.heading(width)
        if len(table.rows) > self._space:
            where = f" {self._cursor + 1}/{len(table.rows)}"
            line.truncate(width + 1 - len(where))
            line = line + Text(where, "bold")
        line.stylize("underline" if self.has_focus else "dim")
        return line

    def _line(self, line: Text, number: int) -> Text:
        if number != self._cursor or not self.has_focus:
            return Text(" ") + line
        marked = Text(MARK) + line
        marked.stylize("reverse")
        return marked


HELP = """\
j k, arrows    down and up; g G first and last, PgUp PgDn
Tab            the next table
Enter          look closer: a queue, a worker, a job, a decision
Esc            back, or an end to the filter
c              cancel the job (asks)
d              drain the worker: it finishes its job and leaves (asks)
r              run a job that has ended once more
s              which jobs are listed: all, waiting, running, failed
/              show only rows that contain a text
p              hold the picture still, or go on
?              this list
q, Ctrl-C      leave; nothing that runs is touched"""


class Confirm(ModalScreen[bool]):
    """Only y means yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape,enter,q", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str, note: str) -> None:
        super().__init__()
        self._question = question
        self._note = note

    def compose(self) -> ComposeResult:
        with Vertical(classes="window"):
            yield Static(self._question, markup=False)
            yield Static(self._note, markup=False, classes="faint")
            yield Static("y yes   n no", markup=False)


class Help(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q,question_mark,space", "dismiss(None)", "Close")
    ]

    def compose(self) -> ComposeResult:
        with Vertical(classes="window"):
            yield Static(HELP, markup=False)
