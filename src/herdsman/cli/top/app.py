"""The program behind `herdsman top`: the overview, and a page for one job, worker, queue or decision."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from rich.table import Table as Letter
from rich.text import Text
from textual.app import App
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from herdsman.cli.output import span
from herdsman.cli.top import command
from herdsman.cli.top.command import bar, ink, status
from herdsman.cli.top.screens import Listing, Session, Watching
from herdsman.client import Client, calls
from herdsman.explain.wire import EtaOut, WhyOut
from herdsman.fleet.wire import FleetWorkerOut, GpuBarOut
from herdsman.jobs.wire import AttemptOut
from herdsman.ports import Clock
from herdsman.states import JOB


class Reading(VerticalScroll):
    """Text that is longer than the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down"),
        Binding("k", "scroll_up", "Up"),
        Binding("g", "scroll_home", "Begin"),
        Binding("G", "scroll_end", "End"),
    ]


class Page(Watching):
    keys: ClassVar[str] = " Esc back  Enter open  c cancel  d drain  r retry  p pause  ? help  q quit"

    def __init__(self, session: Session, aim: command.Aim) -> None:
        super().__init__(session)
        self._about = aim
        self._reader = Reader(aim, session.client, session.now)
        self._whole: command.Aim | None = None

    def body(self) -> Iterable[Widget]:
        if isinstance(self._about, command.WorkerAim | command.QueueAim):
            waiting = command.Table((command.Column("JOB", 20),), (), "loading …")
            yield Listing(waiting, id="few" if isinstance(self._about, command.WorkerAim) else "many")
        if not isinstance(self._about, command.QueueAim):
            with Reading():
                yield Static(Text("loading …", "dim"), id="text")

    def read(self) -> "Details":
        return self._reader()

    def answer(self, value: object) -> None:
        assert isinstance(value, Details)
        self._whole = value.aim
        self.query_one("#head", Static).update(value.title)
        if value.text is not None:
            self.query_one("#text", Static).update(value.text)
        if value.table is not None:
            self.query_one(Listing).show(value.table)

    def whole(self) -> command.Aim | None:
        return self._whole


TABLES = ("queue", "workers", "jobs", "decisions")


class Overview(Watching):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("s", "choose", "States")]
    keys: ClassVar[str] = " Tab next  Enter open  c cancel  d drain  r retry  / filter  ? help  q quit"

    def __init__(self, session: Session, first: command.Snapshot) -> None:
        super().__init__(session)
        self._snapshot = first
        self._choice = first.choice

    def body(self) -> Iterable[Widget]:
        for name, table in zip(TABLES, command.tables(self._snapshot), strict=True):
            yield Listing(table, id=name)

    def read(self) -> command.Snapshot:
        return command.observe(self.session.client, self._choice)

    def answer(self, value: object) -> None:
        assert isinstance(value, command.Snapshot)
        self._snapshot = value
        self.session.hears(value.overview.now)
        for name, table in zip(TABLES, command.tables(value), strict=True):
            self.query_one(f"#{name}", Listing).show(table)
        self._show_head()

    def notices(self) -> list[str]:
        return list(self._snapshot.overview.holds)

    def on_resize(self) -> None:
        self._show_head()

    def _show_head(self) -> None:
        lines = command.head(self._snapshot, self.session.place, self.size.width)
        self.query_one("#head", Static).update(Text("\n", no_wrap=True).join(lines))

    def action_choose(self) -> None:
        """The next choice of jobs; the old list stays until the new one has arrived."""
        names = list(command.CHOICES)
        self._choice = names[(names.index(self._choice) + 1) % len(names)]
        self.ask_now()


class Top(App[None]):
    CSS_PATH = "top.tcss"
    ENABLE_COMMAND_PALETTE = False
    TITLE = "herdsman top"

    def __init__(self, client: Client, place: str, first: command.Snapshot, clock: Clock) -> None:
        super().__init__(ansi_color=True)
        self.session = Session(client, place, clock, first.overview.now, clock.monotonic())
        self._first = first

    def get_default_screen(self) -> Screen[None]:
        return Overview(self.session, self._first)

    def on_listing_chosen(self, message: Listing.Chosen) -> None:
        self.push_screen(Page(self.session, message.aim))


SHOWN_LINES = 40
_NAMES = 7


def _when(eta: EtaOut) -> Iterable[Text]:
    if eta.position is not None:
        yield ink(f"number {eta.position} in the queue of its pool")
    for what, guess in (("starts", eta.start), ("ends", eta.finish)):
        if guess is not None:
            yield ink(f"{what} in {span(guess.p50)} (50% likely), {span(guess.p80)} (80% likely)")
    yield ink(eta.basis, "dim")


def _attempt(each: AttemptOut, now: datetime) -> Text:
    end = each.outcome or f"running for {_ago(each.claimed_at, now)}"
    error = ink(f": {each.error}", "red") if each.error else Text()
    return ink(f"{each.attempt:>2} on {each.worker_id}, {end}") + error


def _worker_lines(worker: FleetWorkerOut, now: datetime) -> list[Text]:
    beat = "never" if worker.last_heartbeat is None else f"{_ago(worker.last_heartbeat, now)} ago"
    price = "" if worker.cost_per_hour is None else f", {command.money(worker.cost_per_hour)}/h"
    machine = " on ".join(each for each in (worker.instance_type, worker.node_id) if each)
    lines = [
        status(worker.status) + ink(f" for {_ago(worker.since, now)}, {worker.reason}"),
        ink(f"pool {worker.pool}, {_ago(worker.created_at, now)} old, last heartbeat {beat}"),
        ink(f"{machine or 'a machine of unknown type'}{price}"),
    ]
    return [*lines, ink(worker.error, "red")] if worker.error else lines


