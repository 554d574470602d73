"""One completion for each life of a job, by the claim that was told so, and with the right result."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from herdsman.core.reasons import Reason
from herdsman.sim.checks.history import History, Rendering, Saved
from herdsman.sim.checks.stories import (
    DONE,
    done_tokens,
    is_reopening,
    job_rows,
    listed,
    lives,
    stories_of,
    tokens_of,
)


def completed_once(history: History) -> Iterator[str]:
    """J3: at most one completion; a life of a job ends where a person queues it again."""
    stories = stories_of(history)
    for job_id, story in stories.items():
        for life in lives(story):
            times = [f"{move.at:.3f}" for move in life if move.new == DONE and move.old != DONE]
            if len(times) > 1:
                yield f"job {job_id} was done {len(times)} times: at {listed(times)}"
    yield from _results(history)
    completing = {job_id: done_tokens(story) for job_id, story in stories.items()}
    yield from _receipts(history, completing)
    yield from _by_nobody(history, completing)


def executed_once(history: History) -> Iterator[str]:
    """J11: one token, one execution, also by the worker that holds it."""
    for (job_id, token), times in Counter((run.job_id, run.token) for run in history.runs).items():
        if times > 1:
            by = listed(
                dict.fromkeys(run.process or run.worker for run in history.runs if run.job_id == job_id)
            )
            yield f"claim {token} of job {job_id} was executed {times} times, by {by}"


def ends_kept(history: History) -> Iterator[str]:
    """J12: an end that was reached is recorded, or the claim was lost before anybody could be told."""
    attempts = {(each.job_id, each.token): each for each in history.attempts}
    given_back = {
        (job_id, token)
        for job_id, story in stories_of(history).items()
        for move, token in tokens_of(story)
        if move.reason == Reason.RELEASED and move.actor.startswith("worker:")
    }
    for run in history.runs:
        attempt = attempts.get((run.job_id, run.token))
        if attempt is None or run.ended is None or run.stopped_by:
            continue
        if (run.job_id, run.token) in given_back:
            yield f"{run.worker} gave job {run.job_id} (claim {run.token}) back, which had ended at {run.ended:.3f}"
        expired = attempt.reason in (Reason.CLAIM_EXPIRED, Reason.KILLS_WORKERS)
        allowed = history.limits.report_s
        if expired and allowed is not None and run.able_s is not None and run.able_s > allowed:
            yield (
                f"job {run.job_id} ended at {run.ended:.3f} (claim {run.token}), {run.worker} could have said so"
                f" for {run.able_s:.3f} s, and its claim expired"
            )


def checkpoints(history: History) -> Iterator[str]:
    """What was kept is found by the next attempt, and no old claim writes over it."""
    by_job: defaultdict[str, list[Saved]] = defaultdict(list)
    for each in history.saves:
        by_job[each.job_id].append(each)
    for job_id, saves in by_job.items():
        for each in saves:
            kept = max(
                (one.value for one in saves if one.kept is not None and one.kept < each.began), default=None
            )
            if kept is not None and (not isinstance(each.found, int) or each.found < kept):
                yield (
                    f"claim {each.token} of job {job_id} found the checkpoint {each.found} at {each.began:.3f},"
                    f" and {kept} had been kept"
                )
        kept_in_turn = sorted((each for each in saves if each.kept is not None), key=lambda one: one.value)
        for before, after in pairwise(kept_in_turn):
            if after.token < before.token:
                yield f"claim {after.token} of job {job_id} saved a checkpoint after claim {before.token} had"


def rendered_once(history: History) -> Iterator[str]:
    """Nothing is handed to a service again that it still knows: only what was stopped there, or forgotten, or what a
    person put back into the queue."""
    stories = stories_of(history)
    by_job: defaultdict[str, list[Rendering]] = defaultdict(list)
    for each in history.renderings:
        by_job[each.job_id].append(each)
    for job_id, renderings in by_job.items():
        for before, after in pairwise(sorted(renderings, key=lambda one: one.began)):
            again = any(is_reopening(move) for move in stories.get(job_id, ()))
            if before.over_at > after.began and not again:
                yield (
                    f"job {job_id} was rendered from {before.began:.3f} on, and again from {after.began:.3f} on"
                    " while the service knew it"
                )


def _results(history: History) -> Iterator[str]:
    rows = job_rows(history)
    for each in history.submissions:
        row = rows.get(each.job_id)
        if row is None or row.status != DONE or each.expected is None:
            continue
        if row.result != each.expected:
            yield f"job {each.job_id} is done with {row.result!r}, and {each.expected!r} is right"


def _receipts(history: History, completing: Mapping[str, set[int]]) -> Iterator[str]:
    said: dict[tuple[str, int], str] = {}
    for each in history.receipts:
        before = said.setdefault((each.job_id, each.token), each.state)
        if before != each.state:
            yield (
                f"claim {each.token} of job {each.job_id} was answered with {before},"
                f" and at {each.at:.3f} with {each.state}"
            )
        right = completing.get(each.job_id)
        if each.state == DONE and right is not None and each.token not in right:
            yield (
                f"{each.worker} was told at {each.at:.3f} that claim {each.token} of job {each.job_id} is done,"
                f" and it was completed by {listed(sorted(right))}"
            )


def _by_nobody(history: History, completing: Mapping[str, set[int]]) -> Iterator[str]:
    """Somebody must have done it: a worker that was told so, or one that got to its end and never heard."""
    if not history.receipts and not history.runs:
        return
    told = {(each.job_id, each.token) for each in history.receipts if each.state == DONE}
    ran = {
        (each.job_id, each.token) for each in history.runs if each.ended is not None and not each.stopped_by
    }
    for job_id, tokens in completing.items():
        for token in tokens:
            if (job_id, token) not in told and (job_id, token) not in ran:
                yield f"job {job_id} is done by claim {token}, and no handler of that claim came to its end"
