"""A policy that aims at a wait: it compares the jobs that must have begun by a moment with those that can have.

The moment is when a worker that is asked for at the next occasion could be there, or the end of the target wait,
whichever is later. What cannot begin by then without more workers is the reason for more; what can begin with fewer
is the reason to let some go. So nobody is paid for a wait that is short enough already.
"""

from dataclasses import dataclass
from datetime import timedelta
from math import ceil

from herdsman.core.policy import FleetPolicy
from herdsman.core.scaling.demand import Demand
from herdsman.core.scaling.forecast import busiest, coming, most_coming
from herdsman.core.scaling.observation import Load, Wanted, bounded
from herdsman.core.scaling.spans import Spans, spans
from herdsman.core.scaling.threshold import threshold

USUAL_BOOT_S = 120.0
"""Until a start has been timed."""
MOST_FAILING = 0.5
"""However many starts fail, at most twice as many workers are asked for: the breaker is there for the rest."""


@dataclass(frozen=True, slots=True)
class _View:
    """All in seconds from now."""

    by: float
    """The moment that is looked at."""
    target: float
    boot: float
    each: float
    """How long a job takes."""
    took: Spans
    fails: float
    """The share of workers that never come."""

    def begun(self, free_at: float) -> float:
        """Jobs that a worker has begun by the moment that is looked at, if it is free from then on."""
        return 0.0 if free_at > self.by else 1 + (self.by - free_at) / self.each

    @property
    def exposed(self) -> float:
        """For so long, jobs may come that have to begin before anything decided later could help them."""
        return max(0.0, self.by - self.target)


def adaptive(load: Load, policy: FleetPolicy) -> Wanted:
    """As many workers as keep the wait near TARGET_WAIT_SEC, and no more; without any history, as `threshold`."""
    known = load.demand
    if known is None or not known.service_s:
        usual = threshold(load, policy)
        return Wanted(usual.grow_to, usual.keep, {**usual.terms, "history": "none"}, _unknown(load))
    view = _view(load, policy, known)
    more = most_coming(known, view.exposed)
    busy = _begun_by_busy(load, view)
    can = busy + (load.active - load.busy) * view.begun(0.0) + _begun_by_starting(load, view)
    missing = _workers(load.queued + more - can, (1 - view.fails) * view.begun(view.boot))
    spare = _workers(load.queued + max(more, busiest(known, view.exposed)) - busy, view.begun(0.0))
    terms = _terms(load, policy, known, view, more=more, can=can)
    grow_to, keep = load.capacity + missing, load.busy + spare
    if load.since_scaled is not None and load.since_scaled < policy.min_scaling_interval:
        grow_to, keep = 0, max(load.capacity, keep)
    said = _said(load, policy, view, more=more, can=can, missing=missing)
    return Wanted(
        max(min(grow_to, policy.max_workers), bounded(0, policy)),
        bounded(keep, policy),
        terms,
        said,
        # As far as can be seen it is not needed, so it is given half of what the start of a new one would cost.
        timedelta(seconds=view.boot / 2),
    )


def _view(load: Load, policy: FleetPolicy, known: Demand) -> _View:
    took, starts = spans(known.service_s), spans(known.boots_s) if known.boots_s else None
    boot = USUAL_BOOT_S if starts is None else starts.mean + starts.deviation
    again = policy.min_scaling_interval.total_seconds()
    # On average a job has waited for half an interval when it is first reckoned with.
    target = max(0.0, policy.target_wait.total_seconds() - again / 2)
    return _View(
        by=max(target, boot + again),
        target=target,
        boot=boot,
        each=max(took.mean, 0.001),
        took=took,
        fails=min(MOST_FAILING, load.failures / load.starts) if load.starts else 0.0,
    )


def _begun_by_busy(load: Load, view: _View) -> float:
    """Each by how likely it ends its job in time, and how long it then has left."""
    begun = 0.0
    for held in load.held_for:
        chance, rest = view.took.ends_within(held.total_seconds(), view.by)
        begun += chance * view.begun(rest)
    return begun


def _begun_by_starting(load: Load, view: _View) -> float:
    """One that is late is as far from its end as it is late."""
    left = (abs(view.boot - age.total_seconds()) for age in load.starting_for)
    return (1 - view.fails) * sum(view.begun(each) for each in left)


def _workers(jobs: float, each: float) -> int:
    """Rounded up, but not for what is lost in the arithmetic."""
    return max(0, ceil(jobs / each - 1e-6))


def _terms(
    load: Load, policy: FleetPolicy, known: Demand, view: _View, *, more: float, can: float
) -> dict[str, int | float | str]:
    return {
        "queued": load.queued,
        "capacity": load.capacity,
        "busy": load.busy,
        "target_s": policy.target_wait.total_seconds(),
        "service_s": round(view.each, 1),
        "boot_s": round(view.boot, 1),
        "per_minute": round(60 * coming(known), 2),
        "must_begin": round(load.queued + more, 1),
        "can_begin": round(can, 1),
        "within_s": round(view.by, 1),
        "usd_per_hour": round(load.cost_per_hour, 4),
    }


def _said(load: Load, policy: FleetPolicy, view: _View, *, more: float, can: float, missing: int) -> str:
    wait = f"{policy.target_wait.total_seconds():.0f}s"
    jobs = f"{load.queued} jobs wait and up to {more:.0f} more come in time to matter"
    if missing == 0:
        return f"{jobs}; {can:.0f} can begin within {view.by:.0f}s, so the wait stays near {wait}"
    return f"{jobs}; only {can:.0f} can begin within {view.by:.0f}s, so {missing} more workers keep the wait near {wait}"


def _unknown(load: Load) -> str:
    return f"{load.queued} jobs wait, and none has been done yet that could tell how long they take"
