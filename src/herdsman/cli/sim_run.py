"""Seeds of the simulation, run, counted and told. Loading it needs what only `herdsman[sim]` has."""

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from textwrap import indent

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from herdsman.cli.output import Output, counted, echo, print_json
from herdsman.telemetry.logs import configure_logs
from herdsman.testing.simulation.faults import Fault
from herdsman.testing.simulation.process_pool import sweep
from herdsman.testing.simulation.run import Order, Ran, Runner

MOST_KEPT = 1_000
"""Of seeds that fail, so many are remembered with all that was wrong; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Order):
    processes: int
    told_always: bool = False
    """The last steps of a good seed as well."""
    verify: bool = False
    stop: bool = False


@dataclass
class Tally:
    seeds: int = 0
    violations: int = 0
    failed: int = 0
    failing: list[Ran] = field(default_factory=list[Ran])
    jobs: int = 0
    virtual_s: float = 0.0
    took_s: float = 0.0
    notes: Counter[str] = field(default_factory=Counter[str])
    """In how many seeds each situation occurred."""
    last: Ran | None = None
    interrupted: bool = False
    hash: str = ""
    """Over the hashes of all seeds in their order."""

    def add(self, ran: Ran) -> None:
        self.seeds += 1
        self.jobs += ran.jobs
        self.virtual_s += ran.lasted_s
        self.notes.update(ran.notes.keys())
        self.last = ran
        self.hash = sha256(f"{self.hash}{ran.hash}".encode()).hexdigest()[:16]
        if ran.violations:
            self.failed += 1
            self.violations += len(ran.violations)
            if len(self.failing) < MOST_KEPT:
                self.failing.append(ran)


MOST_TOLD = 5
"""So many failing seeds are told as stories, and so many more by their first sentence."""
MOST_NAMED = 50
FAULT = "fault:"


def print_document(asked: Asked, tally: Tally) -> None:
    print_json(
        {
            "seeds": tally.seeds,
            "asked": len(asked.seeds),
            "scenario": asked.scenario,
            "faults": asked.faults,
            "violations": tally.violations,
            "failed": tally.failed,
            "failing": [_document(ran, asked) for ran in tally.failing],
            "jobs": tally.jobs,
            "virtual_s": round(tally.virtual_s, 3),
            "took_s": round(tally.took_s, 3),
            "hash": tally.hash,
            "occurred": dict(sorted(tally.notes.items())),
            "interrupted": tally.interrupted,
        }
    )


def print_report(asked: Asked, tally: Tally) -> None:
    for ran in tally.failing[:MOST_TOLD]:
        echo(
            f"seed {ran.seed} failed, after {ran.lasted_s:.0f} s of its time with {counted(ran.jobs, 'job')}:"
        )
        for said in ran.violations:
            echo(indent(said, "  "))
        echo(f"replay it: {asked.replay(ran.seed)}")
        _print_story(ran.story)
    for ran in tally.failing[MOST_TOLD : MOST_TOLD + MOST_NAMED]:
        echo(short(ran))
    if (more := tally.failed - MOST_TOLD - MOST_NAMED) > 0:
        echo(f"and {more:,} more seeds failed; --output json names up to 1,000")
    if len(asked.seeds) == 1 and tally.last is not None and not tally.failed:
        if asked.told_always:
            _print_story(tally.last.story)
        echo(
            f"seed {tally.last.seed}: {tally.last.lasted_s:.0f} s of its time, {tally.last.turns:,} turns; what occurred in it:"
        )
        for note, times in sorted(tally.last.notes.items()):
            echo(f"  {times:>5} x {note.removeprefix(FAULT):<24} {_said(note)}".rstrip())
    echo(summary(asked, tally))


def short(ran: Ran) -> str:
    """One line."""
    more = f" (and {len(ran.violations) - 1} more)" if len(ran.violations) > 1 else ""
    return f"seed {ran.seed}: {next(iter(ran.violations)).splitlines()[0]}{more}"


def summary(asked: Asked, tally: Tally) -> str:
    where = f" in {counted(tally.failed, 'seed')}" if tally.failed else ""
    minutes, seconds = divmod(round(tally.took_s), 60)
    parts = (
        counted(tally.seeds, "seed"),
        f"{counted(tally.violations, 'violation')}{where}",
        _virtual(tally.virtual_s),
        counted(tally.jobs, "job"),
        f"{minutes}:{seconds:02} min",
        f"{tally.seeds / max(tally.took_s, 1e-9):.1f} seeds/s",
        f"hash {tally.hash}" if tally.hash else "no hash",
    )
    stopped = (
        f"interrupted, {len(asked.seeds) - tally.seeds:,} seeds were left: " if tally.interrupted else ""
    )
    return stopped + ", ".join(parts)


def _virtual(seconds: float) -> str:
    return (
        f"{seconds / 3600:,.1f} virtual hours" if seconds >= 3600 else f"{seconds / 60:.1f} virtual minutes"
    )


def _print_story(story: Sequence[str]) -> None:
    """Faults stand out: by their mark, and by their colour where there are colours."""
    if not story:
        return
    echo(f"its last {len(story)} steps:")
    screen = Console(highlight=False, soft_wrap=True)
    for line in _marked(story):
        screen.print(line)
    echo("")


def _marked(story: Sequence[str]) -> Iterator[Text]:
    for line in story:
        struck = " ! " in line
        yield Text(f"  {'!' if struck else ' '} {line}", style="bold red" if struck else "")


def _document(ran: Ran, asked: Asked) -> dict[str, object]:
    return {
        "seed": ran.seed,
        "violations": list(ran.violations),
        "replay": asked.replay(ran.seed),
        "hash": ran.hash,
        "story": list(ran.story),
    }


def _said(note: str) -> str:
    name = note.removeprefix(FAULT)
    return Fault(name).said if note.startswith(FAULT) else ""


INTERRUPTED = 130


def run_seeds(asked: Asked, output: Output) -> int:
    """Prints what came of it; the exit status."""
    configure_logs("CRITICAL", "json")
    tally, began = Tally(), time.monotonic()
    try:
        with _progress(asked) as step, closing(_all(asked, step)) as every:
            for ran in every:
                tally.add(ran)
                if ran.violations and asked.stop:
                    break
    except KeyboardInterrupt:
        tally.interrupted = True
    tally.took_s = time.monotonic() - began
    (print_document if output is Output.JSON else print_report)(asked, tally)
    return INTERRUPTED if tally.interrupted else int(tally.failed > 0)


Step = Callable[[Ran], None]


def _all(asked: Asked, step: Step) -> Generator[Ran]:
    if not asked.verify:
        yield from _stepped(_here(asked) if len(asked.seeds) == 1 else _at_once(asked), step)
        return
    first = {ran.seed: ran.hash for ran in _stepped(_at_once(asked), step)}
    # New processes: what one run has left behind, or an order that only hashes give, shows in the other.
    for ran in _stepped(_at_once(asked), step):
        yield ran if ran.hash == first[ran.seed] else _differing(ran, first[ran.seed])


def _here(asked: Asked) -> Generator[Ran]:
    runner = Runner(asked)
    for seed in asked.seeds:
        yield runner.run(seed)


def _at_once(asked: Asked) -> Generator[Ran]:
    return sweep(asked, min(asked.processes, len(asked.seeds)))


def _stepped(every: Generator[Ran], step: Step) -> Generator[Ran]:
    with closing(every):
        for ran in every:
            step(ran)
            yield ran


def _differing(ran: Ran, before: str) -> Ran:
    said = f"determinism: its hash was {before}, and {ran.hash} when it was run again"
    return replace(ran, violations=(*ran.violations, said))


@contextmanager
def _progress(asked: Asked) -> Generator[Step]:
    """A bar for people at a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal or len(asked.seeds) == 1:
        yield lambda _: None
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        total = len(asked.seeds) * (2 if asked.verify else 1)
        yield _Bar(progress, total).step


class _Bar:
    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total, said="starting")
        self._began = time.monotonic()
        self._seeds = self._failed = self._jobs = 0
        self._virtual_s = 0.0

    def step(self, ran: Ran) -> None:
        self._seeds += 1
        self._jobs += ran.jobs
        self._virtual_s += ran.lasted_s
        if ran.violations:
            self._failed += 1
            self._progress.console.print(short(ran), style="red", markup=False, highlight=False)
        self._progress.update(self._task, advance=1, said=self._said())

    def _said(self) -> str:
        rate = self._seeds / max(time.monotonic() - self._began, 1e-9)
        return (
            f"{rate:.1f} seeds/s, {self._virtual_s / 3600:,.1f} virtual hours, {self._jobs:,} jobs,"
            f" {self._failed} failed"
        )
