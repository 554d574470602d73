"""The pages behind the first one: each shows what its reader reads, every second anew."""

from collections.abc import Callable, Iterable
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from herdsman.cli.top.acting import Acting
from herdsman.cli.top.listing import Listing
from herdsman.cli.top.readers import Look, reader
from herdsman.cli.top.table import Aim, Column, QueueAim, Table, WorkerAim
from herdsman.cli.top.watching import Session


class Reading(VerticalScroll):
    """Text that is longer than the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down"),
        Binding("k", "scroll_up", "Up"),
        Binding("g", "scroll_home", "Begin"),
        Binding("G", "scroll_end", "End"),
    ]


class Page(Acting):
    keys: ClassVar[str] = " Esc back  Enter look  c cancel  d drain  r retry  p pause  ? help  q quit"

    def __init__(self, session: Session, aim: Aim) -> None:
        super().__init__(session)
        self._about = aim
        self._read = reader(aim, session.client, session.now)
        self._whole: Aim | None = None

    def body(self) -> Iterable[Widget]:
        if isinstance(self._about, WorkerAim | QueueAim):
            waiting = Table((Column("JOB", 20),), (), "being read …")
            yield Listing(waiting, id="few" if isinstance(self._about, WorkerAim) else "many")
        if not isinstance(self._about, QueueAim):
            with Reading():
                yield Static(Text("being read …", "dim"), id="text")

    def question(self) -> Callable[[], object] | None:
        return self._read

    def answer(self, value: object) -> None:
        assert isinstance(value, Look), "the reader was asked, nobody else"
        self._whole = value.aim
        self.query_one("#head", Static).update(value.title)
        if value.text is not None:
            self.query_one("#text", Static).update(value.text)
        if value.table is not None:
            self.query_one(Listing).show(value.table)

    def whole(self) -> Aim | None:
        return self._whole

    def on_listing_chosen(self, message: Listing.Chosen) -> None:
        self.program.push_screen(Page(self.session, message.aim))
