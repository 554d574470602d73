"""Which database started an instance, and whether the database at hand is still the one that did.

The name of every instance carries a stamp: the identity of the database that started it, and a number that rises with
every start. A database ends only what carries its own identity. Two things make even that one doubtful: it stands at
another place than it did (then it may be a copy, and the original may be at work), or an instance or a worker knows a
higher number than it does (then it went back in time). In doubt it starts and ends nothing until a person has adopted
it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

ADOPT = "if it is the only one in use, run herdsman db adopt"
LEAP = 1000
"""How far numbers are raised above the highest that anyone is known to have seen."""
_SEPARATOR = "--"
_STAMP = re.compile(r"([0-9a-f]{12})-([0-9]{1,18})", re.ASCII)
Place = Mapping[str, str]
"""What tells where a database is, by name."""


@dataclass(frozen=True, slots=True)
class Stamp:
    installation: str
    number: int

    @classmethod
    def of(cls, name: str) -> Self | None:
        """None for an instance of an older version, or one that somebody made by hand."""
        parts = name.split(_SEPARATOR, 3)
        found = _STAMP.fullmatch(parts[2]) if len(parts) == 4 else None
        return cls(found[1], int(found[2])) if found else None

    def own_part(self, worker_id: str) -> str:
        """What a name says beside the prefix and the deployment."""
        return f"{self.installation}-{self.number}{_SEPARATOR}{worker_id}"


def worker_of(name: str) -> str:
    """The id of the worker in an instance of ours; one of an older version has no stamp in its name."""
    return name.split(_SEPARATOR, 3 if Stamp.of(name) else 2)[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    id: str
    spawned: int = 0
    """The number of the last instance that was started."""
    place: Place | None = None
    """Where it was used last; None before its first use."""
    orphans: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    """By their refs: since when every complete listing has shown an instance that belongs to no worker."""
    held: str = ""
    """How it was found to have gone back in time."""
    hint: str = ""
    """The same, by the word of a worker, which may lie: it stops nothing."""
    raised: bool = False
    """Its numbers are above all that anyone has seen since."""

    def doubt(self, here: Place, names: Iterable[str]) -> str:
        """Why it must not start or end anything, given the names of the instances; empty when it may."""
        if self.place is not None and not same_place(self.place, here):
            return (
                "this database is not where it was used last, so it may be a copy of one that is still in use:"
                f" nothing is started or ended; {ADOPT}"
            )
        went_back = self.held or self.ahead(names)
        if went_back:
            return f"this database went back in time: {went_back}; nothing is started or ended; {ADOPT}"
        return ""

    def highest(self, names: Iterable[str]) -> tuple[int, str]:
        """The highest number on an instance that carries our identity, and its name."""
        stamps = ((Stamp.of(name), name) for name in names)
        return max(
            ((each.number, name) for each, name in stamps if each and each.installation == self.id),
            default=(0, ""),
        )

    def ahead(self, names: Iterable[str]) -> str:
        """What an instance shows that was started after the state that this database remembers."""
        number, name = self.highest(names)
        if number <= self.spawned:
            return ""
        return f"instance {name} is start number {number}, and it remembers {self.spawned}"


def same_place(before: Place, now: Place) -> bool:
    """A SQLite file keeps its inode when it is moved or mounted elsewhere, and its path when it is restored."""
    if "inode" in before and "inode" in now:
        where = ("machine", "path")
        return before["inode"] == now["inode"] or all(before.get(each) == now.get(each) for each in where)
    return before == now


def moved(before: Place | None, now: Place) -> str:
    """From where to where, in a few words for whoever may see such things; empty where it stayed."""
    if before is None or same_place(before, now):
        return ""
    others = [name for name in now if before.get(name) != now[name]]
    shown = ["path"] if "path" in others else others
    was, is_now = (", ".join(f"{name} {place.get(name)}" for name in shown) for place in (before, now))
    return f"it was at {was}, and is at {is_now}"
