"""The judgement: from what was seen to what should be done. Pure, so that it can be asked anything."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from herdsman.core.actions import Action, Note
from herdsman.core.expected import after
from herdsman.core.findings import Code, Finding
from herdsman.core.fleet import Snapshot
from herdsman.core.phases.health import check_health, warn
from herdsman.core.phases.pools import close_pools, keep_pools, offer_revisions, retire
from herdsman.core.phases.promote import promote
from herdsman.core.phases.reassign import reassign
from herdsman.core.phases.scale_down import end_workers, scale_down
from herdsman.core.phases.scale_up import scale_up
from herdsman.core.phases.storage import grow_volumes
from herdsman.core.phases.sweep import recognise, sweep

Phase = Callable[[Snapshot], Iterable[Action]]

PHASES: tuple[tuple[str, Phase], ...] = (
    ("recognise", recognise),
    ("promote", promote),
    ("health", check_health),
    ("reassign", reassign),
    # Jobs that came back are waiting now, and silence counts while jobs wait.
    ("health", check_health),
    ("health", warn),
    ("pools", keep_pools),
    ("scale_down", scale_down),
    ("terminating", end_workers),
    ("pools", retire),
    # What was let go just now is ended in the same cycle.
    ("terminating", end_workers),
    ("pools", close_pools),
    ("pools", offer_revisions),
    ("scale_up", scale_up),
    ("sweep", sweep),
    ("storage", grow_volumes),
)


@dataclass(frozen=True, slots=True)
class Planned:
    phase: str
    action: Action


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Planned, ...]
    expected: Snapshot
    """The world as it will be when everything planned succeeds."""

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(step.action for step in self.steps)


def decide(seen: Snapshot) -> Plan:
    """Of a database that may be a copy, or out of date, nothing follows: what it knows may be another's by now."""
    if seen.doubt:
        why = Finding(Code.DATABASE_NOT_ADOPTED, seen.doubt)
        return Plan(tuple(Planned("recognise", Note(pool.id, why)) for pool in seen.pools), seen)
    plan = Plan((), seen)
    for name, phase in PHASES:
        actions = tuple(phase(plan.expected))
        steps = tuple(Planned(name, action) for action in actions)
        plan = Plan((*plan.steps, *steps), after(plan.expected, actions))
    return plan
