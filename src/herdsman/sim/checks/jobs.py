"""What may never become of a job: lost, or done after somebody was told that it is cancelled."""

from collections.abc import Iterator

from herdsman.core.states import JobState
from herdsman.sim.checks.history import Cancel, History, JobRow
from herdsman.sim.checks.stories import (
    DONE,
    ENDED,
    PENDING,
    Story,
    job_rows,
    lives,
    says_cancelled,
    stories_of,
)


def lost(history: History) -> Iterator[str]:
    """J1: what was accepted has a row, and comes to its end once the faults are over."""
    rows = job_rows(history)
    accepted = {each.job_id: each for each in history.submissions}
    for job_id, submission in accepted.items():
        if job_id not in rows:
            yield f"job {job_id} was accepted at {submission.at:.3f} and has no row"
    known = accepted.keys() | history.asked
    for job_id in rows if history.submissions else ():
        if job_id not in known:
            yield f"job {job_id} has a row, and nobody submitted it"
    if history.quiet:
        yield from _unfinished(history, rows)
    if history.limits.settled_s is not None:
        yield from _late(history, rows, history.limits.settled_s)


def _unfinished(history: History, rows: dict[str, JobRow]) -> Iterator[str]:
    for job_id, row in rows.items():
        waits_by_wish = row.status == JobState.SCHEDULED and row.run_at > history.ended_at
        if row.status not in ENDED and not waits_by_wish:
            yield f"job {job_id} is still {row.status} at {history.ended_at:.3f}, when all should have ended"


def _late(history: History, rows: dict[str, JobRow], allowed_s: float) -> Iterator[str]:
    for job_id, story in stories_of(history).items():
        queued = next((move.at for move in lives(story)[-1] if move.new == PENDING), None)
        if queued is None or job_id not in rows:
            continue
        ended = story[-1].at if rows[job_id].status in ENDED else history.ended_at
        since = max(queued, history.last_fault_at)
        if ended - since > allowed_s:
            yield (
                f"job {job_id} had no end for {ended - since:.3f} s after {since:.3f},"
                f" and {allowed_s} s are allowed"
            )


def cancelled(history: History) -> Iterator[str]:
    """J7: after an acknowledged cancel a job is never done, unless a person queued it again."""
    stories = stories_of(history)
    for job_id, story in stories.items():
        yield from _done_all_the_same(job_id, story)
    rows = job_rows(history)
    for each in history.cancels:
        story = stories.get(each.job_id)
        if story is not None:
            yield from _unheard(each, story)
        elif each.job_id in rows and rows[each.job_id].status == DONE:
            yield f"job {each.job_id} was called cancelled at {each.at:.3f} and is done"


def _done_all_the_same(job_id: str, story: Story) -> Iterator[str]:
    for life in lives(story):
        told: float | None = None
        for move in life:
            if told is not None and move.new == DONE:
                yield f"job {job_id} was cancelled at {told:.3f} and done at {move.at:.3f}"
            if told is None and says_cancelled(move):
                told = move.at


def _unheard(cancel: Cancel, story: Story) -> Iterator[str]:
    """The answer may come long after the commit, by another clock: any cancel in the audit explains it."""
    if not any(map(says_cancelled, story)):
        yield (
            f"job {cancel.job_id} was called cancelled at {cancel.at:.3f},"
            f" and its audit knows of no cancel; it is {story[-1].new}"
        )
