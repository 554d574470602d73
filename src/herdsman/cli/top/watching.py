"""What every page has: a question that is asked again and again, a banner, a filter, and the keys that act."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, cast

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, Static

from herdsman.cli.top.asking import Answered, Broken, Contact, Refused, ask
from herdsman.cli.top.listing import Listing
from herdsman.cli.top.questions import Help
from herdsman.cli.top.words import clean
from herdsman.client import Client
from herdsman.ports import Clock

SAID_FOR_S = 8.0


@dataclass(slots=True)
class Session:
    """What the pages share."""

    client: Client
    place: str
    clock: Clock
    server_time: datetime
    heard_at: float
    every: timedelta = timedelta(seconds=1)
    paused: bool = False

    def now(self) -> datetime:
        """As the server's clock has it: the one of this machine may be wrong."""
        return self.server_time + timedelta(seconds=self.clock.monotonic() - self.heard_at)

    def hears(self, server_time: datetime) -> None:
        self.server_time, self.heard_at = server_time, self.clock.monotonic()


class Watching(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "pause", "Pause"),
        Binding("slash", "filter", "Filter"),
        Binding("escape,backspace", "back", "Back"),
        Binding("question_mark", "help", "Help"),
        Binding("q", "app.quit", "Quit"),
        Binding("ctrl+c", "app.quit", "Quit", priority=True),
    ]
    keys: ClassVar[str]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.contact = Contact(session.clock.monotonic())
        self._said_until = 0.0
        self._came_from: Widget | None = None

    # A page fills these in.

    def body(self) -> Iterable[Widget]:
        raise NotImplementedError

    def question(self) -> Callable[[], object] | None:
        """What is asked every second, in a thread; None when there is nothing to ask."""
        raise NotImplementedError

    def answer(self, value: object) -> None:
        raise NotImplementedError

    def notices(self) -> list[str]:
        """What the banner says when nothing is wrong."""
        return []

    # And has these from here.

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="banner")
        yield from self.body()
        yield Static(id="said")
        yield Input(placeholder="show only rows that contain …   Enter keeps it, Esc ends it", id="filter")
        yield Static(Text(self.keys, "dim", no_wrap=True, overflow="ellipsis"), id="keys")

    def on_mount(self) -> None:
        self.set_interval(self.session.every.total_seconds(), self.tick)
        self.tick()

    def tick(self) -> None:
        if self.is_current and not self.session.paused:
            self.ask_now()
        if self.session.clock.monotonic() > self._said_until:
            self._put("#said", Text())
        self.show_banner()

    def ask_now(self) -> None:
        question = self.question()
        if question is not None and self.contact.asks(self.session.clock.monotonic()):
            ask(question, self.post_message)

    def on_answered(self, message: Answered) -> None:
        self.contact.hears(self.session.clock.monotonic())
        self.answer(message.value)
        self.show_banner()

    def on_refused(self, message: Refused) -> None:
        self.contact.fails(message.error)
        self.show_banner()

    def on_broken(self, message: Broken) -> None:
        raise message.error

    def show_banner(self) -> None:
        trouble = self.contact.trouble(self.session.clock.monotonic())
        notices = [Text(clean(each), "yellow") for each in self._notices()]
        lines = ([Text(clean(trouble), "bold red")] if trouble else []) + notices
        self._put("#banner", Text("\n").join(lines))

    def _notices(self) -> list[str]:
        paused = ["the picture is held still; p goes on"] if self.session.paused else []
        needle = self.query_one("#filter", Input).value
        narrowed = [f"only rows that contain {needle!r}; Esc ends it"] if needle else []
        return [*paused, *narrowed, *self.notices()]

    def say(self, sentence: str, style: str = "green") -> None:
        self._put("#said", Text(clean(sentence), style))
        self._said_until = self.session.clock.monotonic() + SAID_FOR_S

    @property
    def program(self) -> App[None]:
        return cast("App[None]", self.app)  # pyright: ignore[reportUnknownMemberType]  (textual leaves it open)

    def _put(self, where: str, text: Text) -> None:
        """Without text it takes no line."""
        place = self.query_one(where, Static)
        place.set_class(bool(text), "full")
        place.update(text)

    def listings(self) -> Iterable[Listing]:
        return self.query(Listing)

    def action_pause(self) -> None:
        self.session.paused = not self.session.paused
        self.tick()

    def action_help(self) -> None:
        self.program.push_screen(Help())

    def action_filter(self) -> None:
        self._came_from = self.focused
        field = self.query_one("#filter", Input)
        field.add_class("open")
        field.focus()

    def action_back(self) -> None:
        field = self.query_one("#filter", Input)
        if field.value or field.has_class("open"):
            field.value = ""
            self._leave_filter(field)
        elif len(self.program.screen_stack) > 1:
            self.dismiss(None)

    def on_input_changed(self, message: Input.Changed) -> None:
        for listing in self.listings():
            listing.narrow(message.value)
        self.show_banner()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        self._leave_filter(message.input)

    def _leave_filter(self, field: Input) -> None:
        field.remove_class("open")
        if self.focused is field:
            self.set_focus(self._came_from)


class Deed(Message):
    """What came of something that was done."""

    def __init__(self, outcome: Message) -> None:
        super().__init__()
        self.outcome = outcome
