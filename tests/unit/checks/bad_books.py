"""What is written down of jobs: what must be found of tokens, the audit and attempts."""

from herdsman.testing.simulation.checks.history import Move
from tests.unit.checks.spoiling import (
    Allowed,
    Bad,
    and_move,
    and_receipt,
    and_submission,
    both,
    having,
    with_attempt,
    with_move,
    with_row,
    with_run,
    without_attempt,
    without_move,
    without_row,
)

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
BAD: Bad = {
    "tokens": TOKENS,
    "audit": AUDIT,
    "conservation": CONSERVATION,
}
ALLOWED: Allowed = {
    "tokens": {
        "the audit of a dead job outlived it": without_row("broken"),
        "a token that nobody wrote down": with_move("plain", 2, token=None),
    },
    "audit": {"an audit that outlived what had ended": without_row("lease-0")},
    "conservation": {"attempts of which no audit is left": having(moves=())},
}
