"""Checks on claims: fencing tokens, who may claim and when, retries, and two workers at one job."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from herdsman.states import JOB, WORKER, JobStatus, Reason, WorkerStatus
from herdsman.testing.simulation.checks import audit
from herdsman.testing.simulation.checks.history import AttemptRow, History, JobRow, Limits, Move

_BY_A_WORKER = (audit.DONE, JobStatus.FAILED.value)
_WORKER = "worker:"


def tokens(history: History) -> Iterator[str]:
    """J3, J6: tokens rise by one with each claim and each requeue, and nobody acts on one that is not his."""
    rows, stories = audit.job_rows(history), audit.stories_of(history)
    attempts = audit.grouped(history.attempts, lambda attempt: attempt.job_id)
    given: dict[str, list[int]] = {}
    for job_id, story in stories.items():
        told = list(audit.tokens_of(story))
        given[job_id] = [token for move, token in told if audit.is_claim(move)]
        for move, token in told:
            if move.token is not None and move.token != token:
                yield f"job {job_id} had the token {move.token} after its move {move.seq} at {move.at:.3f}, not {token}"
        yield from _hands(job_id, story)
        if job_id in rows:
            yield from _counted(rows[job_id], told, given[job_id], attempts[job_id])
    yield from _never_given(history, given)


def _hands(job_id: str, story: audit.Story) -> Iterator[str]:
    """Only the worker that claimed a job ends it, or starts it, in its own name."""
    holder = ""
    for move in story:
        if move.new in _BY_A_WORKER and move.old not in audit.IN_HAND:
            yield f"job {job_id} became {move.new} at {move.at:.3f} although nobody held it"
        if audit.is_claim(move):
            holder = move.actor
        elif move.actor.startswith(_WORKER) and holder.startswith(_WORKER) and move.actor != holder:
            yield f"{move.actor} made job {job_id} {move.new} at {move.at:.3f}, and {holder} had claimed it"


def _counted(
    row: JobRow, told: Sequence[tuple[Move, int]], given: Sequence[int], attempts: Sequence[AttemptRow]
) -> Iterator[str]:
    written = sorted(each.token for each in attempts)
    if written != given:
        yield f"job {row.id} has attempts {audit.listed(written)}, and was claimed with {audit.listed(given)}"
    if row.claim_token != told[-1][1]:
        yield f"job {row.id} has the token {row.claim_token}, and its audit comes to {told[-1][1]}"
    life = audit.lives([move for move, _ in told])[-1]
    claims = sum(map(audit.is_claim, life)) - sum(move.reason == Reason.NOT_BEGUN for move in life)
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


_ROUNDING_S = 0.001


def only_active(history: History) -> Iterator[str]:
    """W2: a worker that starts, drains or has ended is given nothing."""
    states: dict[str, str] = {}
    for move in history.moves:
        if move.kind == WORKER.kind:
            states[move.id] = move.new
        elif audit.is_claim(move) and move.actor.startswith(_WORKER):
            worker = move.actor.removeprefix(_WORKER)
            state = states.get(worker, WorkerStatus.ACTIVE)
            if state != WorkerStatus.ACTIVE:
                yield f"job {move.id} was given to {worker} at {move.at:.3f}, which is {state}"


def not_before(history: History) -> Iterator[str]:
    """J9: a job that is to wait is queued when its time has come, by the clock of that moment."""
    rows = audit.job_rows(history)
    delays = {each.job_id: each.delay_s for each in history.submissions if each.delay_s}
    for move in history.moves:
        if move.kind != JOB.kind or move.id not in delays or move.id not in rows:
            continue
        due = rows[move.id].created_at + delays[move.id]
        queued = move.new == JobStatus.PENDING and move.old in (None, JobStatus.SCHEDULED)
        if queued and move.at < due - _ROUNDING_S:
            yield f"job {move.id} was queued at {move.at:.3f}, and not wanted before {due:.3f}"


def one_of_a_key(history: History) -> Iterator[str]:
    """Of jobs that share a concurrency key one is held at a time, in the order of the commits."""
    keys = {each.job_id: each.concurrency_key for each in history.submissions if each.concurrency_key}
    holder: dict[str, str] = {}
    for move in history.moves:
        key = keys.get(move.id) if move.kind == JOB.kind else None
        if key is None:
            continue
        if audit.is_claim(move) and key in holder:
            yield f"job {move.id} was given out at {move.at:.3f}, and {holder[key]} of the same key {key} was held"
        if move.new in audit.IN_HAND:
            holder[key] = move.id
        elif holder.get(key) == move.id:
            del holder[key]


DEAD = JobStatus.DEAD_LETTER.value
GIVEN_UP = frozenset(
    {
        Reason.USER_ERROR,
        Reason.ATTEMPTS_EXHAUSTED,
        Reason.KILLS_WORKERS,
        Reason.INTERRUPTED_TOO_OFTEN,
        Reason.OUT_OF_MEMORY_AGAIN,
    }
)


def retries(history: History) -> Iterator[str]:
    """J5: attempts, lost workers and interruptions stay within their limits, and nothing is given up before."""
    rows = audit.job_rows(history)
    for row in rows.values():
        yield from _within(row, history.limits)
    for job_id, story in audit.stories_of(history).items():
        for move in story:
            if move.new == DEAD and move.reason not in GIVEN_UP:
                yield f"job {job_id} was given up at {move.at:.3f} because of {move.reason!r}, which is no reason"
        if job_id in rows and rows[job_id].status == DEAD:
            for reason, (name, count, most) in _counts(rows[job_id], history.limits).items():
                if story[-1].reason == reason and count < most:
                    yield f"job {job_id} was given up at {story[-1].at:.3f} after {count} of {most} {name}"


def _counts(row: JobRow, limits: Limits) -> dict[Reason, tuple[str, int, int]]:
    most = limits.most_attempts if row.max_attempts is None else row.max_attempts
    return {
        Reason.ATTEMPTS_EXHAUSTED: ("attempts", row.attempts - row.interruptions, most),
        Reason.KILLS_WORKERS: ("lost workers", row.worker_losses, limits.most_worker_losses),
        Reason.INTERRUPTED_TOO_OFTEN: ("interruptions", row.interruptions, limits.most_interruptions),
    }


def _within(row: JobRow, limits: Limits) -> Iterator[str]:
    for reason, (name, count, most) in _counts(row, limits).items():
        if count > most:
            yield f"job {row.id} has {count} {name}, and {most} are allowed"
        # The last attempt that is allowed is claimed with the count at its limit already.
        last_one = reason is Reason.ATTEMPTS_EXHAUSTED and row.status in audit.IN_HAND
        if count == most and row.status not in audit.ENDED and not last_one:
            yield f"job {row.id} has used up all {most} {name} and is {row.status} again"


def two_at_once(history: History) -> Iterator[str]:
    """W5: the next run of a job begins after the one before has ended: a worker that is cut off stops in time.

    One whose machine stands still cannot stop itself, and does so soon after it has woken (`excused_until`).
    """
    for job_id, runs in audit.grouped(history.runs, lambda run: run.job_id).items():
        runs.sort(key=lambda run: run.began)
        last = runs[0]
        for run in runs[1:]:
            both_until = min(audit.end_of(last), audit.end_of(run))
            # A worker that woke beside its successor shares its name, and so its claims: nobody can tell
            # the two apart.
            excused = max(last.excused_until, run.excused_until)
            twins = (last.worker, last.token) == (run.worker, run.token)
            excused_until = inf if twins and excused > -inf else excused
            if run.began < both_until > excused_until:
                yield (
                    f"{run.worker} began with job {job_id} (claim {run.token}) at {run.began:.3f},"
                    f" and {last.worker} was at it (claim {last.token}) until {audit.end_of(last):.3f}"
                )
            last = max(last, run, key=audit.end_of)


def fenced(history: History) -> Iterator[str]:
    """W5: a worker that is cut off stops what it runs, before anybody else is given it."""
    if history.limits.fence_s is None:
        return
    for cut in history.cuts:
        latest = cut.since + history.limits.fence_s
        for run in history.runs:
            at_work = run.process == cut.process and run.began <= cut.since
            if at_work and min(audit.end_of(run), cut.until) > max(latest, run.excused_until):
                yield (
                    f"{run.process} was cut off from {cut.since:.3f} to {cut.until:.3f}, and was at job {run.job_id}"
                    f" (claim {run.token}) until {audit.end_of(run):.3f}"
                )
