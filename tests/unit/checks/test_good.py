"""No checker finds anything where everything was done right."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdsman.testing.simulation.checks import CHECKS, violations
from herdsman.testing.simulation.checks.history import History
from tests.unit.checks import test_bad_fleet, test_bad_jobs
from tests.unit.checks.telling import ENDED, GPU_MB, HELD, LIMITS, Telling, a_good_one

WORKERS = ("w1", "w2", "w3")
STEPS = 120


@pytest.mark.parametrize("name", CHECKS)
def test_a_good_history_is_accepted(name: str) -> None:
    assert list(CHECKS[name](a_good_one())) == []


def test_where_nothing_was_recorded_nothing_is_found() -> None:
    assert violations(History()) == []


def test_every_check_has_a_history_that_it_must_reject() -> None:
    assert CHECKS.keys() == test_bad_jobs.BAD.keys() | test_bad_fleet.BAD.keys()


def verbs(tell: Telling, worker: str) -> dict[str, Callable[[str], None]]:
    """What may be done with a job, by the state that it is in."""
    return {
        "scheduled due": tell.due,
        "failed due": tell.due,
        "pending claim": lambda job_id: tell.claim(job_id, worker),
        "pending cancel": tell.cancel,
        "claimed start": tell.start,
        "claimed finish": tell.finish,
        "claimed lose": tell.lose,
        "running finish": tell.finish,
        "running fail": tell.fail,
        "running release": tell.release,
        "running lose": tell.lose,
        "running cancel": tell.ask_to_cancel,
        "done requeue": tell.requeue,
        "dead_letter requeue": tell.requeue,
        "cancelled requeue": tell.requeue,
    }


@st.composite
def legal_histories(draw: st.DrawFn) -> History:
    tell = Telling()
    epoch = 1
    for number in range(draw(st.integers(0, 5))):
        tell.submit(f"job-{number}", draw(st.sampled_from(["pending", "scheduled"])), draw(st.integers(0, 2)))
    for what in draw(st.lists(st.sampled_from(["job", "pod", "lease", "leader"]), max_size=STEPS)):
        match what:
            case "job":
                _something(draw, tell)
            case "pod":
                _a_pod(draw, tell)
            case "lease":
                _a_lease(draw, tell)
            case _:
                epoch += draw(st.integers(0, 1))
                tell.lead(f"replica-{epoch % 2}", epoch)
    _to_the_end(tell)
    return tell.history()


def _something(draw: st.DrawFn, tell: Telling) -> None:
    jobs = tell.jobs("scheduled", "pending", "failed", *HELD, *ENDED)
    if not jobs:
        return
    job_id = draw(st.sampled_from(jobs))
    state = tell.job(job_id).status
    possible = verbs(tell, draw(st.sampled_from(WORKERS)))
    mine = sorted(name for name in possible if name.split()[0] == state)
    if job_id in tell.asked_to_cancel:
        mine.remove("running cancel")
    possible[draw(st.sampled_from(mine))](job_id)


def _a_pod(draw: st.DrawFn, tell: Telling) -> None:
    alive = [pod.name.removeprefix("pod-") for pod in tell.pods if pod.died is None]
    if LIMITS.most_pods is not None and len(alive) < LIMITS.most_pods and draw(st.booleans()):
        tell.spawn(f"worker-{len(tell.pods)}")
    elif alive:
        tell.end(draw(st.sampled_from(alive)))


def _a_lease(draw: st.DrawFn, tell: Telling) -> None:
    live = [use for use in tell.uses if use.ended > tell.now + 1]
    exclusive = not live and draw(st.booleans())
    free_mb = GPU_MB - sum(use.memory_mb for use in live)
    if free_mb == 0 or any(use.exclusive for use in live):
        return
    token = f"lease-{len(tell.uses)}"
    tell.lease(token, draw(st.integers(1, free_mb)), lasting=draw(st.integers(1, 20)), exclusive=exclusive)
    tell.release_lease(token)


def _to_the_end(tell: Telling) -> None:
    while left := tell.jobs("scheduled", "pending", "failed", *HELD):
        for job_id in left:
            state = tell.job(job_id).status
            if state in HELD:
                tell.finish(job_id)
            elif state == "pending":
                tell.claim(job_id, "w1")
            else:
                tell.due(job_id)


@settings(deadline=None)
@given(legal_histories())
def test_any_legal_history_is_accepted(history: History) -> None:
    assert violations(history) == []


def test_ten_times_as_many_jobs_take_about_ten_times_as_long() -> None:
    """Thousands of histories are checked in a run; one that looks at all pairs would take a hundred times as long."""
    few, many = a_long_one(30), a_long_one(300)
    assert seconds(many) < 40 * seconds(few)


def a_long_one(jobs: int) -> History:
    tell = Telling()
    for number in range(3):
        tell.spawn(f"w{number + 1}")
    names = [f"job-{number}" for number in range(jobs)]
    for job_id in names:
        tell.submit(job_id)
    for job_id in names:
        tell.claim(job_id, "w1")
        tell.lose(job_id)
        tell.claim(job_id, "w2")
        tell.start(job_id)
        tell.release(job_id)
        tell.complete(job_id, "w3")
    return tell.history()


def seconds(history: History) -> float:
    """Of the processor: others use this machine as well."""
    taken: list[float] = []
    for _ in range(30):
        began = time.process_time()
        violations(history)
        taken.append(time.process_time() - began)
    return min(taken)
