"""Claims are fenced by numbers: each has its own, and only the holder of the last one may speak."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from herdsman.core.states import JobState
from herdsman.sim.checks.history import AttemptRow, History, JobRow, Move
from herdsman.sim.checks.stories import (
    DONE,
    IN_HAND,
    Story,
    is_claim,
    job_rows,
    listed,
    lives,
    stories_of,
    tokens_of,
)

_BY_A_WORKER = (DONE, JobState.FAILED.value)
_WORKER = "worker:"


def tokens(history: History) -> Iterator[str]:
    """J3, J6: tokens rise by one with each claim and each requeue, and nobody acts on one that is not his."""
    rows, stories, attempts = job_rows(history), stories_of(history), _attempts(history)
    given: dict[str, list[int]] = {}
    for job_id, story in stories.items():
        told = list(tokens_of(story))
        given[job_id] = [token for move, token in told if is_claim(move)]
        yield from _numbers(job_id, told)
        yield from _hands(job_id, story)
        if job_id in rows:
            yield from _counted(rows[job_id], told, given[job_id], attempts.get(job_id, ()))
    yield from _never_given(history, given)


def _attempts(history: History) -> Mapping[str, Sequence[AttemptRow]]:
    found: defaultdict[str, list[AttemptRow]] = defaultdict(list)
    for each in history.attempts:
        found[each.job_id].append(each)
    return found


def _numbers(job_id: str, told: Sequence[tuple[Move, int]]) -> Iterator[str]:
    for move, token in told:
        if move.token is not None and move.token != token:
            yield f"job {job_id} had the token {move.token} after its move {move.seq} at {move.at:.3f}, not {token}"


def _hands(job_id: str, story: Story) -> Iterator[str]:
    """Only the worker that claimed a job ends it, or starts it, in its own name."""
    holder = ""
    for move in story:
        if move.new in _BY_A_WORKER and move.old not in IN_HAND:
            yield f"job {job_id} became {move.new} at {move.at:.3f} although nobody held it"
        if is_claim(move):
            holder = move.actor
        elif move.actor.startswith(_WORKER) and holder.startswith(_WORKER) and move.actor != holder:
            yield f"{move.actor} made job {job_id} {move.new} at {move.at:.3f}, and {holder} had claimed it"


def _counted(
    row: JobRow, told: Sequence[tuple[Move, int]], given: Sequence[int], attempts: Sequence[AttemptRow]
) -> Iterator[str]:
    written = sorted(each.token for each in attempts)
    if written != given:
        yield f"job {row.id} has attempts {listed(written)}, and was claimed with {listed(given)}"
    if row.claim_token != told[-1][1]:
        yield f"job {row.id} has the token {row.claim_token}, and its audit comes to {told[-1][1]}"
    claims = sum(map(is_claim, lives([move for move, _ in told])[-1]))
    if row.attempts != claims:
        yield f"job {row.id} counts {row.attempts} attempts, and was claimed {claims} times"


def _never_given(history: History, given: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Of what was really done or answered, every claim must have been given out, and to one worker."""
    holders = {(each.job_id, each.token): each.worker for each in history.attempts}
    for each in (*history.receipts, *history.runs):
        if each.job_id in given and each.token not in given[each.job_id]:
            yield f"{each.worker} acted on claim {each.token} of job {each.job_id}, which was never given out"
        holder = holders.get((each.job_id, each.token), each.worker)
        if holder != each.worker:
            yield f"{each.worker} acted on claim {each.token} of job {each.job_id}, which {holder} had"
