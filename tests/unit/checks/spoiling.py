"""One thing in a good history changed, as a bug would leave it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from herdsman.testing.simulation.checks.history import (
    AttemptRow,
    Cancel,
    History,
    Limits,
    Move,
    Receipt,
    Row,
    Run,
    Submission,
)

Spoil = Callable[[History], History]
Bad = dict[str, dict[str, tuple[Spoil, str]]]
"""By check and by what is wrong: how it comes about, and what is said of it."""
Allowed = dict[str, dict[str, Spoil]]
"""By check and by what only looks wrong."""


def with_move(key: str, seq: int, /, **changes: Any) -> Spoil:
    """Line `seq` of the object's audit says something else."""

    def spoil(history: History) -> History:
        moves = [replace(each, **changes) if _is(each, key, seq) else each for each in history.moves]
        return replace(history, moves=tuple(moves))

    return spoil


def without_move(key: str, seq: int) -> Spoil:
    return lambda history: replace(history, moves=tuple(each for each in history.moves if not _is(each, key, seq)))


def and_move(key: str, **values: Any) -> Spoil:
    """One line more, after all others."""

    def spoil(history: History) -> History:
        last = [each for each in history.moves if each.id == key][-1]
        new = replace(last, seq=last.seq + 1, old=last.new, at=last.at + 1, **values)
        return replace(history, moves=(*history.moves, new))

    return spoil


def with_row(key: str, **changes: Any) -> Spoil:
    def changed(row: Row) -> Row:
        return replace(row, **changes) if row.id == key else row

    return lambda history: replace(history, rows=tuple(map(changed, history.rows)))


def without_row(key: str) -> Spoil:
    return lambda history: replace(history, rows=tuple(row for row in history.rows if row.id != key))


def with_attempt(job_id: str, token: int, /, **changes: Any) -> Spoil:
    def changed(each: AttemptRow) -> AttemptRow:
        return replace(each, **changes) if (each.job_id, each.token) == (job_id, token) else each

    return lambda history: replace(history, attempts=tuple(map(changed, history.attempts)))


def without_attempt(job_id: str, token: int) -> Spoil:
    def kept(each: AttemptRow) -> bool:
        return (each.job_id, each.token) != (job_id, token)

    return lambda history: replace(history, attempts=tuple(filter(kept, history.attempts)))


def with_run(job_id: str, token: int, /, **changes: Any) -> Spoil:
    def changed(each: Run) -> Run:
        return replace(each, **changes) if (each.job_id, each.token) == (job_id, token) else each

    return lambda history: replace(history, runs=tuple(map(changed, history.runs)))


def and_twin(job_id: str, token: int, /, **changes: Any) -> Spoil:
    """Another run with the same claim."""

    def spoil(history: History) -> History:
        run = next(each for each in history.runs if (each.job_id, each.token) == (job_id, token))
        return replace(history, runs=(*history.runs, replace(run, **changes)))

    return spoil


def and_receipt(job_id: str, token: int, state: str, worker: str = "w1") -> Spoil:
    new = Receipt(job_id=job_id, token=token, worker=worker, status=state, at=99)
    return lambda history: replace(history, receipts=(*history.receipts, new))


def without_receipts(job_id: str) -> Spoil:
    return lambda history: replace(history, receipts=tuple(each for each in history.receipts if each.job_id != job_id))


def and_submission(job_id: str) -> Spoil:
    return lambda history: replace(history, submissions=(*history.submissions, Submission(job_id=job_id, at=1)))


def with_submission(job_id: str, **changes: Any) -> Spoil:
    def changed(each: Submission) -> Submission:
        return replace(each, **changes) if each.job_id == job_id else each

    return lambda history: replace(history, submissions=tuple(map(changed, history.submissions)))


def without_submission(job_id: str) -> Spoil:
    return lambda history: replace(
        history, submissions=tuple(each for each in history.submissions if each.job_id != job_id)
    )


def and_cancel(job_id: str) -> Spoil:
    return lambda history: replace(history, cancels=(*history.cancels, Cancel(job_id=job_id, at=99)))


def with_limits(**changes: Any) -> Spoil:
    def spoil(history: History) -> History:
        limits: Limits = replace(history.limits, **changes)
        return replace(history, limits=limits)

    return spoil


def having(**changes: Any) -> Spoil:
    """Something of the history as a whole is different."""
    return lambda history: replace(history, **changes)


def instead(history: History) -> Spoil:
    return lambda _: history


def both(*spoils: Spoil) -> Spoil:
    def spoil(history: History) -> History:
        for each in spoils:
            history = each(history)
        return history

    return spoil


def _is(move: Move, key: str, seq: int) -> bool:
    return (move.id, move.seq) == (key, seq)
