"""What came of the seeds: a line where all is well, and the story of what went wrong where it is not."""

from collections.abc import Iterator, Sequence
from textwrap import indent

from rich.console import Console
from rich.text import Text

from herdsman.cli.output import echo, print_json
from herdsman.cli.sim_tally import Asked, Tally
from herdsman.sim.world.faults import Fault
from herdsman.sim.world.run import Ran
from herdsman.sim.world.said import SAID

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
        _print_failing(ran, asked)
    for ran in tally.failing[MOST_TOLD : MOST_TOLD + MOST_NAMED]:
        echo(short(ran))
    if (more := tally.failed - MOST_TOLD - MOST_NAMED) > 0:
        echo(f"and {more:,} more seeds failed; --output json names up to 1,000")
    if len(asked.seeds) == 1 and tally.last is not None and not tally.failed:
        _print_good(tally.last, asked)
    echo(summary(asked, tally))


def short(ran: Ran) -> str:
    """One line."""
    more = f" (and {len(ran.violations) - 1} more)" if len(ran.violations) > 1 else ""
    return f"seed {ran.seed}: {next(iter(ran.violations)).splitlines()[0]}{more}"


def summary(asked: Asked, tally: Tally) -> str:
    where = f" in {_many(tally.failed, 'seed')}" if tally.failed else ""
    minutes, seconds = divmod(round(tally.took_s), 60)
    parts = (
        _many(tally.seeds, "seed"),
        f"{_many(tally.violations, 'violation')}{where}",
        _virtual(tally.virtual_s),
        _many(tally.jobs, "job"),
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


def _print_failing(ran: Ran, asked: Asked) -> None:
    echo(f"seed {ran.seed} failed, after {ran.lasted_s:.0f} s of its time with {_many(ran.jobs, 'job')}:")
    for said in ran.violations:
        echo(indent(said, "  "))
    echo(f"replay it: {asked.replay(ran.seed)}")
    _print_story(ran.story)


def _print_good(ran: Ran, asked: Asked) -> None:
    if asked.told_always:
        _print_story(ran.story)
    echo(f"seed {ran.seed}: {ran.lasted_s:.0f} s of its time, {ran.turns:,} turns; what occurred in it:")
    for note, times in sorted(ran.notes.items()):
        echo(f"  {times:>5} x {note.removeprefix(FAULT):<24} {_said(note)}".rstrip())


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
    return SAID.get(Fault(name), "") if note.startswith(FAULT) else ""


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
