"""Nothing is added on the way, and nothing is left out."""

from collections import Counter
from collections.abc import Iterator

from herdsman.sim.checks.history import History
from herdsman.sim.checks.stories import IN_HAND, is_end, job_rows, lives, stories_of, tokens_of


def conservation(history: History) -> Iterator[str]:
    """J1, A1: what came in is what is there; every life of a job has one end, and so has every attempt."""
    rows = job_rows(history)
    submitted = {each.job_id for each in history.submissions}
    states = Counter(rows[job_id].status for job_id in submitted if job_id in rows)
    if states.total() != len(submitted):
        yield f"{len(submitted)} jobs were submitted, and {states.total()} are there: {dict(states)}"
    yield from _ends(history)
    yield from _attempts(history)


def _ends(history: History) -> Iterator[str]:
    for job_id, story in stories_of(history).items():
        told = lives(story)
        for number, life in enumerate(told, start=1):
            ends = sum(map(is_end, life))
            over = history.quiet or number < len(told)
            if ends > 1 or (over and ends == 0):
                yield f"life {number} of job {job_id}, begun at {life[0].at:.3f}, has {ends} ends"


def _attempts(history: History) -> Iterator[str]:
    told = _outcomes(history)
    seen: set[tuple[str, int]] = set()
    for each in history.attempts:
        key, named = (each.job_id, each.token), f"attempt {each.token} at job {each.job_id}"
        if key in seen:
            yield f"{named} is written down twice"
        seen.add(key)
        if history.quiet and each.ended_at is None:
            yield f"{named}, claimed at {each.claimed_at:.3f}, has no end"
        if history.moves and each.outcome != told.get(key):
            yield f"{named} ended as {each.outcome}, and the audit says {told.get(key)}"


def _outcomes(history: History) -> dict[tuple[str, int], str]:
    """What each claim ended in, by the audit."""
    return {
        (job_id, token): move.new
        for job_id, story in stories_of(history).items()
        for move, token in tokens_of(story)
        if move.old in IN_HAND and move.new not in IN_HAND
    }
