"""`herdsman sim`: the real programs in a deterministic simulation with fault injection, from seeds that can be replayed.

Loading it needs what only `herdsman[sim]` has."""

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from textwrap import indent
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from herdsman.cli.listing import LayoutOption, Listing, show
from herdsman.cli.output import Layout, Output, OutputOption, counted, echo, printed_json
from herdsman.errors import InvalidRequest
from herdsman.telemetry.logs import configure_logs
from herdsman.testing.simulation.faults import Fault, parse_faults
from herdsman.testing.simulation.runner import STEPS, Order, Ran, Runner, sweep
from herdsman.testing.simulation.scenarios import SCENARIOS, scenario_named

sim = typer.Typer(add_completion=False, no_args_is_help=True)

LAST_SEED = 2**63
MOST_SEEDS = 10_000_000
MOST_KEPT = 1_000
"""Of failing seeds, so many are kept with all their violations; the others are counted."""
MOST_PRINTED = 5
"""So many failing seeds are printed with their last steps, and so many more by their first violation."""
MOST_NAMED = 50
FAULT = "fault:"
INTERRUPTED = 130


@sim.command("run")
def run(
    seed: Annotated[int | None, typer.Option(min=0, max=LAST_SEED, help="Run this one seed.")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="A..B", help="Run all seeds from A to B.")] = None,
    faults: Annotated[
        str | None, typer.Option(help="all, none, names separated by commas, or -name; see herdsman sim faults.")
    ] = None,
    scenario: Annotated[str, typer.Option(help="The scenario; see herdsman sim scenarios.")] = "all",
    processes: Annotated[
        int | None,
        typer.Option("--processes", "-j", min=1, max=1024, help="How many in parallel; one per core by default."),
    ] = None,
    story: Annotated[
        int | None,
        typer.Option(min=0, max=1_000_000, help="How many of the last steps to print; 60 where a seed fails."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run each seed twice, in different processes, and compare.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop at the first seed that fails.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run seeds and check every invariant; exits with 1 if one is violated."""
    chosen = chosen_seeds(seed, seeds)
    wanted = scenario_named(scenario).faults if faults is None else faults
    parse_faults(wanted)
    options = RunOptions(
        seeds=chosen,
        scenario=scenario,
        faults=wanted.replace(" ", ""),
        steps=STEPS if story is None else story,
        print_story=story is not None,
        processes=processes or len(os.sched_getaffinity(0)),
        verify=verify,
        stop=stop,
    )
    configure_logs("CRITICAL", "json")
    tally, began = Tally(), time.monotonic()
    try:
        with _progress(options) as step, closing(_all(options, step)) as every:
            for ran in every:
                tally.add(ran)
                if ran.violations and options.stop:
                    break
    except KeyboardInterrupt:
        tally.interrupted = True
    tally.took_s = time.monotonic() - began
    if not printed_json(output, _document(options, tally)):
        _print_report(options, tally)
    raise typer.Exit(INTERRUPTED if tally.interrupted else int(tally.failed > 0))


@sim.command("faults")
def list_faults(layout: LayoutOption = Layout.TABLE) -> None:
    """List the faults that can be injected."""
    _list("faults", {str(fault): fault.said for fault in Fault}, layout)


@sim.command("scenarios")
def list_scenarios(layout: LayoutOption = Layout.TABLE) -> None:
    """List the scenarios."""
    _list("scenarios", {name: each.said for name, each in SCENARIOS.items()}, layout)


def _list(what: str, texts: dict[str, str], layout: Layout) -> None:
    document = {what: [{"name": name, "said": text} for name, text in texts.items()]}
    listing = Listing(document=document, columns=("NAME", "WHAT"), rows=list(texts.items()), empty="")
    show(lambda: listing, layout)


def chosen_seeds(seed: int | None, seeds: str | None) -> range:
    """`InvalidRequest` for what names no seeds."""
    if (seed is None) == (seeds is None):
        raise InvalidRequest("nothing to run: give either --seed N or --seeds A..B")
    if seed is not None:
        return range(seed, seed + 1)
    assert seeds is not None
    found = re.fullmatch(r"\s*(\d{1,19})\s*\.\.\s*(\d{1,19})\s*", seeds, re.ASCII)
    if found is None:
        raise InvalidRequest(
            f"--seeds is {seeds!r}: write two whole numbers from 0 to {LAST_SEED} with two dots between them,"
            " as in 0..1999"
        )
    first, last = int(found[1]), int(found[2])
    given = f"--seeds is {first}..{last}"
    if last < first:
        raise InvalidRequest(f"{given}, which ends before it begins: write {last}..{first}")
    if last > LAST_SEED:
        raise InvalidRequest(f"{given}: the last seed is {LAST_SEED}")
    if last - first >= MOST_SEEDS:
        raise InvalidRequest(f"{given}, which is {last - first + 1:,} seeds: at most {MOST_SEEDS:,} at a time")
    return range(first, last + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(Order):
    processes: int
    print_story: bool = False
    """Print the last steps of a good seed as well."""
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


Step = Callable[[Ran], None]


def _all(options: RunOptions, step: Step) -> Generator[Ran]:
    def ran(*, here: bool = False) -> Generator[Ran]:
        runner, processes = Runner(options), min(options.processes, len(options.seeds))
        every = (runner.run(seed) for seed in options.seeds) if here else sweep(options, processes)
        with closing(every):
            for each in every:
                step(each)
                yield each

    if not options.verify:
        yield from ran(here=len(options.seeds) == 1)
        return
    first = {each.seed: each.hash for each in ran()}
    # New processes: state that one run has left behind, or an order that only hashes give, shows in the other.
    for each in ran():
        before = first[each.seed]
        differs = f"determinism: its hash was {before}, and {each.hash} when it was run again"
        yield each if each.hash == before else replace(each, violations=(*each.violations, differs))


@contextmanager
def _progress(options: RunOptions) -> Generator[Step]:
    """A bar for people at a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal or len(options.seeds) == 1:
        yield lambda _: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        task = progress.add_task("", total=len(options.seeds) * (2 if options.verify else 1), said="starting")
        tally, began = Tally(), time.monotonic()

        def step(ran: Ran) -> None:
            tally.add(ran)
            if ran.violations:
                progress.console.print(_short(ran), style="red", markup=False, highlight=False)
            rate = tally.seeds / max(time.monotonic() - began, 1e-9)
            hours = f"{tally.virtual_s / 3600:,.1f} virtual hours"
            text = f"{rate:.1f} seeds/s, {hours}, {tally.jobs:,} jobs, {tally.failed} failed"
            progress.update(task, advance=1, said=text)

        yield step


def _document(options: RunOptions, tally: Tally) -> dict[str, object]:
    plain = ("seeds", "violations", "failed", "jobs", "hash", "interrupted")
    failing = [
        {name: getattr(ran, name) for name in ("seed", "violations", "hash", "story")}
        | {"replay": options.replay(ran.seed)}
        for ran in tally.failing
    ]
    return {
        **{name: getattr(tally, name) for name in plain},
        "asked": len(options.seeds),
        "scenario": options.scenario,
        "faults": options.faults,
        "failing": failing,
        "virtual_s": round(tally.virtual_s, 3),
        "took_s": round(tally.took_s, 3),
        "occurred": dict(sorted(tally.notes.items())),
    }


def _print_report(options: RunOptions, tally: Tally) -> None:
    for ran in tally.failing[:MOST_PRINTED]:
        echo(f"seed {ran.seed} failed after {ran.lasted_s:.0f} virtual seconds with {counted(ran.jobs, 'job')}:")
        for violation in ran.violations:
            echo(indent(violation, "  "))
        echo(f"replay it: {options.replay(ran.seed)}")
        _print_story(ran.story)
    for ran in tally.failing[MOST_PRINTED : MOST_PRINTED + MOST_NAMED]:
        echo(_short(ran))
    if (more := tally.failed - MOST_PRINTED - MOST_NAMED) > 0:
        echo(f"and {more:,} more seeds failed; -o json names up to 1,000")
    if len(options.seeds) == 1 and tally.last is not None and not tally.failed:
        if options.print_story:
            _print_story(tally.last.story)
        last = tally.last
        echo(f"seed {last.seed}: {last.lasted_s:.0f} virtual seconds, {last.turns:,} turns; what happened in it:")
        for note, times in sorted(last.notes.items()):
            name = note.removeprefix(FAULT)
            text = Fault(name).said if note.startswith(FAULT) else ""
            echo(f"  {times:>5} x {name:<24} {text}".rstrip())
    where = f" in {counted(tally.failed, 'seed')}" if tally.failed else ""
    minutes, seconds = divmod(round(tally.took_s), 60)
    hours, virtual = tally.virtual_s / 3600, f"{tally.virtual_s / 60:.1f} virtual minutes"
    parts = (
        counted(tally.seeds, "seed"),
        f"{counted(tally.violations, 'violation')}{where}",
        f"{hours:,.1f} virtual hours" if hours >= 1 else virtual,
        counted(tally.jobs, "job"),
        f"{minutes}:{seconds:02} min",
        f"{tally.seeds / max(tally.took_s, 1e-9):.1f} seeds/s",
        f"hash {tally.hash}" if tally.hash else "no hash",
    )
    left = len(options.seeds) - tally.seeds
    echo((f"interrupted, {left:,} seeds were left: " if tally.interrupted else "") + ", ".join(parts))


def _short(ran: Ran) -> str:
    """One line."""
    more = f" (and {len(ran.violations) - 1} more)" if len(ran.violations) > 1 else ""
    return f"seed {ran.seed}: {next(iter(ran.violations)).splitlines()[0]}{more}"


def _print_story(story: Sequence[str]) -> None:
    """Faults stand out: by their mark, and by their colour where there are colours."""
    if not story:
        return
    echo(f"its last {len(story)} steps:")
    screen = Console(highlight=False, soft_wrap=True)
    for line in story:
        fault = " ! " in line
        screen.print(Text(f"  {'!' if fault else ' '} {line}", style="bold red" if fault else ""))
    echo("")
