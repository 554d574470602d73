"""What every page does: ask again and again, show trouble, filter, and act on keys."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Thread
from typing import ClassVar, cast

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, Static

from herdsman.cli.top.text import Aim, JobAim, WorkerAim, clean
from herdsman.cli.top.widgets import Confirm, Help, Listing
from herdsman.client import Client, calls
from herdsman.errors import HerdsmanError, StoreUnavailable, Unreachable
from herdsman.jobs.wire import RetryIn
from herdsman.ports import Clock
from herdsman.states import JOB, JobState

PATIENCE_S = 3.0
"""A server that is silent for longer is said to be away, before it is certain."""


class Answered(Message):
    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class Refused(Message):
    def __init__(self, error: HerdsmanError) -> None:
        super().__init__()
        self.error = error


class Broken(Message):
    """A mistake of ours: the program must end and show it."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def ask(question: Callable[[], object], tell: Callable[[Message], object]) -> None:
    """Nobody waits for the thread: who leaves, leaves at once."""
    Thread(target=_ask, args=(question, tell), name="top", daemon=True).start()


def _ask(question: Callable[[], object], tell: Callable[[Message], object]) -> None:
    try:
        said: Message = Answered(question())
    except HerdsmanError as error:
        said = Refused(error)
    except Exception as error:  # noqa: BLE001  (the outermost of this thread; the screen raises it)
        said = Broken(error)
    with suppress(RuntimeError):  # the screen was closed meanwhile
        tell(said)


@dataclass(slots=True)
class Contact:
    """How long ago the server said something."""

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
            return f"no answer for {silent}s, this is how it was then: {self.error}"
        if self.error is not None:
            return str(self.error)
        if self.asked_at is not None and now - self.asked_at > PATIENCE_S:
            return f"no answer for {silent}s, this is how it was then"
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


class Acting(Watching):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "cancel_job", "Cancel"),
        Binding("r", "retry_job", "Retry"),
        Binding("d", "drain_worker", "Drain"),
    ]

    def aim(self) -> Aim | None:
        """What the keys act on: the row under the cursor."""
        return self.focused.aim if isinstance(self.focused, Listing) else None

    def whole(self) -> Aim | None:
        """What the keys act on where no row means it: that which the whole page is about."""
        return None

    def action_cancel_job(self) -> None:
        job_id = self._job()
        if job_id is not None:
            question = Confirm(f"Cancel the job {job_id}?", f"the same as: herdsman cancel {job_id}")
            self.program.push_screen(question, self._if_yes(lambda: self._cancelled(job_id)))

    def action_retry_job(self) -> None:
        job_id = self._job()
        if job_id is not None:
            self.do(lambda: self._retried(job_id))

    def action_drain_worker(self) -> None:
        worker_id = self._worker()
        if worker_id is None:
            self.say("put the cursor on a worker: d drains it", "yellow")
            return
        question = Confirm(f"Drain the worker {worker_id}?", "it finishes what it holds, and leaves")
        self.program.push_screen(question, self._if_yes(lambda: self._drained(worker_id)))

    def do(self, deed: Callable[[], str]) -> None:
        ask(deed, self._tell)

    def on_deed(self, message: Deed) -> None:
        match message.outcome:
            case Answered(value=said):
                self.say(str(said))
                self.ask_now()
            case Refused(error=error):
                self.say(str(error), "bold red")
            case Broken(error=error):
                raise error
            case _:
                raise AssertionError(f"a deed ends in no other way: {message.outcome}")

    def _tell(self, outcome: Message) -> bool:
        return self.post_message(Deed(outcome))

    def _if_yes(self, deed: Callable[[], str]) -> Callable[[bool | None], None]:
        return lambda yes: self.do(deed) if yes else self.say("nothing was done", "yellow")

    def _job(self) -> str | None:
        match self.aim() or self.whole():
            case JobAim(job_id) | WorkerAim(jobs=(job_id,)):
                return job_id
            case WorkerAim(jobs=(_, _, *_)):
                self.say("this worker holds several jobs: Enter, then choose one", "yellow")
            case _:
                self.say("put the cursor on a job, or on a worker that holds one", "yellow")
        return None

    def _worker(self) -> str | None:
        aims = (aim for aim in (self.aim(), self.whole()) if isinstance(aim, WorkerAim))
        return next((aim.worker_id for aim in aims), None)

    def _cancelled(self, job_id: str) -> str:
        status = self.session.client.send(calls.cancel(job_id)).status
        if status == JobState.CANCELLED:
            return f"{job_id} is cancelled"
        if status in JOB.terminal:
            return f"{job_id} had ended before: {status}"
        return f"{job_id} is {status}; its worker is told to stop"

    def _retried(self, job_id: str) -> str:
        self.session.client.send(calls.retry(job_id, RetryIn()))
        return f"{job_id} is pending again"

    def _drained(self, worker_id: str) -> str:
        drained = self.session.client.send(calls.drain_worker(worker_id))
        if drained.already:
            return f"{worker_id} was leaving already: {drained.status}"
        return f"{worker_id} is {drained.status}: it finishes what it holds, and leaves"
