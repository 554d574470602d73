"""A state machine as a value: which states there are, where things begin, and what may follow what."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Generic, TypeVar

State = TypeVar("State", bound=StrEnum)


@dataclass(frozen=True)
class Machine(Generic[State]):
    """The moves of one kind of thing. Code, CHECKs, triggers and diagrams are all made from this."""

    kind: str
    """The word for one such thing in the audit and in messages."""
    table: str
    key: str
    """The column that identifies a row of `table`."""
    initial: frozenset[State]
    moves: Mapping[State, frozenset[State]]
    reopens: Mapping[State, frozenset[State]] = field(default_factory=lambda: MappingProxyType({}))
    """Moves out of an end state; only an explicit request of a person may make them."""

    @property
    def states(self) -> tuple[State, ...]:
        return tuple(self.moves)

    @property
    def terminal(self) -> frozenset[State]:
        return frozenset(state for state, following in self.moves.items() if not following)

    @property
    def live(self) -> frozenset[State]:
        return frozenset(self.moves) - self.terminal

    def allows(self, here: State, there: State) -> bool:
        return there in self.moves[here]

    def sources(self, to: State) -> tuple[State, ...]:
        """The states from which `to` may be entered, in the order of the table."""
        return tuple(state for state, following in self.moves.items() if to in following)

    def reachable(self, start: Iterable[State]) -> frozenset[State]:
        """Every state that can be reached from `start`, by ordinary moves."""
        seen: set[State] = set()
        frontier = set(start)
        while frontier:
            seen |= frontier
            frontier = {after for state in frontier for after in self.moves[state]} - seen
        return frozenset(seen)


AnyMachine = Machine[Any]
"""One of the machines, whichever."""
