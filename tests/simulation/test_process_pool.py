"""Many seeds at once: one that breaks, hangs or kills its process is a finding, and stops no other."""

import multiprocessing
from dataclasses import replace

import pytest

from herdsman.testing.simulation import runner as run
from herdsman.testing.simulation.runner import Order, Ran, Runner, sweep

QUICK = Order(seeds=range(6), faults="none", steps=5)


@pytest.mark.timeout(300)
def test_seeds_come_in_their_order_with_the_hashes_that_they_have_alone() -> None:
    runner = Runner(QUICK)
    swept = list(sweep(QUICK, 2))
    assert swept == [runner.run(seed) for seed in QUICK.seeds]
    assert all(len(ran.story) == 5 and not ran.violations for ran in swept)
    assert multiprocessing.active_children() == []


@pytest.mark.timeout(300)
def test_a_process_that_dies_is_the_finding_of_its_seed_and_the_others_are_run() -> None:
    every = sweep(replace(QUICK, seeds=range(8)), 2)
    found = [next(every)]
    for child in multiprocessing.active_children():
        child.kill()
    found += every
    assert [ran.seed for ran in found] == list(range(8))
    lost = [ran for ran in found if ran.violations]
    # What it had already sent may have been taken before it died.
    assert 1 <= len(lost) <= 2
    assert all("its process ended with status -9" in ran.violations[0] for ran in lost)


@pytest.mark.timeout(300)
def test_who_has_seen_enough_leaves_no_process_behind() -> None:
    every = sweep(replace(QUICK, seeds=range(10_000)), 2)
    assert next(every).seed == 0
    assert len(multiprocessing.active_children()) == 2
    every.close()
    assert multiprocessing.active_children() == []


def test_a_seed_that_raises_is_a_violation_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(QUICK)
    good = runner.run(0)
    with monkeypatch.context() as patched:
        patched.setattr(run, "run_seed", _raises)
        ran = runner.run(0)
    assert ran.violations[0].startswith("broken: Traceback")
    assert "ZeroDivisionError: what nobody had thought of" in ran.violations[0]
    assert runner.run(0) == good


@pytest.mark.timeout(60)
def test_a_seed_that_goes_in_circles_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(QUICK)
    monkeypatch.setattr(run, "LONGEST_S", 0.2)
    monkeypatch.setattr(run, "run_seed", _circles)
    assert "it computed for more than 0.2 s" in runner.run(0).violations[0]


def _raises(*_: object) -> Ran:
    raise ZeroDivisionError("what nobody had thought of")


def _circles(*_: object) -> Ran:
    while True:
        pass
