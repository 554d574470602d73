"""The classes that jobs of a trace belong to, in two bytes for each job."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST = 1000
"""Of more classes than this the later ones are counted as one."""
OTHERS = "(others)"
LONGEST = 60


@dataclass(slots=True)
class Classes:
    """Filled in the order of the jobs."""

    names: list[str] = field(default_factory=list[str])
    of: "array[int]" = field(default_factory=lambda: array("H"))
    """By the job: the place of its class among the names."""
    _places: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, name: str) -> None:
        place = self._places.get(name)
        self.of.append(self._place(name) if place is None else place)

    def sorted(self, order: Sequence[int]) -> "Classes":
        return Classes(self.names, array("H", (self.of[each] for each in order)), self._places)

    def _place(self, name: str) -> int:
        known = name[:LONGEST] if len(self.names) < MOST else OTHERS
        if known not in self.names:
            self.names.append(known)
        place = self.names.index(known)
        if len(self._places) < 2 * MOST:
            self._places[name] = place
        return place
