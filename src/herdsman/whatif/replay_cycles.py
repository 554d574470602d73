"""What a database has recorded: its cycles decided again, and a trace of its jobs."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any

from herdsman.db.connection import Database, Tx
from herdsman.errors import InvalidRequest
from herdsman.fleet import stats_sql
from herdsman.fleet.decide import Planned, decide
from herdsman.fleet.history_sql import Recorded, RecordedSnapshot
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.recording import Cycle, Outcome, Recording, read
from herdsman.fleet.scaling import ScalingPolicy, forecasts
from herdsman.fleet.snapshot import Snapshot
from herdsman.ids import DEFAULT_POOL, PoolId
from herdsman.whatif.machines import Boots
from herdsman.whatif.trace import Classes, Trace, made

SHOWN = 10
DAMAGED = "what this cycle saw cannot be read: it is damaged"
UNCOUNTED = "the demand was not counted then, and this policy reckons with it: set SHADOW_SCALING_POLICY to its name for a while"
Step = Mapping[str, Any]
Compare = Callable[[Recorded, Recording], "tuple[tuple[Step | None, Step | None], ...]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Otherwise:
    """A cycle that would be decided otherwise: pairs of what was decided, and what would be."""

    cycle: int
    at: datetime
    pairs: tuple[tuple[Step | None, Step | None], ...]


@dataclass(slots=True, kw_only=True)
class Answered:
    cycles: int = 0
    decisions: int = 0
    """Steps that were planned in them, by the recorded policy."""
    otherwise: int = 0
    """Cycles."""
    first: list[Otherwise] = field(default_factory=list[Otherwise])
    left_out: int = 0
    why_left_out: str = ""
    """Of the first of them."""
    recorded: Counter[str] = field(default_factory=Counter[str])
    """By the kind of action: how many were decided, and how many the other policy would have decided on."""
    would: Counter[str] = field(default_factory=Counter[str])

    @property
    def same(self) -> bool:
        return not self.otherwise and not self.left_out


def ask_again(found: Iterable[RecordedSnapshot], installed: Mapping[str, ScalingPolicy]) -> Answered:
    """Each cycle under its own policy: every planned step is compared word for word with what was recorded."""
    return _asked(found, installed, _exactly)


def ask_under(
    found: Iterable[RecordedSnapshot], installed: Mapping[str, ScalingPolicy], pool: PoolId, policy: FleetPolicy
) -> Answered:
    """Each cycle as it was seen, under another policy; only what is done is compared, not what is said about it.

    What another decision would have led to is not followed: the next cycle is again one that was seen.
    """
    answered = Answered()
    needs = forecasts(replace(policy, shadow=""))

    def compare(_: Recorded, recording: Recording) -> tuple[tuple[Step | None, Step | None], ...]:
        seen = recording.seen
        here = next((each for each in seen.pools if each.id == pool), None)
        if here is None:
            raise InvalidRequest(f"the pool {pool} was not there")
        if needs and here.demand is None:
            raise InvalidRequest(UNCOUNTED)
        # A pool that was asked for by name keeps its sizes.
        sizes = {"min_workers": here.policy.min_workers, "max_workers": here.policy.max_workers}
        ruled = replace(here, policy=policy if here.life is None else replace(policy, **sizes))
        pools = tuple(ruled if each is here else each for each in seen.pools)
        most = policy.max_workers if pool == DEFAULT_POOL else seen.most_together
        other = replace(seen, pools=pools, most_together=most)
        was, would = _acts(seen), _acts(other)
        answered.recorded.update(each["action"] for each in was)
        answered.would.update(each["action"] for each in would)
        # What only one of them does, in any order.
        ours, theirs = Counter(map(_what, was)), Counter(map(_what, would))
        gone = [(step, None) for step in _more(was, ours - theirs)]
        return (*gone, *((None, step) for step in _more(would, theirs - ours)))

    return _asked(found, installed, compare, answered)


def _asked(
    found: Iterable[RecordedSnapshot],
    installed: Mapping[str, ScalingPolicy],
    compare: Compare,
    answered: Answered | None = None,
) -> Answered:
    answered = answered or Answered()
    for cycle, document in found:
        try:
            if document is None:
                raise InvalidRequest(DAMAGED)  # noqa: TRY301  (read raises it for other reasons)
            recording = read(document, installed)
            pairs = compare(cycle, recording)
        except InvalidRequest as error:
            answered.left_out += 1
            answered.why_left_out = answered.why_left_out or f"cycle {cycle.id}: {error}"
            continue
        answered.cycles += 1
        answered.decisions += recording.planned
        if pairs:
            answered.otherwise += 1
            if len(answered.first) < SHOWN:
                answered.first.append(Otherwise(cycle=cycle.id, at=cycle.at, pairs=pairs))
    return answered


def _exactly(cycle: Recorded, recording: Recording) -> tuple[tuple[Step | None, Step | None], ...]:
    steps = decide(recording.seen).steps
    now = planned(recording.seen, steps)
    taken = range(recording.planned) if recording.taken is None else recording.taken
    then = [_without_outcome(step) for step in cycle.steps]
    wanted = [now[at] if at < len(now) else None for at in taken]
    pairs = [*zip_longest(then, wanted), *((None, step) for step in now[recording.planned :])]
    return tuple((was, would) for was, would in pairs if was != would)


def planned(seen: Snapshot, steps: Sequence[Planned]) -> list[Step]:
    """Steps as a cycle records them, and as the database gives them back."""
    cycle = Cycle(started_at=None, epoch=None, seen=seen, outcomes=tuple(Outcome(each, done=False) for each in steps))
    return [_without_outcome(step) for step in json.loads(json.dumps(cycle.steps()))]


def _without_outcome(step: Step) -> Step:
    """What came of it is not the judgement's."""
    return {name: value for name, value in step.items() if name not in ("done", "said")}


def _acts(seen: Snapshot) -> list[Step]:
    return [step for step in planned(seen, decide(seen).steps) if step["action"] != "Note"]


def _more(steps: Sequence[Step], extra: Counter[str]) -> list[Step]:
    """The last of equal ones are those that are too many."""
    found: list[Step] = []
    for step in reversed(steps):
        if extra[_what(step)] > 0:
            extra[_what(step)] -= 1
            found.insert(0, step)
    return found


def _what(step: Step) -> str:
    what = {name: value for name, value in step.items() if name not in ("phase", "code", "reason", "numbers")}
    return json.dumps(what, sort_keys=True)


MOST_JOBS = 5_000_000


def read_history(database: Database, pool: PoolId, span: timedelta) -> tuple[Trace, Boots | None]:
    """Without boot times where no start was ever timed."""

    def read(tx: Tx) -> tuple[Trace, Boots | None]:
        types = Classes()

        def rows() -> Iterator[tuple[float, float]]:
            for came, took, kind in stats_sql.ended_attempts(tx, pool, tx.now() - span, MOST_JOBS):
                types.add(kind)
                yield came.timestamp(), took

        timed = stats_sql.boot_times(tx, pool).seconds
        boots = Boots(sample_s=timed, failing=stats_sql.failing_starts(tx, pool)) if timed else None
        try:
            found = made(f"history of pool {pool}", rows(), types)
        except InvalidRequest as error:
            days = span.total_seconds() / 86_400
            said = f"no job of pool {pool} has ended within the last {days:g} days: run some, or give a --trace"
            raise InvalidRequest(said) from error
        # They are read by their end, so that the order is no surprise to anybody.
        return replace(found, said=()), boots

    return database.read(read)
