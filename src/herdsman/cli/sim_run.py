"""Runs the seeds that were asked for, and shows how far it is to people who wait for it."""

import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from herdsman.cli.output import Output
from herdsman.cli.sim_shown import print_document, print_report, short
from herdsman.cli.sim_tally import Asked, Tally
from herdsman.sim.crew import sweep
from herdsman.sim.seeds import Runner
from herdsman.sim.world.run import Ran
from herdsman.telemetry.logs import configure_logs

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
