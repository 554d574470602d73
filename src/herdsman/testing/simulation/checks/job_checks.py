"""Checks on jobs: none is lost, none is completed twice, and every attempt has one outcome."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

from herdsman.states import JobStatus, Reason
from herdsman.testing.simulation.checks import audit
from herdsman.testing.simulation.checks.history import History, JobRow


def lost(history: History) -> Iterator[str]:
    """J1: what was accepted has a row, and comes to its end once the faults are over."""
    rows = audit.job_rows(history)
    accepted = {each.job_id: each for each in history.submissions}
    for job_id, submission in accepted.items():
        if job_id not in rows:
            yield f"job {job_id} was accepted at {submission.at:.3f} and has no row"
    known = accepted.keys() | history.asked
    for job_id in rows if history.submissions else ():
        if job_id not in known:
            yield f"job {job_id} has a row, and nobody submitted it"
    for job_id, row in rows.items() if history.quiet else ():
        waits = row.status == JobStatus.SCHEDULED and row.run_at > history.ended_at
        if row.status not in audit.ENDED and not waits:
            yield f"job {job_id} is still {row.status} at {history.ended_at:.3f}, when all should have ended"
    if history.limits.settled_s is not None:
        yield from _late(history, rows, history.limits.settled_s)


def _late(history: History, rows: dict[str, JobRow], allowed_s: float) -> Iterator[str]:
    for job_id, story in audit.stories_of(history).items():
        queued = next((move.at for move in audit.lives(story)[-1] if move.new == audit.PENDING), None)
        if queued is None or job_id not in rows:
            continue
        ended = story[-1].at if rows[job_id].status in audit.ENDED else history.ended_at
        since = max(queued, history.last_fault_at)
        if ended - since > allowed_s:
            yield (
                f"job {job_id} had no end for {ended - since:.3f} s after {since:.3f}, and {allowed_s} s are allowed"
            )


def cancelled(history: History) -> Iterator[str]:
    """J7: after an acknowledged cancel a job is never done, unless a person queued it again."""
    stories = audit.stories_of(history)
    for job_id, story in stories.items():
        yield from _done_all_the_same(job_id, story)
    rows = audit.job_rows(history)
    for each in history.cancels:
        story = stories.get(each.job_id)
        if story is not None:
            # The answer may come long after the commit, by another clock: any cancel in the audit explains it.
            if not any(map(audit.says_cancelled, story)):
                yield (
                    f"job {each.job_id} was called cancelled at {each.at:.3f},"
                    f" and its audit knows of no cancel; it is {story[-1].new}"
                )
        elif each.job_id in rows and rows[each.job_id].status == audit.DONE:
            yield f"job {each.job_id} was called cancelled at {each.at:.3f} and is done"


def _done_all_the_same(job_id: str, story: audit.Story) -> Iterator[str]:
    for life in audit.lives(story):
        told: float | None = None
        for move in life:
            if told is not None and move.new == audit.DONE:
                yield f"job {job_id} was cancelled at {told:.3f} and done at {move.at:.3f}"
            if told is None and audit.says_cancelled(move):
                told = move.at


def completed_once(history: History) -> Iterator[str]:
    """J3: at most one completion; a life of a job ends where a person queues it again."""
    stories = audit.stories_of(history)
    for job_id, story in stories.items():
        for life in audit.lives(story):
            times = [f"{move.at:.3f}" for move in life if move.new == audit.DONE and move.old != audit.DONE]
            if len(times) > 1:
                yield f"job {job_id} was done {len(times)} times: at {audit.listed(times)}"
    rows = audit.job_rows(history)
    for each in history.submissions:
        row = rows.get(each.job_id)
        checked = row is not None and row.status == audit.DONE and each.expected is not None
        if row is not None and checked and row.result != each.expected:
            yield f"job {each.job_id} is done with {row.result!r}, and {each.expected!r} is right"
    completing = {job_id: audit.done_tokens(story) for job_id, story in stories.items()}
    yield from _receipts(history, completing)
    yield from _by_nobody(history, completing)


def executed_once(history: History) -> Iterator[str]:
    """J11, J14: one token, one execution, also by the worker that holds it; and none of what was given back unbegun."""
    for (job_id, token), times in Counter((run.job_id, run.token) for run in history.runs).items():
        if times > 1:
            by = audit.listed(dict.fromkeys(run.process or run.worker for run in history.runs if run.job_id == job_id))
            yield f"claim {token} of job {job_id} was executed {times} times, by {by}"
    unbegun = {
        (job_id, token)
        for job_id, story in audit.stories_of(history).items()
        for move, token in audit.tokens_of(story)
        if move.reason == Reason.NOT_BEGUN and move.actor.startswith("worker:")
    }
    for run in history.runs:
        if (run.job_id, run.token) in unbegun:
            yield f"claim {run.token} of job {run.job_id} was given back as not begun, and {run.worker} had begun it"


def ends_kept(history: History) -> Iterator[str]:
    """J12: an end that was reached is recorded, or the claim was lost before anybody could be told."""
    attempts = {(each.job_id, each.token): each for each in history.attempts}
    given_back = {
        (job_id, token)
        for job_id, story in audit.stories_of(history).items()
        for move, token in audit.tokens_of(story)
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
    for job_id, saves in audit.grouped(history.saves, lambda saved: saved.job_id).items():
        for each in saves:
            kept = max((one.value for one in saves if one.kept is not None and one.kept < each.began), default=None)
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
    stories = audit.stories_of(history)
    for job_id, renderings in audit.grouped(history.renderings, lambda rendering: rendering.job_id).items():
        for before, after in pairwise(sorted(renderings, key=lambda one: one.began)):
            again = any(audit.is_reopening(move) for move in stories.get(job_id, ()))
            if before.over_at > after.began and not again:
                yield (
                    f"job {job_id} was rendered from {before.began:.3f} on, and again from {after.began:.3f} on"
                    " while the service knew it"
                )


def _receipts(history: History, completing: Mapping[str, set[int]]) -> Iterator[str]:
    said: dict[tuple[str, int], str] = {}
    for each in history.receipts:
        before = said.setdefault((each.job_id, each.token), each.status)
        if before != each.status:
            yield (
                f"claim {each.token} of job {each.job_id} was answered with {before},"
                f" and at {each.at:.3f} with {each.status}"
            )
        right = completing.get(each.job_id)
        if each.status == audit.DONE and right is not None and each.token not in right:
            yield (
                f"{each.worker} was told at {each.at:.3f} that claim {each.token} of job {each.job_id} is done,"
                f" and it was completed by {audit.listed(sorted(right))}"
            )


def _by_nobody(history: History, completing: Mapping[str, set[int]]) -> Iterator[str]:
    """Somebody must have done it: a worker that was told so, or one that got to its end and never heard."""
    if not history.receipts and not history.runs:
        return
    told = {(each.job_id, each.token) for each in history.receipts if each.status == audit.DONE}
    ran = {(each.job_id, each.token) for each in history.runs if each.ended is not None and not each.stopped_by}
    for job_id, tokens in completing.items():
        for token in tokens:
            if (job_id, token) not in told and (job_id, token) not in ran:
                yield f"job {job_id} is done by claim {token}, and no handler of that claim came to its end"


def conservation(history: History) -> Iterator[str]:
    """J1, A1: what came in is what is there; every life of a job has one end, and so has every attempt."""
    rows = audit.job_rows(history)
    submitted = {each.job_id for each in history.submissions}
    states = Counter(rows[job_id].status for job_id in submitted if job_id in rows)
    if states.total() != len(submitted):
        yield f"{len(submitted)} jobs were submitted, and {states.total()} are there: {dict(states)}"
    for job_id, story in audit.stories_of(history).items():
        told = audit.lives(story)
        for number, life in enumerate(told, start=1):
            ends = sum(map(audit.is_end, life))
            over = history.quiet or number < len(told)
            if ends > 1 or (over and ends == 0):
                yield f"life {number} of job {job_id}, begun at {life[0].at:.3f}, has {ends} ends"
    yield from _attempts(history)


def _attempts(history: History) -> Iterator[str]:
    # What each claim ended in, by the audit.
    told = {
        (job_id, token): move.new
        for job_id, story in audit.stories_of(history).items()
        for move, token in audit.tokens_of(story)
        if move.old in audit.IN_HAND and move.new not in audit.IN_HAND
    }
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
