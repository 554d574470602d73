"""What is left behind: what must be found of jobs left with the dead, and of a herd that should be at rest."""

from dataclasses import replace

from herdsman.testing.simulation.checks.history import Health, Hints, Move, WorkerRow
from tests.unit.checks.spoiling import (
    Allowed,
    Bad,
    Spoil,
    and_twin,
    both,
    having,
    with_attempt,
    with_row,
    with_run,
)


def taken_back(at: float) -> Spoil:
    """Its handler was killed at 18.5, and no fault excuses anybody."""
    return both(with_attempt("rescued", 1, ended_at=at), having(last_fault_at=0.0))


def charged_with_one_that_died(at: float) -> Spoil:
    """The database was away from 5 to 60."""
    return both(
        having(healthy=(Health(worker="brief", since=0, until=at),)),
        with_row("rescued", worker_losses=1),
        with_attempt("rescued", 1, worker="brief", reason="claim_expired", claimed_at=1.0, ended_at=70.0),
    )


QUIESCENCE = {
    "a job is held": (with_row("plain", status="running"), "job plain is still running at"),
    "a lease is active": (with_row("lease-0", status="active"), "lease lease-0 is still active at"),
    "a worker is on its way out": (with_row("w2", status="terminating"), "worker w2 is still terminating"),
    "a broken worker is not ended": (with_row("w2", status="error"), "worker w2 is still error"),
    "a handler still works": (with_run("plain", 1, ended=None), "w1 has been at job plain (claim 1) since"),
}
RESCUE = {
    "a job is taken back late": (taken_back(at=130.0), "job rescued was left with w1 (claim 1)"),
    "a job is never taken back": (with_attempt("rescued", 1, ended_at=None), "and 10 s are allowed"),
    "no twin kept its claim alive": (
        taken_back(at=33.0),
        "job rescued was left with w1 (claim 1) for 14.500 s after 18.500, and 10 s are allowed",
    ),
    "late after the death of the last twin": (
        both(and_twin("rescued", 1, ended=25.0), taken_back(at=36.0)),
        "job rescued was left with w1 (claim 1) for 11.000 s after 25.000, and 10 s are allowed",
    ),
}
ANNOUNCED = Hints(letters={"deadly": 1, "broken": 1, "again": 1})
STREAMS = {
    "an entry is left": (
        having(hints=replace(ANNOUNCED, left={"jobs": 2})),
        "2 entries are left in jobs, and every job has ended",
    ),
    "an entry is held": (having(hints=replace(ANNOUNCED, held={"jobs": 1})), "1 entries of jobs are held"),
    "a dead job is not announced": (
        having(hints=replace(ANNOUNCED, letters={"deadly": 1})),
        "job broken is a dead letter, and nobody announced it",
    ),
    "a dead job is announced again": (
        having(hints=replace(ANNOUNCED, letters={"deadly": 2, "broken": 1})),
        "job deadly was announced as dead 2 times, and died 1 times",
    ),
}
ENDED = (
    Move(kind="worker", id="well", seq=1, old=None, new="spawning"),
    Move(kind="worker", id="well", seq=2, old="spawning", new="active", at=1),
    Move(kind="worker", id="well", seq=3, old="active", new="error", reason="lost", at=61),
)
OUTAGES = {
    "a worker that was well is ended for an outage": (
        having(moves=ENDED),
        "worker well was ended at 61.000, and it was well from 5.000 on",
    ),
    "a job is charged with a worker that was well": (
        both(
            with_row("rescued", worker_losses=1),
            with_attempt("rescued", 1, worker="well", reason="claim_expired", claimed_at=1.0, ended_at=70.0),
        ),
        "job rescued counts 1 lost workers, and of 1 claims that expired 1 ran out while the database was away",
    ),
    "a job is charged with a worker that died in the outage": (
        charged_with_one_that_died(at=30.0),
        "of 1 claims that expired 1 ran out while the database was away",
    ),
}
BAD: Bad = {
    "outages": OUTAGES,
    "quiescence": QUIESCENCE,
    "rescue": RESCUE,
    "streams": STREAMS,
}
ALLOWED: Allowed = {
    "rescue": {
        "a late end of a claim during the faults": with_attempt("rescued", 1, ended_at=70.0),
        "a twin dies later": both(and_twin("rescued", 1, ended=25.0), taken_back(at=33.0)),
        "a twin died before": both(
            with_run("rescued", 1, ended=25.0), and_twin("rescued", 1, ended=18.5), taken_back(at=33.0)
        ),
        "a twin lives on": both(and_twin("rescued", 1, ended=None), taken_back(at=130.0)),
    },
    "outages": {
        "a worker is ended on which jobs fail": having(
            moves=ENDED, rows=(WorkerRow(id="well", status="error", version=3, error_code="FAILING_TASKS"),)
        ),
        "a job is charged with a worker that died afterwards": charged_with_one_that_died(at=65.0),
        "a claim of which its worker never heard": both(
            having(outages=()),
            with_row("rescued", worker_losses=1),
            with_attempt("rescued", 1, worker="well", reason="claim_expired", claimed_at=1.0, ended_at=70.0),
        ),
    },
    "streams": {"one letter for each death": having(hints=ANNOUNCED)},
}
