"""The whole herd at a glance: one transaction, every part of it bounded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from herdsman import __version__
from herdsman.control.decisions import steps_of
from herdsman.control.seldom import Seldom
from herdsman.control.services import Services
from herdsman.core.holds import ALL, Hold, HoldKind
from herdsman.core.states import WORKER, JobState
from herdsman.db.connection import Tx
from herdsman.ports import Clock
from herdsman.store import cycles, jobs, leader, ledger, queues, tally
from herdsman.store.holds import standing
from herdsman.wire.fleet import LeadOut, OverviewOut, QueueOut, RecoveredOut, SeriesOut, StepOut

HOUR = timedelta(hours=1)
POINTS = 120
READ = 60
"""Cycles that are looked through for the latest decisions."""
SHOWN = 10
MOST_SERIES = 12
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Counted:
    """What takes a look at many rows."""

    jobs: Mapping[JobState, int]
    queues: Sequence[queues.Queue]


def overview(services: Services) -> OverviewOut:
    return services.database.read(lambda tx: _overview(tx, _count(tx)))


class Overviews:
    """Shared by all who ask. What has to be counted is counted less often than the rest is looked at."""

    def __init__(self, services: Services, clock: Clock) -> None:
        self._database = services.database
        self._counts = Seldom(lambda: self._database.read(_count), clock)
        self._shared = Seldom(self._look, clock)

    def get(self) -> OverviewOut:
        return self._shared.get()

    def _look(self) -> OverviewOut:
        counted = self._counts.get()
        return self._database.read(lambda tx: _overview(tx, counted))


def _count(tx: Tx) -> Counted:
    return Counted(jobs.count_by_state(tx), queues.queues(tx))


def _overview(tx: Tx, many: Counted) -> OverviewOut:
    now, held = tx.now(), tally.jobs_held(tx)
    oldest = queues.oldest(tx)
    counted, saved = tally.recovered(tx)
    return OverviewOut(
        now=now,
        version=__version__,
        leader=_leader(tx),
        jobs={state.value: count for state, count in many.jobs.items()},
        oldest_wait_s=None if oldest is None else _seconds(oldest[1], now),
        oldest_job=None if oldest is None else oldest[0],
        queue=tuple(_queue(each, now) for each in many.queues),
        running=held,
        workers=_workers(tx),
        cost_per_hour=float(ledger.rate(tx)),
        cost_today=float(ledger.spent(tx)["day"]),
        recovered=RecoveredOut(jobs=counted, saved_gpu_seconds=saved),
        holds=tuple(hold_words(each) for each in standing(tx).holds),
        last_decisions=_decisions(tx),
        series=_series(cycles.spread_over(tx, now - HOUR, POINTS)),
    )


def _leader(tx: Tx) -> LeadOut | None:
    term = leader.find(tx)
    if term is None or term.expires_at <= tx.now():
        return None
    return LeadOut(who=term.holder, epoch=term.epoch, since=term.acquired_at)


def _queue(each: queues.Queue, now: datetime) -> QueueOut:
    return QueueOut(type=each.type, pool=each.pool, queued=each.count, oldest_s=_seconds(each.oldest, now))


def _workers(tx: Tx) -> dict[str, int]:
    living = tally.living_workers(tx)
    return {state.value: living.get(state, 0) for state in WORKER.states if state in WORKER.live}


def hold_words(hold: Hold) -> str:
    """What is stopped, by whom, why, and how it goes on."""
    scope = hold.scope.partition(":")
    what = "everything" if hold.scope == ALL else f"{scope[0]} {scope[2]}"
    option = "" if hold.scope == ALL else f" --{scope[0]} {scope[2]}"
    how = "is drained" if hold.kind is HoldKind.DRAIN else "is paused"
    why = f" ({hold.why})" if hold.why else ""
    until = "" if hold.until is None else f", until {hold.until:%Y-%m-%d %H:%M:%S} UTC"
    return f"{what} {how} by {hold.actor}{why}{until}; go on with: herdsman resume{option}"


def _decisions(tx: Tx) -> tuple[StepOut, ...]:
    """Equal ones in a row are one: a fleet that waits says the same every half minute."""
    found, _ = cycles.listed(tx, lambda each: bool(each.steps), before=None, limit=READ)
    told: list[StepOut] = []
    for step in (step for each in found for step in reversed(steps_of(each))):
        same = next((number for number, other in enumerate(told) if _same(step, other)), None)
        if same is not None:
            told[same] = told[same].model_copy(update={"times": told[same].times + 1})
        elif len(told) == SHOWN:
            break
        else:
            told.append(step)
    return tuple(told)


def _same(one: StepOut, other: StepOut) -> bool:
    return (one.action, one.code, one.about, one.done) == (other.action, other.code, other.about, other.done)


def _series(points: Sequence[tuple[datetime, Mapping[str, Any]]]) -> SeriesOut:
    """By type where every cycle counted them; a queue that was too long for that is shown by pool."""
    by_type = all(summary.get("types") is not None for _, summary in points)
    rows: list[Mapping[str, int]] = [
        (summary["types"] if by_type else summary.get("queued", {})) for _, summary in points
    ]
    status: list[Mapping[str, int]] = [summary.get("status", {}) for _, summary in points]
    # The loop's own count leaves out pools that it does not keep; what waits for them waits, too.
    kept = [each.get("queued_tasks", 0) for each in status]
    return SeriesOut(
        by="type" if by_type else "pool",
        at=tuple(at for at, _ in points),
        queued=_columns(rows),
        total=tuple(sum(row.values()) for row in rows) if by_type else tuple(kept),
        running=tuple(summary.get("running") for _, summary in points),
        active=tuple(each.get("active_workers", 0) for each in status),
    )


def _columns(rows: Sequence[Mapping[str, int]]) -> dict[str, tuple[int, ...]]:
    """One for each name, those with the most jobs first; what is too much for a plot is one together."""
    totals: dict[str, int] = {}
    for row in rows:
        for name, count in row.items():
            totals[name] = totals.get(name, 0) + count
    names = sorted(totals, key=lambda name: (-totals[name], name))
    shown, rest = names[:MOST_SERIES], names[MOST_SERIES:]
    columns = {name: tuple(row.get(name, 0) for row in rows) for name in shown}
    if rest:
        columns[OTHERS] = tuple(sum(row.get(name, 0) for name in rest) for row in rows)
    return columns


def _seconds(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())
