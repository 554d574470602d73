"""The widgets of `herdsman top`, and what every page does: refresh, show trouble, filter, and act on keys."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Thread
from typing import ClassVar, cast

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Input, Static

from herdsman.cli.fleet import drained
from herdsman.cli.jobs import cancelled
from herdsman.cli.top.command import Aim, JobAim, Row, Table, WorkerAim, ink
from herdsman.client import Client, calls
from herdsman.errors import HerdsmanError, StoreUnavailable, Unreachable
from herdsman.jobs.wire import RetryIn
from herdsman.ports import Clock

MARK = "▸"


class Listing(Widget, can_focus=True):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Down"),
        Binding("k,up", "move(-1)", "Up"),
        Binding("g,home", "move(-1000000)", "First"),
        Binding("G,end", "move(1000000)", "Last"),
        Binding("pagedown,ctrl+d", "leap(1)", "Page down"),
        Binding("pageup,ctrl+u", "leap(-1)", "Page up"),
        Binding("enter", "choose", "Show details"),
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
        """The cursor stays on its row, wherever that has moved."""
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
        # The first line that is shown: the cursor is visible, and no line is left empty that need not be.
        lowest = max(0, self._cursor - self._space + 1)
        self._first = max(lowest, min(self._first, self._cursor, max(0, len(rows) - self._space)))
        heading = Text(" ") + table.heading(width)
        if len(table.rows) > self._space:
            where = f" {self._cursor + 1}/{len(table.rows)}"
            heading.truncate(width + 1 - len(where))
            heading = heading + Text(where, "bold")
        heading.stylize("underline" if self.has_focus else "dim")
        lines = [heading]
        if not rows:
            lines.append(Text(f" {table.empty}", "dim"))
        for number, row in enumerate(rows[self._first : self._first + self._space], start=self._first):
            chosen = number == self._cursor and self.has_focus
            line = Text(MARK if chosen else " ") + table.line(row, width)
            if chosen:
                line.stylize("reverse")
            lines.append(line)
        return Text("\n", no_wrap=True, overflow="crop").join(lines)

    @property
    def _space(self) -> int:
        return max(1, self.size.height - 1)

    def _place(self, key: str | None) -> None:
        rows = self.rows
        same = (number for number, row in enumerate(rows) if row.key == key)
        self._cursor = next(same, max(0, min(self._cursor, len(rows) - 1)))
        self.refresh()


HELP = """\
j k, arrows    down and up; g G first and last, PgUp PgDn
Tab            the next table
Enter          show details of a queue, a worker, a job or a decision
Esc            back, or clear the filter
c              cancel the job (asks)
d              drain the worker: it finishes its job and exits (asks)
r              run a finished job again
s              which jobs are listed: all, waiting, running, failed
/              show only rows that contain a text
p              pause the display, or resume it
?              this list
q, Ctrl-C      quit; jobs and workers are not affected"""


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
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q,question_mark,space", "dismiss(None)", "Close")]

    def compose(self) -> ComposeResult:
        with Vertical(classes="window"):
            yield Static(HELP, markup=False)


PATIENCE_S = 3.0
"""A server that has not answered for longer is reported as unreachable."""


class Outcome(Message):
    """How a question ended, or what a person asked for: with a value, or with an error."""

    def __init__(self, value: object, error: Exception | None = None, *, action: bool = False) -> None:
        super().__init__()
        self.value = value
        self.error = error
        self.action = action


def in_background(question: Callable[[], object], report: Callable[[Outcome], object], *, action: bool = False) -> None:
    """In a daemon thread: quitting does not wait for it."""

    def run() -> None:
        try:
            outcome = Outcome(question(), action=action)
        except Exception as error:  # noqa: BLE001  (the outermost of this thread; the screen raises what is a bug)
            outcome = Outcome(None, error, action=action)
        with suppress(RuntimeError):  # the screen was closed meanwhile
            report(outcome)

    Thread(target=run, name="top", daemon=True).start()


@dataclass(slots=True)
class Contact:
    """How long ago the server last answered."""

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
            return f"no answer for {silent}s, showing the last state: {self.error}"
        if self.error is not None:
            return str(self.error)
        if self.asked_at is not None and now - self.asked_at > PATIENCE_S:
            return f"no answer for {silent}s, showing the last state"
        return ""


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
        """By the server's clock: that of this machine may be wrong."""
        return self.server_time + timedelta(seconds=self.clock.monotonic() - self.heard_at)

    def hears(self, server_time: datetime) -> None:
        self.server_time, self.heard_at = server_time, self.clock.monotonic()


