"""What must be found in the history of jobs, by which checker and in which words."""

from dataclasses import replace

import pytest

from herdsman.sim.checks import CHECKS, violations
from herdsman.sim.checks.history import Hints, History, Move
from tests.unit.checks.spoiling import (
    Spoil,
    and_cancel,
    and_move,
    and_receipt,
    and_submission,
    both,
    having,
    with_attempt,
    with_limits,
    with_move,
    with_row,
    with_run,
    with_submission,
    without_attempt,
    without_move,
    without_receipts,
    without_row,
    without_submission,
)
from tests.unit.checks.telling import Telling, a_good_one

GOOD = a_good_one()

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
TOKENS = {
    "a claim without an attempt": (
        without_attempt("rescued", 1),
        "job rescued has attempts 2, and was claimed with 1, 2",
    ),
    "a token is left out": (with_attempt("rescued", 2, token=3), "has attempts 1, 3"),
    "one token for two claims": (with_attempt("rescued", 2, token=1), "has attempts 1, 1"),
    "the row's token fell": (with_row("rescued", claim_token=1), "has the token 1, and its audit comes to 2"),
    "attempts are not counted": (with_row("plain", attempts=0), "counts 0 attempts, and was claimed 1 times"),
    "a claim does not raise the token": (with_move("plain", 2, token=0), "had the token 0 after its move 2"),
    "a requeue does not raise the token": (
        with_move("again", 4, token=1),
        "job again had the token 1 after its move 4",
    ),
    "an answer to a claim of nobody": (
        and_receipt("plain", 7, "failed"),
        "claim 7 of job plain, which was never given out",
    ),
    "a handler of a claim of nobody": (
        with_run("plain", 1, token=2),
        "claim 2 of job plain, which was never given out",
    ),
    "somebody else's claim": (
        with_run("plain", 1, worker="w2"),
        "w2 acted on claim 1 of job plain, which w1 had",
    ),
    "somebody else ends it": (
        with_move("plain", 4, actor="worker:w2"),
        "worker:w2 made job plain done at",
    ),
    "done without a claim": (with_move("plain", 4, old="pending"), "although nobody held it"),
    "failed without a claim": (with_move("broken", 3, old="pending"), "became failed"),
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
AUDIT = {
    "a line is missing": (without_move("plain", 2), "job plain has line 3 at"),
    "a line is there twice": (with_move("plain", 3, seq=2), "has line 2 at"),
    "it goes on from elsewhere": (with_move("plain", 4, old="claimed"), "goes on from claimed at"),
    "it begins in the middle": (with_move("plain", 1, old="claimed"), "goes on from claimed at"),
    "no legal move": (with_move("plain", 3, new="scheduled"), "from claimed to scheduled at"),
    "no legal beginning": (with_move("plain", 1, new="running"), "from None to running at"),
    "no legal move of a worker": (with_move("w2", 2, new="terminated"), "worker w2 went from spawning to"),
    "a lease comes back": (and_move("lease-0", new="active"), "lease lease-0 went from released to active"),
    "a job comes back by itself": (
        with_move("again", 4, reason="claim_expired"),
        "job again went from dead_letter to pending",
    ),
    "a step in place": (with_move("stopped", 4, reason="started"), "from running to running at"),
    "a step in place of what cannot be cancelled": (
        having(
            moves=(
                Move(kind="pool", id="p", seq=1, old=None, new="starting"),
                Move(kind="pool", id="p", seq=2, old="starting", new="running"),
                Move(kind="pool", id="p", seq=3, old="running", new="running", reason="cancel_requested"),
            ),
        ),
        "pool p went from running to running at 0.000",
    ),
    "the row says something else": (
        with_row("plain", status="failed"),
        "job plain is failed in version 4, and its audit ends with done in line 4",
    ),
    "the row counts differently": (with_row("plain", version=5), "is done in version 5"),
    "a row without a line": (with_row("w2", id="w9"), "worker w9 is active and has no audit"),
    "a living thing without a row": (without_row("w2"), "worker w2 has no row"),
}
CONSERVATION = {
    "one less than came": (and_submission("ghost"), "10 jobs were submitted, and 9 are there"),
    "an attempt without an end": (
        with_attempt("plain", 1, ended_at=None),
        "attempt 1 at job plain, claimed at 15.000, has no end",
    ),
    "an attempt twice": (
        with_attempt("rescued", 2, token=1),
        "attempt 1 at job rescued is written down twice",
    ),
    "an attempt with another end": (
        with_attempt("plain", 1, outcome="failed"),
        "attempt 1 at job plain ended as failed, and the audit says done",
    ),
    "an attempt that nobody made": (with_attempt("plain", 1, token=5), "and the audit says None"),
    "no end": (without_move("plain", 4), "life 1 of job plain, begun at 6.000, has 0 ends"),
    "two ends": (
        both(with_move("plain", 3, new="dead_letter"), with_move("plain", 4, old="running")),
        "life 1 of job plain, begun at 6.000, has 2 ends",
    ),
}
QUIESCENCE = {
    "a job is held": (with_row("plain", status="running"), "job plain is still running at"),
    "a lease is active": (with_row("lease-0", status="active"), "lease lease-0 is still active at"),
    "a worker is on its way out": (with_row("w2", status="terminating"), "worker w2 is still terminating"),
    "a broken worker is not ended": (with_row("w2", status="error"), "worker w2 is still error"),
    "a handler still works": (with_run("plain", 1, ended=None), "w1 has been at job plain (claim 1) since"),
}
RESCUE = {
    "a job is taken back late": (
        both(with_attempt("rescued", 1, ended_at=130.0), having(last_fault_at=0.0)),
        "job rescued was left with w1 (claim 1)",
    ),
    "a job is never taken back": (with_attempt("rescued", 1, ended_at=None), "and 10 s are allowed"),
}
TWO_AT_ONCE = {
    "the next begins too early": (
        with_run("rescued", 2, began=18.2),
        "w2 began with job rescued (claim 2) at 18.200, and w1 was at it (claim 1) until 18.500",
    ),
    "the one before goes on for ever": (with_run("rescued", 1, ended=None), "until inf"),
}


def a_crowd(overtaking: int, *, priority: int = 0, pool: str = "", claimed_last: bool = True) -> History:
    """One waits, and so many that come later are claimed before it."""
    tell = Telling()
    tell.submit("first", priority=1)
    for number in range(overtaking):
        tell.submit(f"job-{number}", priority=priority)
        tell.claim(f"job-{number}", "w1")
        tell.finish(f"job-{number}")
    if claimed_last:
        tell.claim("first", "w1")
        tell.finish("first")
    whole = replace(tell.history(), last_fault_at=0.0)
    return whole if not pool else with_row("first", pool=pool)(whole)


def instead(history: History) -> Spoil:
    return lambda _: history


STARVED = "job first, queued at 1.000, was overtaken by 11 jobs, and 10 are allowed"
STARVATION = {
    "less urgent ones go first": (instead(a_crowd(11)), STARVED),
    "as urgent ones go first": (instead(a_crowd(11, priority=1)), STARVED),
    "it still waits": (instead(a_crowd(11, claimed_last=False)), STARVED),
}


def two_of_a_key() -> History:
    """Both are held at once, and end in the order in which they came."""
    tell = Telling()
    for job_id in ("one", "two"):
        tell.submit(job_id)
    for job_id in ("one", "two"):
        tell.claim(job_id, f"worker-of-{job_id}")
    for job_id in ("one", "two"):
        tell.start(job_id)
        tell.finish(job_id)
    return with_submission("one", concurrency_key="k")(tell.history())


ONLY_ACTIVE = {
    "a worker that drains is given a job": (
        with_move("w1", 2, new="terminating"),
        "job plain was given to w1 at 15.000, which is terminating",
    ),
    "a worker that has not come up yet": (without_move("w1", 2), "given to w1 at 15.000, which is spawning"),
}
NOT_BEFORE = {
    "it begins at once": (
        with_submission("later", delay_s=60.0),
        "and not wanted before 74.000",
    ),
}
ONE_OF_A_KEY = {
    "two are held at once": (
        both(instead(two_of_a_key()), with_submission("two", concurrency_key="k")),
        "job two was given out at 4.000, and one of the same key k was held",
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
BAD: dict[str, dict[str, tuple[Spoil, str]]] = {
    "lost": LOST,
    "completed_once": COMPLETED_ONCE,
    "tokens": TOKENS,
    "cancelled": CANCELLED,
    "retries": RETRIES,
    "audit": AUDIT,
    "conservation": CONSERVATION,
    "quiescence": QUIESCENCE,
    "rescue": RESCUE,
    "two_at_once": TWO_AT_ONCE,
    "starvation": STARVATION,
    "only_active": ONLY_ACTIVE,
    "not_before": NOT_BEFORE,
    "one_of_a_key": ONE_OF_A_KEY,
    "streams": STREAMS,
}


@pytest.mark.parametrize(("check", "name"), [(check, name) for check, those in BAD.items() for name in those])
def test_a_bad_history_is_rejected(check: str, name: str) -> None:
    spoil, sentence = BAD[check][name]
    bad = spoil(GOOD)
    found = list(CHECKS[check](bad))
    assert any(sentence in said for said in found), found
    assert f"{check}: {found[0]}" in violations(bad)


def a_drained_one() -> History:
    tell = Telling()
    tell.spawn("w1")
    tell.submit("job")
    tell.claim("job", "w1")
    tell.end("w1")
    tell.finish("job")
    return tell.history()


ALLOWED: dict[str, Spoil] = {
    "a job that was asked for without an answer": both(
        without_submission("plain"), having(asked=frozenset({"plain"}))
    ),
    "a job for another day": both(with_row("later", status="scheduled", run_at=9e9), having(moves=())),
    "an overlap where machines were stopped": both(
        with_run("rescued", 1, ended=20.5, stopped_by=""), having(overlaps_allowed=True)
    ),
    "a late end of a claim during the faults": with_attempt("rescued", 1, ended_at=70.0),
    "completions of which only the database tells": having(receipts=(), runs=()),
    "completions whose handlers nobody watched": having(runs=()),
    "a worker that drains ends its job": instead(a_drained_one()),
    "an audit that outlived what had ended": without_row("lease-0"),
    "the audit of a dead job outlived it": without_row("broken"),
    "the last attempt is under way": with_row("broken", status="claimed"),
    "a token that nobody wrote down": with_move("plain", 2, token=None),
    "a claim when its time had come": with_submission("later", delay_s=9.0),
    "one letter for each death": having(hints=ANNOUNCED),
    "a completion whose answer was lost": without_receipts("plain"),
    "attempts of which no audit is left": having(moves=()),
    "cancels of which no audit is left": both(having(moves=()), and_cancel("ghost")),
    "no keys": both(instead(two_of_a_key()), with_submission("one", concurrency_key=None)),
    "two keys": both(instead(two_of_a_key()), with_submission("two", concurrency_key="other")),
    "one after the other": both(
        with_submission("plain", concurrency_key="k"), with_submission("rescued", concurrency_key="k")
    ),
}


@pytest.mark.parametrize(
    ("check", "name"),
    [
        ("lost", "a job that was asked for without an answer"),
        ("lost", "a job for another day"),
        ("two_at_once", "an overlap where machines were stopped"),
        ("rescue", "a late end of a claim during the faults"),
        ("completed_once", "completions of which only the database tells"),
        ("completed_once", "completions whose handlers nobody watched"),
        ("only_active", "a worker that drains ends its job"),
        ("audit", "an audit that outlived what had ended"),
        ("retries", "the audit of a dead job outlived it"),
        ("tokens", "the audit of a dead job outlived it"),
        ("retries", "the last attempt is under way"),
        ("tokens", "a token that nobody wrote down"),
        ("not_before", "a claim when its time had come"),
        ("streams", "one letter for each death"),
        ("completed_once", "a completion whose answer was lost"),
        ("conservation", "attempts of which no audit is left"),
        ("cancelled", "cancels of which no audit is left"),
        ("one_of_a_key", "no keys"),
        ("one_of_a_key", "two keys"),
        ("one_of_a_key", "one after the other"),
    ],
)
def test_what_cannot_be_helped_is_allowed(check: str, name: str) -> None:
    assert list(CHECKS[check](ALLOWED[name](GOOD))) == []


def test_while_faults_go_on_nothing_has_to_be_at_rest() -> None:
    tell = Telling()
    tell.spawn("w1")
    tell.submit("job")
    tell.claim("job", "w1")
    tell.lease("lease", 100)
    busy = replace(tell.history(), quiet=False)
    assert violations(busy) == []
    assert {said.partition(":")[0] for said in violations(replace(busy, quiet=True))} == {
        "lost",
        "conservation",
        "quiescence",
    }


@pytest.mark.parametrize(
    "history",
    [
        a_crowd(10),
        a_crowd(11, priority=2),
        a_crowd(11, pool="another"),
        replace(a_crowd(11), last_fault_at=9e9),
        with_limits(most_overtakes=None)(a_crowd(11)),
    ],
    ids=["few", "more urgent ones", "another pool", "during the faults", "no limit"],
)
def test_a_job_that_only_waits_does_not_starve(history: History) -> None:
    assert list(CHECKS["starvation"](history)) == []
