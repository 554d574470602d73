"""How jobs end: what must be found of jobs lost, done twice, cancelled in vain and tried too often."""

from herdsman.testing.simulation.checks.history import Rendering, Saved
from tests.unit.checks.spoiling import (
    Allowed,
    Bad,
    and_cancel,
    and_move,
    and_receipt,
    and_submission,
    and_twin,
    both,
    having,
    with_attempt,
    with_limits,
    with_move,
    with_row,
    with_run,
    without_receipts,
    without_row,
    without_submission,
)


def a_save(token: int, value: int, began: float, found: object = None, kept: float | None = None) -> Saved:
    return Saved(job_id="plain", token=token, value=value, began=began, found=found, kept=kept)


LOST = {
    "an accepted job has no row": (and_submission("ghost"), "job ghost was accepted at 1.000 and has no row"),
    "a row comes from nowhere": (without_submission("plain"), "job plain has a row, and nobody submitted it"),
    "a job waits for ever": (with_row("plain", status="pending"), "job plain is still pending"),
    "a retry never comes": (with_row("broken", status="failed", run_at=9e9), "job broken is still failed"),
    "a scheduled job is forgotten": (with_row("later", status="scheduled", run_at=9), "is still scheduled"),
    "a job ends too late": (
        both(with_limits(settled_s=10), having(last_fault_at=0.0)),
        "and 10 s are allowed",
    ),
    "a job has no end after all that time": (
        both(with_row("plain", status="running"), with_limits(settled_s=49)),
        "job plain had no end for 50.000 s",
    ),
}
COMPLETED_ONCE = {
    "done twice": (
        both(and_move("plain", new="claimed"), and_move("plain", new="done")),
        "job plain was done 2 times",
    ),
    "an old claim is told that it is done": (
        and_receipt("rescued", 1, "done"),
        "claim 1 of job rescued is done, and it was completed by 2",
    ),
    "a job that was given up is called done": (
        and_receipt("broken", 3, "done"),
        "it was completed by none",
    ),
    "the result is another job's": (with_row("plain", result="rescued"), "'plain' is right"),
    "two answers to one claim": (
        and_receipt("plain", 1, "failed"),
        "claim 1 of job plain was answered with done, and at 99.000 with failed",
    ),
    "done by a handler that was killed": (
        both(without_receipts("plain"), with_run("plain", 1, stopped_by="killed")),
        "no handler of that claim came to its end",
    ),
    "done by a handler that still works": (
        both(without_receipts("plain"), with_run("plain", 1, ended=None)),
        "no handler of that claim came to its end",
    ),
}
EXECUTED_ONCE = {
    "one claim is run twice": (
        and_twin("plain", 1, began=98),
        "claim 1 of job plain was executed 2 times, by w1",
    ),
    "one claim is run by two processes": (
        both(with_run("plain", 1, process="p1"), and_twin("plain", 1, process="p2")),
        "claim 1 of job plain was executed 2 times, by p1, p2",
    ),
}
ENDS_KEPT = {
    "a finished job is given back": (
        with_move("plain", 4, reason="released"),
        "w1 gave job plain (claim 1) back, which had ended at",
    ),
    "an end is not reported": (
        both(with_attempt("plain", 1, reason="claim_expired"), with_run("plain", 1, able_s=11.0)),
        "w1 could have said so for 11.000 s, and its claim expired",
    ),
    "an end is not reported, and it counts as lost": (
        both(with_attempt("plain", 1, reason="kills_workers"), with_run("plain", 1, able_s=11.0)),
        "w1 could have said so for 11.000 s",
    ),
}
CHECKPOINTS = {
    "one that was kept is not found": (
        having(saves=(a_save(1, 1, began=1, kept=2), a_save(2, 2, began=3))),
        "claim 2 of job plain found the checkpoint None at 3.000, and 1 had been kept",
    ),
    "an older one is found": (
        having(
            saves=(
                a_save(1, 1, began=1, kept=2),
                a_save(2, 2, began=2.5, found=1, kept=2.7),
                a_save(3, 3, began=4, found=1),
            )
        ),
        "claim 3 of job plain found the checkpoint 1 at 4.000, and 2 had been kept",
    ),
    "an old claim writes over it": (
        having(saves=(a_save(2, 1, began=1, kept=2), a_save(1, 2, began=1, kept=3))),
        "claim 1 of job plain saved a checkpoint after claim 2 had",
    ),
}
RENDERED_ONCE = {
    "the service has it twice": (
        having(
            renderings=(
                Rendering(job_id="plain", began=1, ends_at=9),
                Rendering(job_id="plain", began=5, ends_at=9),
            )
        ),
        "job plain was rendered from 1.000 on, and again from 5.000 on",
    ),
    "it was done there already": (
        having(
            renderings=(
                Rendering(job_id="plain", began=1, ends_at=2),
                Rendering(job_id="plain", began=5, ends_at=9),
            )
        ),
        "while the service knew it",
    ),
}
CANCELLED = {
    "done after a cancel": (with_move("stopped", 5, new="done"), "job stopped was cancelled at"),
    "done after it had ended as cancelled": (
        and_move("unwanted", new="done"),
        "job unwanted was cancelled at",
    ),
    "a cancel that did nothing": (and_cancel("plain"), "its audit knows of no cancel; it is done"),
    "a cancel that did nothing, without an audit": (
        both(having(moves=()), and_cancel("plain")),
        "job plain was called cancelled at 99.000 and is done",
    ),
}
RETRIES = {
    "too many attempts": (with_row("broken", attempts=4), "has 4 attempts, and 3 are allowed"),
    "more attempts than it wanted itself": (with_row("broken", max_attempts=2), "has 3 attempts, and 2 are"),
    "too many lost workers": (with_row("deadly", worker_losses=3), "has 3 lost workers, and 2 are allowed"),
    "too many interruptions": (with_row("later", interruptions=21), "has 21 interruptions, and 20 are"),
    "it goes on killing workers": (
        with_row("deadly", status="claimed"),
        "has used up all 2 lost workers and is claimed again",
    ),
    "it waits for one attempt more": (
        with_row("broken", status="pending"),
        "has used up all 3 attempts and is pending again",
    ),
    "given up for nothing": (with_move("broken", 9, reason="due"), "because of 'due', which is no reason"),
    "given up too early": (with_row("broken", attempts=2), "was given up at 47.000 after 2 of 3 attempts"),
    "given up with a worker left": (with_row("deadly", worker_losses=1), "after 1 of 2 lost workers"),
}
BAD: Bad = {
    "lost": LOST,
    "completed_once": COMPLETED_ONCE,
    "executed_once": EXECUTED_ONCE,
    "ends_kept": ENDS_KEPT,
    "checkpoints": CHECKPOINTS,
    "rendered_once": RENDERED_ONCE,
    "cancelled": CANCELLED,
    "retries": RETRIES,
}
ALLOWED: Allowed = {
    "lost": {
        "a job that was asked for without an answer": both(
            without_submission("plain"), having(asked=frozenset({"plain"}))
        ),
        "a job for another day": both(with_row("later", status="scheduled", run_at=9e9), having(moves=())),
    },
    "completed_once": {
        "completions of which only the database tells": having(receipts=(), runs=()),
        "completions whose handlers nobody watched": having(runs=()),
        "a completion whose answer was lost": without_receipts("plain"),
    },
    "ends_kept": {
        "there was no time to report it": both(
            with_attempt("plain", 1, reason="claim_expired"), with_run("plain", 1, able_s=9.0)
        ),
        "a handler that was stopped": both(
            with_move("plain", 4, reason="released"), with_run("plain", 1, stopped_by="killed")
        ),
    },
    "checkpoints": {
        "one whose answer was lost is found": having(
            saves=(
                a_save(1, 1, began=1, kept=2),
                a_save(2, 2, began=3, found=1),
                a_save(3, 3, began=4, found=2),
            )
        ),
    },
    "rendered_once": {
        "the service forgot it": having(
            renderings=(
                Rendering(job_id="plain", began=1, ends_at=9, over_at=4),
                Rendering(job_id="plain", began=5, ends_at=9),
            )
        ),
    },
    "cancelled": {"cancels of which no audit is left": both(having(moves=()), and_cancel("ghost"))},
    "retries": {
        "the audit of a dead job outlived it": without_row("broken"),
        "the last attempt is under way": with_row("broken", status="claimed"),
    },
}
