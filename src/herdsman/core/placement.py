"""Which waiting job a worker gets: agents take turns, and a model is served where it is loaded.

The rule for models: a worker takes the first job that names no model, or one that it has loaded, or that has waited
for its model as long as it has to. Only when there is none it takes one whose model nobody has loaded. What another
worker has loaded waits for that one, but never longer than the bound. And who has just changed its model keeps it for
a while, as long as there are jobs for it: when everything waits too long, changing with each job would make it worse.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Head:
    """The first of the jobs that wait for one model, or for none."""

    model: str | None
    place: int
    overdue: bool = False
    """It has waited for a worker with its model as long as it has to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a worker has loaded, and what others of its pool have."""

    here: Collection[str] = ()
    elsewhere: Collection[str] = ()
    settled: bool = True
    """Its last change is long enough ago for another one."""


def best(heads: Sequence[Head], loaded: Loaded) -> Head | None:
    """The one that the worker takes."""
    suits = [head for head in heads if head.model is None or head.model in loaded.here]
    overdue = [head for head in heads if head.overdue]
    if loaded.settled:
        suits += overdue
    new = [head for head in heads if head.model not in loaded.elsewhere]
    return min(suits or [*new, *overdue], key=_place, default=None)


def _place(head: Head) -> int:
    return head.place


def shares(agents: Sequence[str], count: int) -> Mapping[str, int]:
    """How many of `count` jobs each agent gets, when they take turns in this order."""
    each, more = divmod(count, len(agents))
    dealt = {agent: each + (index < more) for index, agent in enumerate(agents)}
    return {agent: number for agent, number in dealt.items() if number}
