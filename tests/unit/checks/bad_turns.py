"""Whose turn it is: what must be found of jobs begun too early, beside one another, or after too many others."""

from dataclasses import replace

from herdsman.testing.simulation.checks.history import Cut, History
from tests.unit.checks.spoiling import (
    Allowed,
    Bad,
    and_twin,
    both,
    having,
    instead,
    with_move,
    with_row,
    with_run,
    with_submission,
    without_move,
)
from tests.unit.checks.telling import Telling


def a_crowd(overtaking: int, *, priority: int = 0, pool: str = "", claimed_last: bool = True) -> History:
    """One waits, and so many that come later are claimed before it."""
    tell = Telling()
    tell.submit("first", priority=1)
    for number in range(overtaking):
        tell.submit(f"job-{number}", priority=priority)
        tell.complete(f"job-{number}", "w1")
    if claimed_last:
        tell.complete("first", "w1")
    whole = replace(tell.history(), last_fault_at=0.0)
    return whole if not pool else with_row("first", pool=pool)(whole)


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


def a_drained_one() -> History:
    tell = Telling()
    tell.spawn("w1")
    tell.submit("job")
    tell.claim("job", "w1")
    tell.end("w1")
    tell.finish("job")
    return tell.history()


TWO_AT_ONCE = {
    "the next begins too early": (
        with_run("rescued", 2, began=18.2),
        "w2 began with job rescued (claim 2) at 18.200, and w1 was at it (claim 1) until 18.500",
    ),
    "the one before goes on for ever": (with_run("rescued", 1, ended=None), "until inf"),
    "it goes on long after it woke": (
        with_run("rescued", 1, ended=20.5, excused_until=20.0),
        "and w1 was at it (claim 1) until 20.500",
    ),
    "one claim is run twice": (and_twin("rescued", 2, ended=30.0), "was at it (claim 2)"),
}
CUT_OFF = Cut(process="w1@pod-1", since=18.0, until=60.0)
FENCED = {
    "it goes on": (
        both(with_run("rescued", 1, process="w1@pod-1", ended=31.0), having(cuts=(CUT_OFF,))),
        "w1@pod-1 was cut off from 18.000 to 60.000, and was at job rescued (claim 1) until 31.000",
    ),
    "it goes on for ever": (
        both(with_run("rescued", 1, process="w1@pod-1", ended=None), having(cuts=(CUT_OFF,))),
        "until inf",
    ),
}
STARVED = "job first, queued at 1.000, was overtaken by 11 jobs, and 10 are allowed"
STARVATION = {
    "less urgent ones go first": (instead(a_crowd(11)), STARVED),
    "as urgent ones go first": (instead(a_crowd(11, priority=1)), STARVED),
    "it still waits": (instead(a_crowd(11, claimed_last=False)), STARVED),
}
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
BAD: Bad = {
    "two_at_once": TWO_AT_ONCE,
    "fenced": FENCED,
    "starvation": STARVATION,
    "only_active": ONLY_ACTIVE,
    "not_before": NOT_BEFORE,
    "one_of_a_key": ONE_OF_A_KEY,
}
ALLOWED: Allowed = {
    "two_at_once": {
        "its machine stood still": with_run("rescued", 1, ended=20.5, excused_until=21.0),
        "the next one's machine did": both(
            with_run("rescued", 1, ended=20.5), with_run("rescued", 2, excused_until=21.0)
        ),
        "twins share a claim": both(with_run("rescued", 2, excused_until=1.0), and_twin("rescued", 2, ended=30.0)),
    },
    "fenced": {
        "it stops in time": both(with_run("rescued", 1, process="w1@pod-1", ended=29.9), having(cuts=(CUT_OFF,))),
        "another process of the worker": both(with_run("rescued", 1, ended=40.0), having(cuts=(CUT_OFF,))),
        "it stood still": both(
            with_run("rescued", 1, process="w1@pod-1", ended=31.0, excused_until=40.0),
            having(cuts=(CUT_OFF,)),
        ),
        "it is heard again in time": both(
            with_run("rescued", 1, process="w1@pod-1", ended=40.0),
            having(cuts=(replace(CUT_OFF, until=29.0),)),
        ),
    },
    "only_active": {"a worker that drains ends its job": instead(a_drained_one())},
    "not_before": {"a claim when its time had come": with_submission("later", delay_s=9.0)},
    "one_of_a_key": {
        "no keys": both(instead(two_of_a_key()), with_submission("one", concurrency_key=None)),
        "two keys": both(instead(two_of_a_key()), with_submission("two", concurrency_key="other")),
        "one after the other": both(
            with_submission("plain", concurrency_key="k"), with_submission("rescued", concurrency_key="k")
        ),
    },
}
