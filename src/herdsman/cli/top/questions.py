"""Small windows above the page: a question before something is done, and the list of keys."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

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