class Watching(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "cancel_job", "Cancel"),
        Binding("r", "retry_job", "Retry"),
        Binding("d", "drain_worker", "Drain"),
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

    def read(self) -> object:
        """What is asked every second, in a thread."""
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
        yield Input(placeholder="show only rows that contain …   Enter keeps it, Esc clears it", id="filter")
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
        if self.contact.asks(self.session.clock.monotonic()):
            in_background(self.read, self.post_message)

    def on_outcome(self, message: Outcome) -> None:
        error = message.error
        if error is not None and not isinstance(error, HerdsmanError):
            raise error  # a bug: the program must end and show it
        if message.action:
            self.say(str(message.value if error is None else error), "green" if error is None else "bold red")
            if error is None:
                self.ask_now()
            return
        if error is None:
            self.contact.hears(self.session.clock.monotonic())
            self.answer(message.value)
        else:
            self.contact.fails(error)
        self.show_banner()

    def show_banner(self) -> None:
        trouble = self.contact.trouble(self.session.clock.monotonic())
        paused = ["the display is paused; p resumes it"] if self.session.paused else []
        needle = self.query_one("#filter", Input).value
        narrowed = [f"only rows that contain {needle!r}; Esc clears the filter"] if needle else []
        notices = [ink(each, "yellow") for each in (*paused, *narrowed, *self.notices())]
        lines = ([ink(trouble, "bold red")] if trouble else []) + notices
        self._put("#banner", Text("\n").join(lines))

    def say(self, sentence: str, style: str = "green") -> None:
        self._put("#said", ink(sentence, style))
        self._said_until = self.session.clock.monotonic() + SAID_FOR_S

    @property
    def program(self) -> App[None]:
        return cast("App[None]", self.app)  # pyright: ignore[reportUnknownMemberType]  (textual leaves it open)

    def _put(self, where: str, text: Text) -> None:
        """Hidden where there is no text."""
        place = self.query_one(where, Static)
        place.set_class(bool(text), "full")
        place.update(text)

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
        for listing in self.query(Listing):
            listing.narrow(message.value)
        self.show_banner()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        self._leave_filter(message.input)

    def _leave_filter(self, field: Input) -> None:
        field.remove_class("open")
        if self.focused is field:
            self.set_focus(self._came_from)

    # What the keys act on.

    def aim(self) -> Aim | None:
        """What the keys act on: the row under the cursor."""
        return self.focused.aim if isinstance(self.focused, Listing) else None

    def whole(self) -> Aim | None:
        """What the keys act on where no row is chosen: the subject of the page."""
        return None

    def action_cancel_job(self) -> None:
        if (job_id := self._job()) is not None:
            self._confirm(
                Confirm(f"Cancel the job {job_id}?", f"the same as: herdsman cancel {job_id}"),
                lambda: cancelled(job_id, self.session.client.send(calls.cancel(job_id)).status),
            )

    def action_retry_job(self) -> None:
        if (job_id := self._job()) is not None:

            def retried() -> str:
                self.session.client.send(calls.retry(job_id, RetryIn()))
                return f"{job_id} is pending again"

            in_background(retried, self.post_message, action=True)

    def action_drain_worker(self) -> None:
        aims = (aim for aim in (self.aim(), self.whole()) if isinstance(aim, WorkerAim))
        worker_id = next((aim.worker_id for aim in aims), None)
        if worker_id is None:
            self.say("put the cursor on a worker: d drains it", "yellow")
            return
        self._confirm(
            Confirm(f"Drain the worker {worker_id}?", "it finishes its job and exits"),
            lambda: drained(self.session.client.send(calls.drain_worker(worker_id))),
        )

    def _confirm(self, question: Confirm, action: Callable[[], str]) -> None:
        def answered(yes: bool | None) -> None:
            if yes:
                in_background(action, self.post_message, action=True)
            else:
                self.say("nothing was done", "yellow")

        self.program.push_screen(question, answered)

    def _job(self) -> str | None:
        match self.aim() or self.whole():
            case JobAim(job_id) | WorkerAim(jobs=(job_id,)):
                return job_id
            case WorkerAim(jobs=(_, _, *_)):
                self.say("this worker runs several jobs: press Enter, then choose one", "yellow")
            case _:
                self.say("put the cursor on a job, or on a worker that runs one", "yellow")
        return None
