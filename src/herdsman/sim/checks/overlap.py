"""Two workers at one job."""

from collections import defaultdict
from collections.abc import Iterator

from herdsman.sim.checks.history import History, Run
from herdsman.sim.checks.stories import end_of


def two_at_once(history: History) -> Iterator[str]:
    """W5: the next run of a job begins after the one before has ended: a worker that is cut off stops in time.

    `overlaps_allowed` switches it off: a handler whose machine stands still cannot stop itself.
    """
    if history.overlaps_allowed:
        return
    by_job: defaultdict[str, list[Run]] = defaultdict(list)
    for run in history.runs:
        by_job[run.job_id].append(run)
    for job_id, runs in by_job.items():
        runs.sort(key=lambda run: run.began)
        last = runs[0]
        for run in runs[1:]:
            if run.began < end_of(last):
                yield (
                    f"{run.worker} began with job {job_id} (claim {run.token}) at {run.began:.3f},"
                    f" and {last.worker} was at it (claim {last.token}) until {end_of(last):.3f}"
                )
            last = max(last, run, key=end_of)
