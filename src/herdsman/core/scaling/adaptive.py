"""A policy that aims at a wait: it compares the jobs that must have begun by a moment with those that can have.

Where a worker that is asked for when a job waits is there in time, the moment is the end of the target wait, and as
many are asked for as begin enough of the jobs in time, though some starts are slow. Where it would come too late, the
moment is when it could be there, and workers wait for the jobs that may come until then. How many of the latest jobs
were late says how sure it has to be, so that nobody is paid for a wait that is short enough already.
"""

from datetime import timedelta
from math import ceil

from herdsman.core.policy import FleetPolicy
from herdsman.core.scaling.demand import Demand
from herdsman.core.scaling.forecast import busiest, coming, most_coming
from herdsman.core.scaling.observation import Load, Wanted, bounded
from herdsman.core.scaling.outlook import Outlook, outlook
from herdsman.core.scaling.threshold import threshold

HALFWAY = 0.5
"""What comes early on the way has to begin earlier: the moment is not the only one to be looked at."""
KEPT = 2.0
"""Where starts are slow, who is there is kept for so many times the jobs that may come; nobody is started for them."""
BRIEFLY = 0.25
"""A worker too many may be idle for this share of a start where another comes in time; else for a whole one."""


def adaptive(load: Load, policy: FleetPolicy) -> Wanted:
    """As many workers as keep the wait near TARGET_WAIT_SEC, and no more; without any history, as `threshold`."""
    known = load.demand
    if known is None or not known.service_s:
        usual = threshold(load, policy)
        return Wanted(usual.grow_to, usual.keep, {**usual.terms, "history": "none"}, _unknown(load))
    view = outlook(load, policy, known)
    more = view.crowd(most_coming(known, view.exposed), view.exposed)
    can, missing = _missing(load, view, known, more)
    grow_to, keep = load.capacity + missing, load.busy + _spare(load, view, known)
    if load.since_scaled is not None and load.since_scaled < policy.min_scaling_interval:
        # Who starts is counted, so that growing needs no pause; what was asked for a moment ago is not sent away.
        keep = max(load.capacity, keep)
    return Wanted(
        max(min(grow_to, policy.max_workers), bounded(0, policy)),
        bounded(keep, policy),
        _terms(load, view, known, more=more, can=can),
        _said(load, view, more=more, can=can, missing=missing),
        timedelta(seconds=view.starts.mean * (BRIEFLY if view.starts_help else 1)),
    )


def _missing(load: Load, view: Outlook, known: Demand, more: float) -> tuple[float, int]:
    """How many jobs can begin in time, and how many workers it takes that the others do as well."""
    must = load.queued + more
    there = view.by_busy(load, view.by) + (load.active - load.busy) * view.begun(0.0, view.by)
    starting = [view.by_starting(age.total_seconds()) for age in load.starting_for]
    can, ever = there + sum(each for each, _ in starting), there + sum(each for _, each in starting)
    one, one_ever = view.by_starting(0.0)
    needed = view.racing(view.lateness.must(must), there) if view.starts_help else must
    missing = max(_workers(needed - can, one), _workers(must - ever, one_ever))
    if view.exposed:
        early, each = _early(load, view, known)
        alive = 1 - view.fails
        here = (load.active - load.busy + alive * load.spawning) * each
        missing = max(missing, _workers(early - here, alive * each))
    return can, missing


def _spare(load: Load, view: Outlook, known: Demand) -> int:
    """Workers beyond the busy ones that are kept: who was needed within the last hour may soon be again.

    Twice what may come at most, though nobody was late: what is let go too early takes a whole start to come back.
    """
    wide = KEPT * max(busiest(known, view.exposed), most_coming(known, view.exposed))
    spare = _workers(load.queued + wide - view.by_busy(load, view.by), view.begun(0.0, view.by))
    return max(spare, _workers(*_early(load, view, known))) if view.exposed else spare


def _early(load: Load, view: Outlook, known: Demand) -> tuple[float, float]:
    """Jobs that must have begun half the way and that the busy do not begin, and how many a free worker begins."""
    span = HALFWAY * view.exposed
    until = view.target + span
    crowd = view.crowd(most_coming(known, span), span)
    return load.queued + crowd - view.by_busy(load, until), view.begun(0.0, until)


def _workers(jobs: float, each: float) -> int:
    """Rounded up, but not for what is lost in the arithmetic."""
    return max(0, ceil(jobs / each - 1e-6))


def _terms(
    load: Load, view: Outlook, known: Demand, *, more: float, can: float
) -> dict[str, int | float | str]:
    return {
        "queued": load.queued,
        "capacity": load.capacity,
        "busy": load.busy,
        "target_s": view.target,
        "service_s": round(view.each, 1),
        "boot_s": round(view.starts.mean, 1),
        "per_minute": round(60 * coming(known), 2),
        "must_begin": round(load.queued + more, 1),
        "can_begin": round(can, 1),
        "within_s": round(view.by, 1),
        "late": view.lateness.late,
        "of_jobs": view.lateness.jobs,
        "usd_per_hour": round(load.cost_per_hour, 4),
    }


def _said(load: Load, view: Outlook, *, more: float, can: float, missing: int) -> str:
    jobs = f"{load.queued} jobs wait and up to {more:.0f} more come in time to matter"
    wait = f"the wait near {view.target:.0f}s ({view.lateness.late} of the latest {view.lateness.jobs} jobs were late)"
    if missing == 0:
        return f"{jobs}; {can:.0f} can begin within {view.by:.0f}s, which keeps {wait}"
    return f"{jobs}; only {can:.0f} can begin within {view.by:.0f}s, so {missing} more workers keep {wait}"


def _unknown(load: Load) -> str:
    return f"{load.queued} jobs wait, and none has been done yet that could tell how long they take"
