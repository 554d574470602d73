"""What we aim at, whether it was reached, and whether it has become worse; and what else is said of a run."""

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.machine import MOST_FOREIGN, Watch, machine
from bench.report import programs, today

RESULTS = Path(__file__).with_name("results")
FALL = 1.5
"""A ratio that has become worse by this factor since the committed table fails the run: it fell by a third."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """A ratio that should be reached; None where one of the two was not measured."""

    what: str
    ratio: float | None
    least: float | None = None
    most: float | None = None

    @property
    def reached(self) -> bool | None:
        if self.ratio is None:
            return None
        return (self.least is None or self.ratio >= self.least) and (self.most is None or self.ratio <= self.most)

    def __str__(self) -> str:
        wanted = f"at least {self.least}x" if self.most is None else f"at most {self.most}x"
        word = {True: "reached", False: "MISSED ", None: "unknown"}[self.reached]
        value = "not measured" if self.ratio is None else f"{self.ratio:.2f}x"
        return f"{word} {self.what}: {value}, the aim is {wanted}"


def over(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours / theirs


def surroundings(watch: Watch, versions: Mapping[str, str], notes: Iterable[str]) -> str:
    """The bullet points above a table."""
    peers = ", ".join(f"{name} {version}" for name, version in versions.items())
    return "\n".join(
        (
            f"- Measured on {today()}: {machine()}, {programs()}.",
            f"- Other programs used {watch.foreign():.0%} of the machine meanwhile.",
            *([f"- Versions: {peers}."] if peers else []),
            *(f"- {note}" for note in notes),
        )
    )


def verdict(aims: Sequence[Aim]) -> str:
    return "\n".join(("```text", *map(str, aims), "```"))


_COMMITTED = re.compile(r"^(?:reached|MISSED ) (?P<what>.+): (?P<ratio>[\d.]+)x, the aim is at ")


def committed(text: str) -> dict[str, float]:
    """The ratios that a table of before ends with."""
    lines = map(_COMMITTED.match, text.splitlines())
    return {line["what"]: float(line["ratio"]) for line in lines if line}


def fallen(aims: Iterable[Aim], before: Mapping[str, float]) -> list[str]:
    """The ratios that are worse by `FALL` than they were."""
    found: list[str] = []
    for aim in aims:
        was = before.get(aim.what)
        if was and aim.ratio is not None:
            worse = was / aim.ratio if aim.most is None else aim.ratio / was
            if worse >= FALL:
                found.append(f"FALLEN  {aim.what}: {aim.ratio:.2f}x, it was {was:.2f}x")
    return found


def conclude(asked: argparse.Namespace, name: str, text: str, aims: Sequence[Aim], watch: Watch) -> int:
    """Prints the table, and keeps it where that was asked for: 1 when a ratio has fallen, 2 when nothing was learnt.

    An aim that is missed is no failure by itself: it stands in the table for all to see.
    """
    print(text)
    foreign, path = watch.foreign(), RESULTS / f"{name}.md"
    if foreign > MOST_FOREIGN and not asked.quick:
        print(
            f"REFUSED as a result: other programs used {foreign:.0%} of the machine, {MOST_FOREIGN:.0%} are let pass",
            file=sys.stderr,
        )
        return 2
    worse = fallen(aims, committed(path.read_text())) if path.exists() and not asked.quick else []
    for line in worse:
        print(line, file=sys.stderr)
    if asked.write is not None:
        asked.write.write_text(text)
    return 1 if worse else 0