def _gpu(gpu: GpuBarOut) -> Text:
    busy = "" if gpu.busy_pct is None else f"  {gpu.busy_pct:.0f}% busy"
    place = "-" if gpu.index is None else str(gpu.index)
    fraction = gpu.used_mb / max(1, gpu.total_mb)
    drawn = bar(fraction, 20, command.load(fraction)) + command.gpu_memory([gpu])[8:]
    return ink(f"{place:>2} ") + drawn + ink(f"{busy}  {gpu.name or gpu.uuid}")


def _steps(why: WhyOut) -> Iterable[Text]:
    for step in why.history:
        space = " " * (13 - len(step.to_status))
        what = ink(f"{space}{step.reason:<18} {step.actor}")
        yield ink(f"{step.ts:%H:%M:%S}  ") + status(step.to_status) + what


def _letter(*parts: tuple[str, Iterable[Text]]) -> Letter:
    """A name at the left of each part; one without lines is omitted."""
    letter = Letter.grid(padding=(0, 1))
    letter.add_column(style="bold", width=_NAMES)
    letter.add_column(ratio=1, overflow="fold")
    for name, lines in parts:
        text = Text("\n").join(lines)
        if text:
            letter.add_row(name, text)
    return letter


def _ago(then: datetime, now: datetime) -> str:
    return span((now - then).total_seconds())


KEPT_LINES = 200
MOST_LOG_PAGES = 20
"""Read at once; the rest of a long log follows a second later."""
MOST_JOBS = 200


@dataclass(frozen=True, slots=True)
class Details:
    title: Text
    text: Letter | None = None
    table: command.Table | None = None
    aim: command.Aim | None = None
    """The subject of the page."""


@dataclass(slots=True)
class Reader:
    """Reads what a page shows, again and again; of a log only what is new."""

    aim: command.Aim
    client: Client
    now: Callable[[], datetime]
    _since: str | None = None
    _lines: deque[str] = field(default_factory=lambda: deque[str](maxlen=KEPT_LINES))

    def __call__(self) -> Details:
        match self.aim:
            case command.JobAim(job_id):
                return self._job(job_id)
            case command.WorkerAim(worker_id):
                return self._worker(worker_id)
            case command.QueueAim(kind, pool):
                jobs = self.client.send(calls.jobs(kind=kind, pool=pool, limit=MOST_JOBS)).jobs
                title = _title("jobs of type", kind) + ink(f" in pool {pool}, newest first")
                return Details(title, table=command.job_table(jobs, self.now()))
            case command.StepAim(step):
                often = f", the same {step.times} times in a row" if step.times > 1 else ""
                numbers = (ink(f"{name}  {value!s}") for name, value in step.numbers.items())
                done = ink("done" if step.done else "not done", "green" if step.done else "yellow")
                text = _letter(
                    ("WHAT", [ink(step.words)]),
                    ("WHEN", [ink(f"{_ago(step.at, self.now())} ago, cycle {step.cycle}{often}")]),
                    ("REASON", [ink(f"{step.code}: {step.reason}")]),
                    ("NUMBERS", numbers),
                    ("OUTCOME", [done + ink(f" {step.said}")]),
                )
                return Details(ink("a decision of the control loop", "bold"), text)

    def _job(self, job_id: str) -> Details:
        job, why = self.client.send(calls.job(job_id)), self.client.send(calls.why("job", job_id))
        tries = self.client.send(calls.attempts(job_id)).attempts
        eta = None if job.status in JOB.terminal else self.client.send(calls.eta(job_id))
        for _ in range(MOST_LOG_PAGES):
            page = self.client.send(calls.logs(job_id, self._since))
            self._since = page.next
            self._lines.extend(line for piece in page.pieces for line in piece.lines)
            if page.ended or not page.pieces:
                break
        now = self.now()
        tried = f"attempt {job.attempts - job.interruptions} of {job.max_attempts}"
        about = f"  {job.type} in pool {job.pool}, {tried}, {_ago(job.created_at, now)} old"
        job_line, note = status(job.status) + ink(about), job.progress_note or ""
        done = [] if job.progress is None else [bar(job.progress, 40) + ink(f" {job.progress:4.0%}  {note}")]
        text = _letter(
            ("STATUS", [job_line, *done]),
            ("ERROR", [ink(job.last_error, "red")] if job.last_error else ()),
            ("REASON", (ink(each) for each in why.because)),
            ("WHEN", () if eta is None else _when(eta)),
            ("TRIES", (_attempt(each, now) for each in tries)),
            ("STEPS", _steps(why)),
            ("LOG", (ink(each.expandtabs()) for each in list(self._lines)[-SHOWN_LINES:])),
        )
        return Details(_title("job", job_id), text, aim=self.aim)

    def _worker(self, worker_id: str) -> Details:
        fleet, why = self.client.send(calls.fleet()), self.client.send(calls.why("worker", worker_id))
        worker = next((each for each in fleet.workers if each.worker_id == worker_id), None)
        held = () if worker is None else worker.jobs
        text = _letter(
            ("STATUS", [status(why.status)] if worker is None else _worker_lines(worker, self.now())),
            ("REASON", (ink(each) for each in why.because)),
            ("GPUS", () if worker is None else (_gpu(each) for each in worker.gpus)),
            ("STEPS", _steps(why)),
        )
        aim = command.WorkerAim(worker_id, tuple(job.job_id for job in held))
        return Details(_title("worker", worker_id), text, command.held_table(held, self.now()), aim)


def _title(kind: str, name: str) -> Text:
    return ink(f"{kind} ", "bold") + ink(name, "bold cyan")
