"""Checks on waiting: how soon a job is rescued, that none starves, and that everything comes to rest."""

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from herdsman.fleet.actions import Code
from herdsman.states import JOB, LEASE, WORKER, JobStatus, LeaseStatus, Reason, WorkerStatus
from herdsman.testing.simulation.checks.audit import IN_HAND, PENDING, end_of, is_claim, job_rows
from herdsman.testing.simulation.checks.history import AttemptRow, History, Move, WorkerRow

LONG_OUTAGE_S = 45.0
"""Longer than a leader's row and a claim live."""
JUST_DIED_S = 5.0
"""The claim of a worker that died so shortly before is still good when the outage begins."""
FIRST_CYCLES_S = 20.0
"""After an outage; whoever is ended later has given another reason for it."""


def rescue(history: History) -> Iterator[str]:
    """J4: a claim is over soon after its handler was stopped from outside, once the faults are over.

    Only where somebody wrote down when the handler stopped; the database's clock must be near that of the runs.
    """
    allowed = history.limits.rescue_s
    if allowed is None:
        return
    attempts = {(each.job_id, each.token): each for each in history.attempts}
    # Twins have one claim between them: it is kept alive as long as one of them lives.
    last = {(run.job_id, run.token): run for run in sorted(history.runs, key=end_of)}
    for key, run in last.items():
        attempt = attempts.get(key)
        if attempt is None or run.ended is None or not run.stopped_by:
            continue
        over = history.ended_at if attempt.ended_at is None else attempt.ended_at
        since = max(run.ended, history.last_fault_at)
        if over - since > allowed:
            yield (
                f"job {run.job_id} was left with {run.worker} (claim {run.token}) for {over - since:.3f} s"
                f" after {since:.3f}, and {allowed} s are allowed"
            )


def outages(history: History) -> Iterator[str]:
    """P10: an outage of the database is no silence of workers: none of them ends for it, and no job is charged."""
    if not history.limits.one_clock:
        return
    # Jobs that fail in a row are a fault of the worker, outage or not.
    own_fault = {row.id for row in history.rows if isinstance(row, WorkerRow) and row.error_code == Code.FAILING_TASKS}
    for since, until in history.outages:
        for move in history.moves:
            lost = move.kind == WORKER.kind and move.new == WorkerStatus.ERROR and move.reason == Reason.LOST
            lost &= move.id not in own_fault
            soon = until <= move.at <= until + FIRST_CYCLES_S
            if lost and soon and _healthy(history, move.id, since, move.at):
                yield (
                    f"worker {move.id} was ended at {move.at:.3f}, and it was well from {since:.3f} on,"
                    f" when the database went away until {until:.3f}"
                )
    for job_id, row in job_rows(history).items():
        expired = [
            each
            for each in history.attempts
            if each.job_id == job_id and each.reason in (Reason.CLAIM_EXPIRED, Reason.KILLS_WORKERS)
        ]
        excused = [each for each in expired if _ran_out_in_an_outage(history, each)]
        if excused and row.worker_losses > len(expired) - len(excused):
            yield (
                f"job {job_id} counts {row.worker_losses} lost workers, and of {len(expired)} claims that expired"
                f" {len(excused)} ran out while the database was away"
            )


def _ran_out_in_an_outage(history: History, attempt: AttemptRow) -> bool:
    """It was good when the database went away, and its worker was well all the time, or gone when it came back."""
    ended_at = history.ended_at if attempt.ended_at is None else attempt.ended_at
    last = max((each.until for each in history.healthy if each.worker == attempt.worker), default=-inf)
    for since, until in history.outages:
        if until - since < LONG_OUTAGE_S or not (attempt.claimed_at <= since and until <= ended_at):
            continue
        died = since < last + JUST_DIED_S and last < until
        if _healthy(history, attempt.worker, attempt.claimed_at, min(last, since) if died else ended_at):
            return True
    return False


def _healthy(history: History, worker: str, since: float, until: float | None) -> bool:
    """All the time."""
    over = history.ended_at if until is None else until
    return any(each.worker == worker and each.since <= since and over <= each.until for each in history.healthy)


@dataclass
class _Line:
    """The jobs of one pool that were claimed since the faults are over, by how urgent they are and when they came."""

    claimed: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict[int, list[int]](list))

    def overtook(self, came: int, priority: int) -> int:
        urgent = (places for level, places in self.claimed.items() if level <= priority)
        return sum(len(places) - bisect_right(places, came) for places in urgent)


def starvation(history: History) -> Iterator[str]:
    """Once the faults are over, a job that waits is claimed before many that came later and are no more urgent."""
    most = history.limits.most_overtakes
    if most is None:
        return
    unserved = {each.job_id for each in history.submissions if each.unserved}
    rows = {job_id: row for job_id, row in job_rows(history).items() if job_id not in unserved}
    lines = defaultdict[str, _Line](_Line)
    waiting: dict[str, tuple[int, Move]] = {}
    for number, move in enumerate(history.moves):
        if move.kind != JOB.kind or move.id not in rows:
            continue
        if (wait := waiting.pop(move.id, None)) is not None:
            row, line = rows[move.id], lines[rows[move.id].pool]
            yield from _overtaken(*wait, line.overtook(wait[0], row.priority), most)
            if is_claim(move) and move.at >= history.last_fault_at:
                insort(line.claimed[row.priority], wait[0])
        if move.new == PENDING:
            waiting[move.id] = (number, move)
    for number, move in waiting.values():
        row = rows[move.id]
        yield from _overtaken(number, move, lines[row.pool].overtook(number, row.priority), most)


def _overtaken(_number: int, queued: Move, by: int, most: int) -> Iterator[str]:
    if by > most:
        yield f"job {queued.id}, queued at {queued.at:.3f}, was overtaken by {by} jobs, and {most} are allowed"


_UNREST = {
    JOB.kind: IN_HAND,
    LEASE.kind: frozenset({LeaseStatus.ACTIVE.value}),
    WORKER.kind: frozenset({WorkerStatus.TERMINATING.value, WorkerStatus.ERROR.value}),
}


def quiescence(history: History) -> Iterator[str]:
    """J1, L4, P5: after the last fault all comes to rest: nothing held, nobody on the way out, nobody at work."""
    if not history.quiet:
        return
    for row in history.rows:
        if row.status in _UNREST.get(row.kind, ()):
            yield f"{row.kind} {row.id} is still {row.status} at {history.ended_at:.3f}"
    for run in history.runs:
        if run.ended is None:
            yield f"{run.worker} has been at job {run.job_id} (claim {run.token}) since {run.began:.3f}"


_DEAD = JobStatus.DEAD_LETTER.value


def streams(history: History) -> Iterator[str]:
    """S1, S4, X8: no hint outlives its job, whatever Redis lost or made up; each dead job is announced, and once."""
    hints = history.hints
    if hints is None or not history.quiet:
        return
    for name, number in hints.left.items():
        yield f"{number} entries are left in {name}, and every job has ended"
    for name, number in hints.held.items():
        yield f"{number} entries of {name} are held by somebody, and every job has ended"
    deaths = Counter(move.id for move in history.moves if move.kind == "job" and move.new == _DEAD)
    for job_id, row in job_rows(history).items():
        told = hints.letters.get(job_id, 0)
        if row.status == _DEAD and told == 0:
            yield f"job {job_id} is a dead letter, and nobody announced it"
        if told > deaths[job_id]:
            yield f"job {job_id} was announced as dead {told} times, and died {deaths[job_id]} times"
