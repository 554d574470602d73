"""What was decided, as the control loop recorded it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from herdsman.core.model import PoolId
from herdsman.db.connection import Tx
from herdsman.store import cycles
from herdsman.store.cycles import Decided, Step

STEPS = 20
READ = 500
"""Steps that are read so that equal ones can be told as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A decision, and how often it was the same."""

    last: datetime
    since: datetime
    times: int
    action: str
    code: str
    why: str
    numbers: dict[str, Any]
    done: bool
    said: str


def told_of(tx: Tx, pool: PoolId) -> tuple[Told, ...]:
    return told_about(tx, lambda step: pool in (step.get("pool"), step.get("about")))


def told_about(tx: Tx, about: Callable[[Step], bool]) -> tuple[Told, ...]:
    """Newest first. Equal decisions in a row are one, with its first and its last time."""
    return _told(cycles.latest(tx, about, READ))


def _told(found: Sequence[Decided]) -> tuple[Told, ...]:
    told: list[Told] = []
    for each in found:
        step = each.step
        now = Told(
            last=each.at,
            since=each.at,
            times=1,
            action=step["action"],
            code=step["code"],
            why=step["why"],
            numbers=step["numbers"],
            done=step["done"],
            said=step["said"],
        )
        if told and _same(told[-1], now):
            told[-1] = replace(told[-1], since=each.at, times=told[-1].times + 1)
        else:
            told.append(now)
    return tuple(told[:STEPS])


def _same(one: Told, other: Told) -> bool:
    return (one.action, one.code, one.done) == (other.action, other.code, other.done)
