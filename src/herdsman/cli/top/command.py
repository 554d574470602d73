"""`herdsman top`: what it reads, the tables, bars and short numbers that it makes of it, one frame as plain text, and the
start of the live view.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from shutil import get_terminal_size
from typing import Annotated

import typer
from rich.text import Text

from herdsman.cli.connect import connect
from herdsman.cli.errors import needed
from herdsman.cli.output import echo, span
from herdsman.client import Client, calls
from herdsman.fleet.wire import FleetOut, FleetWorkerOut, GpuBarOut, HeldOut, OverviewOut, StepOut
from herdsman.jobs.wire import JobOut
from herdsman.ports import SystemClock
from herdsman.states import HELD, JobStatus
from herdsman.telemetry.logs import configure_logs

ELLIPSIS = "…"
_FULL, _FREE = "█", "░"
_EIGHTHS = " ▁▂▃▄▅▆▇█"
# For terminals and files that know no other letters.
ASCII = str.maketrans({"█": "#", "░": ".", "…": "~", "▸": ">"} | dict(zip("▁▂▃▄▅▆▇", "__--==#", strict=True)))

_COLOUR_CODE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")

_COLOURED = {
    "green": ("active", "running"),
    "cyan": ("claimed", "spawning", "scheduled"),
    "yellow": ("pending", "terminating"),
    "red": ("failed", "dead_letter", "error"),
    "dim": ("cancelled", "done"),
}
COLOURS = {status: colour for colour, statuses in _COLOURED.items() for status in statuses}


def clean(said: str) -> str:
    """Foreign text on one line, without control characters, which must not reach the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in _COLOUR_CODE.sub("", said))


def count(number: int) -> str:
    """`1,204`, and from there on in thousands: `12k`, `1.2M`."""
    if number < 10_000:
        return f"{number:,}"
    return f"{number // 1000}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


def money(usd: float) -> str:
    return f"${usd:,.2f}"


def ink(text: str, style: str = "") -> Text:
    """Clean text whose style ends with it, whatever is appended."""
    return Text.assemble((clean(text), style))


def status(name: str) -> Text:
    return ink(name, COLOURS.get(name, ""))


def middle(name: str, width: int) -> str:
    """The beginning and the end of an id: either may distinguish it."""
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
    """One block for each, as high as it is full; at least one eighth where it is not empty."""
    return "".join(_EIGHTHS[max(int(each > 0), min(8, round(each * 8)))] for each in fractions)


