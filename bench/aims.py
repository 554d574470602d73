"""What we aim at, and whether it was reached; and what else is said of a run: the machine, its load, the versions."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.report import machine, programs, today


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
        return (self.least is None or self.ratio >= self.least) and (
            self.most is None or self.ratio <= self.most
        )

    def __str__(self) -> str:
        wanted = f"at least {self.least}x" if self.most is None else f"at most {self.most}x"
        word = {True: "reached", False: "MISSED ", None: "unknown"}[self.reached]
        value = "not measured" if self.ratio is None else f"{self.ratio:.2f}x"
        return f"{word} {self.what}: {value}, the aim is {wanted}"


def over(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours / theirs


def load_now() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def surroundings(load_before: str, versions: Mapping[str, str], notes: Iterable[str]) -> str:
    """The bullet points above a table."""
    peers = ", ".join(f"{name} {version}" for name, version in versions.items())
    return "\n".join(
        (
            f"- Measured on {today()}: {machine()}, {programs()}.",
            f"- Load of the machine in the minute before: {load_before}; at the end, with our own: {load_now()}.",
            *([f"- Versions: {peers}."] if peers else []),
            *(f"- {note}" for note in notes),
        )
    )


def status(aims: Sequence[Aim]) -> int:
    """What a program ends with: what was not measured was not reached either."""
    return 0 if all(aim.reached for aim in aims) else 1


def verdict(aims: Sequence[Aim]) -> str:
    return "\n".join(("```text", *map(str, aims), "```"))
