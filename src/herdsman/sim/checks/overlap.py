"""Two workers at one job, and what must not lead to it."""

from collections import defaultdict
from collections.abc import Iterator
from math import inf

from herdsman.sim.checks.history import History, Run
from herdsman.sim.checks.stories import end_of


def two_at_once(history: History) -> Iterator[str]:
    """W5: the next run of a job begins after the one before has ended: a worker that is cut off stops in time.

    One whose machine stands still cannot stop itself, and does so soon after it has woken (`excused_until`).
    """
    by_job: defaultdict[str, list[Run]] = defaultdict(list)
    for run in history.runs:
        by_job[run.job_id].append(run)
    for job_id, runs in by_job.items():
        runs.sort(key=lambda run: run.began)
        last = runs[0]
        for run in runs[1:]:
            both_until = min(end_of(last), end_of(run))
            if run.began < both_until > _excused_until(last, run):
                yield (
                    f"{run.worker} began with job {job_id} (claim {run.token}) at {run.began:.3f},"
                    f" and {last.worker} was at it (claim {last.token}) until {end_of(last):.3f}"
                )
            last = max(last, run, key=end_of)


def fenced(history: History) -> Iterator[str]:
    """W5: a worker that is cut off stops what it runs, before anybody else is given it."""
    if history.limits.fence_s is None:
        return
    for cut in history.cuts:
        latest = cut.since + history.limits.fence_s
        for run in history.runs:
            at_work = run.process == cut.process and run.began <= cut.since
            if at_work and min(end_of(run), cut.until) > max(latest, run.excused_until):
                yield (
                    f"{run.process} was cut off from {cut.since:.3f} to {cut.until:.3f}, and was at job {run.job_id}"
                    f" (claim {run.token}) until {end_of(run):.3f}"
                )


def _excused_until(last: Run, run: Run) -> float:
    """A worker that woke beside its successor shares its name, and so its claims: nobody can tell the two apart."""
    excused = max(last.excused_until, run.excused_until)
    twins = (last.worker, last.token) == (run.worker, run.token)
    return inf if twins and excused > -inf else excused