def trend(numbers: Sequence[int], width: int) -> str:
    """The newest at the right end, the highest as a full block."""
    if not any(numbers):
        return ""
    points = numbers
    if len(numbers) > width:  # each the highest of those that it stands for
        edges = [len(numbers) * place // width for place in range(width + 1)]
        points = [max(numbers[begin:end]) for begin, end in pairwise(edges)]
    return blocks([each / max(numbers) for each in points])


USUAL = 79
"""80 columns without the cursor mark; a wider terminal shows longer names."""


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
    """How wide it may become; the last one takes the rest anyway."""
    right: bool = False
    is_id: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    cells: tuple[Text, ...]
    aim: Aim

    def holds(self, needle: str) -> bool:
        inside = self.aim.jobs if isinstance(self.aim, WorkerAim) else ()
        return any(needle in one.lower() for one in (self.key, *inside, *(cell.plain for cell in self.cells)))


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
    fitted: list[Text] = []
    for cell, column, size in zip(cells, columns, widths(columns, width), strict=True):
        text = Text(middle(cell.plain, size)) if column.is_id else cell.copy()
        text.truncate(size, overflow="ellipsis")
        space = Text(" " * (size - text.cell_len))
        fitted.append(space + text if column.right else text + space)
    line = Text(" ").join(fitted)
    line.truncate(width, overflow="ellipsis", pad=True)
    return line


def widths(columns: Sequence[Column], width: int) -> list[int]:
    """Half of the width beyond the usual widens the columns in order; the last one gets the rest."""
    spare, sizes = max(0, width - USUAL) // 2, list[int]()
    for column in columns[:-1]:
        grown = min(spare, max(0, column.most - column.least))
        spare -= grown
        sizes.append(column.least + grown)
    rest = width - sum(sizes) - len(sizes)
    return [*sizes, max(columns[-1].least, rest)]


MOST_JOBS = 50


ALL = "all"
CHOICES: dict[str, tuple[JobStatus, ...]] = {
    ALL: (),
    "waiting": (JobStatus.PENDING, JobStatus.SCHEDULED),
    "running": HELD,
    "failed": (JobStatus.FAILED, JobStatus.DEAD_LETTER),
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    overview: OverviewOut
    fleet: FleetOut
    jobs: Sequence[JobOut]
    choice: str


def observe(client: Client, choice: str = ALL) -> Snapshot:
    jobs = client.send(calls.jobs(statuses=CHOICES[choice], limit=MOST_JOBS)).jobs
    return Snapshot(client.send(calls.overview()), client.send(calls.fleet()), jobs, choice)


TREND = 24
_BAR = 8
_SHORT_ID = 11
_POOL = Column("POOL", 9, 20)
_AGE = Column("AGE", 4, right=True)

_QUEUE = (
    Column("QUEUE", 20, 40),
    Column("POOL", 16, 30),
    Column("JOBS", 6, right=True),
    Column("OLDEST", 7, right=True),
    Column("LAST HOUR", TREND),
)
_WORKERS = (Column("WORKER", 13, 50, is_id=True), _POOL, Column("STATUS", 11), Column("GPU MEMORY", 16))
_HELD = (Column("JOB", 24, 40, is_id=True), Column("STATUS", 11), _AGE, Column("PROGRESS, TYPE, NOTE", 30))
_JOBS = (Column("TYPE", 12, 24), Column("STATUS", 11), _AGE, Column("PROGRESS, OR REASON", 30))
_DECISIONS = (Column("AGO", 4, right=True), Column("", 4, right=True), Column("DECISION", 40))


def gpu_memory(gpus: Sequence[GpuBarOut]) -> Text:
    """One GPU as a bar; of several each is a block, and the numbers are those of all."""
    if not gpus:
        return ink("-", "dim")
    used, total = sum(each.used_mb for each in gpus), max(1, sum(each.total_mb for each in gpus))
    fullest = max(_fraction(each) for each in gpus)
    if len(gpus) == 1:
        drawn = bar(fullest, _BAR, load(fullest))
    else:
        drawn = ink(blocks([_fraction(each) for each in gpus[:_BAR]]).ljust(_BAR), load(fullest))
    return drawn + ink(f" {used / 1024:.0f}/{total / 1024:.0f}G")


def _fraction(gpu: GpuBarOut) -> float:
    return gpu.used_mb / max(1, gpu.total_mb)


def _work(each: FleetWorkerOut) -> Text:
    if not each.jobs:
        return ink(each.error, "red") if each.error else ink(each.reason, "dim")
    first, *others = each.jobs
    more = ink(f"+{len(others)} ", "bold") if others else Text()
    about = f"{first.type} {middle(clean(first.job_id), _SHORT_ID)} {first.progress_note or ''}"
    return more + _progress(first.progress) + ink(about)


def _progress(done: float | None) -> Text:
    return Text() if done is None else bar(done, 5) + ink(f"{done:4.0%} ")


def held_table(jobs: Sequence[HeldOut], now: datetime) -> Table:
    rows: list[Row] = []
    for each in jobs:
        note = _progress(each.progress) + ink(f"{each.type} {each.progress_note or ''}")
        cells = (ink(each.job_id), status(each.status), _age(each.since, now), note)
        rows.append(Row(each.job_id, cells, JobAim(each.job_id)))
    return Table(_HELD, tuple(rows), "no job")


def job_table(jobs: Sequence[JobOut], now: datetime, choice: str = ALL) -> Table:
    title = "JOB" if choice == ALL else f"JOB ({choice})"
    nothing = "no jobs yet; submit one with: herdsman submit demo"
    empty = nothing if choice == ALL else f"no jobs are {choice}; s shows others"
    rows: list[Row] = []
    for each in jobs:
        if each.status in HELD:
            note = _progress(each.progress) + ink(each.progress_note or each.reason)
        elif each.last_error:
            note = ink(each.last_error, "red")
        else:
            note = ink(each.admission or each.reason, "dim")
        about = (ink(each.job_id), ink(each.type), status(each.status), _age(each.created_at, now))
        rows.append(Row(each.job_id, (*about, note), JobAim(each.job_id)))
    return Table((Column(title, 16, 36, is_id=True), *_JOBS), tuple(rows), empty)


def _age(since: datetime, now: datetime) -> Text:
    return ink(span((now - since).total_seconds()))


def tables(snapshot: Snapshot) -> tuple[Table, Table, Table, Table]:
    """From the top of the screen to its bottom."""
    series, queues = snapshot.overview.series, list[Row]()
    for each in snapshot.overview.queue:
        past = series.queued.get(each.type, ()) if series.by == "type" else ()
        waiting = ink(count(each.queued), "bold"), ink(span(each.oldest_s), "yellow")
        cells = (ink(each.type), ink(each.pool), *waiting, ink(trend(past, TREND), "cyan"))
        queues.append(Row(f"{each.type} {each.pool}", cells, QueueAim(each.type, each.pool)))
    workers, more = list[Row](), snapshot.fleet.more
    for each in snapshot.fleet.workers:
        about = (ink(each.worker_id), ink(each.pool), status(each.status), gpu_memory(each.gpus))
        aim = WorkerAim(each.worker_id, tuple(job.job_id for job in each.jobs))
        workers.append(Row(each.worker_id, (*about, _work(each)), aim))
    last = Column(f"JOB ({more} workers more)" if more else "JOB", 26)
    empty = "no workers; they are started when jobs wait, see: herdsman plan"
    decisions: list[Row] = []
    for each in snapshot.overview.last_decisions:
        times = ink(f"{each.times}x" if each.times > 1 else "", "dim")
        words = ink(each.words, "" if each.done else "yellow")
        # Without its cycle, which differs each time that the same is decided again.
        key = f"{each.action} {each.about} {each.code} {each.done}"
        decisions.append(Row(key, (_age(each.at, snapshot.overview.now), times, words), StepAim(each)))
    idle = "no jobs are waiting; submit some with: herdsman submit demo --count 20"
    return (
        Table(_QUEUE, tuple(queues), idle),
        Table((*_WORKERS, last), tuple(workers), empty),
        job_table(snapshot.jobs, snapshot.overview.now, snapshot.choice),
        Table(_DECISIONS, tuple(decisions), "no decisions yet"),
    )


SHARES = (4, 6, 5, 6)
"""How the tables divide the screen; at 80 by 24 these are lines."""
_AROUND = 3
"""Two lines of the head, and one at the end."""


def head(snapshot: Snapshot, place: str, width: int) -> tuple[Text, Text]:
    overview, jobs = snapshot.overview, snapshot.overview.jobs
    title = ink("herdsman", "bold") + ink(f" {overview.version}  ") + ink(place, "cyan")
    lead, living = overview.leader, sum(overview.workers.values())
    fleet = ink(f"{count(living)} worker{'' if living == 1 else 's'}  ")
    if lead is None:
        fleet += ink("no leader", "bold red")
    else:
        fleet += ink(f"leader {lead.who}, {span((overview.now - lead.since).total_seconds())}")
    waiting = jobs.get("pending", 0) + jobs.get("scheduled", 0)
    oldest = "" if overview.oldest_wait_s is None else f" ({span(overview.oldest_wait_s)})"
    totals = [
        ink(f"waiting {count(waiting)}{oldest}", "yellow" if waiting else ""),
        ink(f"running {count(overview.running)}", "green" if overview.running else ""),
        ink(f"done {count(jobs.get('done', 0))}"),
    ]
    for name, key in (("retrying", "failed"), ("dead", "dead_letter")):
        if jobs.get(key):
            totals.append(ink(f"{name} {count(jobs[key])}", "red"))
    bill = ink(f"{money(overview.cost_per_hour)}/h  {money(overview.cost_today)} today", "bold")
    return _ends(title, fleet, width), _ends(ink("  ").join(totals), bill, width)


def _ends(left: Text, right: Text, width: int) -> Text:
    """One at each end of a line; where both do not fit, the left one is cut."""
    left.truncate(max(0, width - right.cell_len - 1), overflow="ellipsis", pad=True)
    line = left + ink(" ") + right
    line.truncate(width, overflow="ellipsis")
    return line


def frame(snapshot: Snapshot, place: str, width: int, height: int) -> str:
    """Everything that fits, without colours: for pipes, files and tests."""
    lines = [*head(snapshot, place, width), *(ink(f"! {hold}") for hold in snapshot.overview.holds)]
    for table, share in zip(tables(snapshot), SHARES, strict=True):
        space = max(1, (height - _AROUND) * share // sum(SHARES) - 1)
        shown = table.rows if len(table.rows) <= space else table.rows[: space - 1]
        lines += [table.heading(width), *(table.line(row, width) for row in shown)]
        if not table.rows:
            lines.append(ink(table.empty))
        elif more := len(table.rows) - len(shown):
            lines.append(ink(f"and {more} more"))
    return "\n".join(line.plain.rstrip() for line in lines)


def top(once: Annotated[bool, typer.Option("--once", help="Print one frame as plain text, and exit.")] = False) -> None:
    client = connect()
    place, first = client.server.url, observe(client)
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        text = frame(first, place, *get_terminal_size((80, 24)))
        echo(text if "utf" in (sys.stdout.encoding or "").lower() else text.translate(ASCII))
    else:
        _watch(client, place, first)
    client.close()


def _watch(client: Client, place: str, first: Snapshot) -> None:
    with needed("top", "herdsman[server], or print one frame with herdsman top --once"):
        from herdsman.cli.top.app import Top  # noqa: PLC0415  (--once needs no textual, and starts faster)
    # Log lines would break the display; errors are in the banner.
    configure_logs("critical", "text")
    # Without the mouse, the terminal keeps its own way to select and copy text.
    Top(client, place, first, SystemClock()).run(mouse=False)
