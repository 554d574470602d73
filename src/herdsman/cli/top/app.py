"""The program itself: its first page, the pages behind it, and how it looks."""

from collections.abc import Callable, Iterable
from typing import ClassVar

from rich.text import Text
from textual.app import App
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from herdsman.cli.top.command import head
from herdsman.cli.top.detail import Look, reader
from herdsman.cli.top.rows import CHOICES, Seen, look, tables
from herdsman.cli.top.screens import Acting, Session
from herdsman.cli.top.text import Aim, Column, QueueAim, Table, WorkerAim
from herdsman.cli.top.widgets import Listing
from herdsman.client import Client
from herdsman.ports import Clock


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


TABLES = ("queue", "workers", "jobs", "decisions")


class Herd(Acting):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("s", "choose", "States")]
    keys: ClassVar[str] = " Tab next  Enter look  c cancel  d drain  r retry  / filter  ? help  q quit"

    def __init__(self, session: Session, first: Seen) -> None:
        super().__init__(session)
        self._seen = first
        self._choice = first.choice

    def body(self) -> Iterable[Widget]:
        for name, table in zip(TABLES, tables(self._seen), strict=True):
            yield Listing(table, id=name)

    def question(self) -> Callable[[], object] | None:
        choice = self._choice
        return lambda: look(self.session.client, choice)

    def answer(self, value: object) -> None:
        assert isinstance(value, Seen), "nothing else was asked for"
        self._seen = value
        self.session.hears(value.overview.now)
        for name, table in zip(TABLES, tables(value), strict=True):
            self.query_one(f"#{name}", Listing).show(table)
        self._show_head()

    def notices(self) -> list[str]:
        return list(self._seen.overview.holds)

    def on_resize(self) -> None:
        self._show_head()

    def _show_head(self) -> None:
        lines = head(self._seen, self.session.place, self.size.width)
        self.query_one("#head", Static).update(Text("\n", no_wrap=True).join(lines))

    def on_listing_chosen(self, message: Listing.Chosen) -> None:
        self.program.push_screen(Page(self.session, message.aim))

    def action_choose(self) -> None:
        """The next choice of jobs; the old list stays until the new one has come."""
        self._choice = CHOICES[(CHOICES.index(self._choice) + 1) % len(CHOICES)]
        self.ask_now()


class Top(App[None]):
    # Only colours of the terminal's own: they fit its background, and a slow line.
    CSS = """
    Screen { background: ansi_default; color: ansi_default; layout: vertical; overflow: hidden; }
    #head { height: auto; }
    #banner, #said { height: auto; max-height: 4; display: none; }
    #banner.full, #said.full { display: block; }
    #keys { height: 1; }
    #queue { height: 4fr; }
    #workers { height: 6fr; }
    #jobs { height: 5fr; }
    #decisions { height: 6fr; }
    #few { height: 4; }
    #many { height: 1fr; }
    Reading { height: 1fr; scrollbar-size-vertical: 1; background: ansi_default; }
    #filter { display: none; height: 1; border: none; padding: 0 1; background: ansi_default; }
    #filter.open { display: block; }
    ModalScreen { align: center middle; background: transparent; }
    .window { width: auto; max-width: 78; height: auto; border: round ansi_default; padding: 0 1; background: ansi_default; }
    .window Static { width: auto; max-width: 74; }
    .faint { text-style: dim; }
    """
    ENABLE_COMMAND_PALETTE = False
    TITLE = "herdsman top"

    def __init__(self, client: Client, place: str, first: Seen, clock: Clock) -> None:
        super().__init__(ansi_color=True)
        self.session = Session(client, place, clock, first.overview.now, clock.monotonic())
        self._first = first

    def get_default_screen(self) -> Screen[None]:
        return Herd(self.session, self._first)
