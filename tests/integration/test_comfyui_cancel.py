"""Stopping one job on ComfyUI, and no other."""

from collections.abc import Iterator

import pytest

from herdsman.jobs.model import FailureClass
from herdsman.jobs.protocol import Broken, Finished, Unknown
from herdsman.testing.fakes.comfyui import FakeComfyUI, Fault
from tests.support.comfyui_workflows import Bench, a_job, new_id, one_node, render


@pytest.fixture(params=["0.3.45", "0.3.57", "0.7.0"])
def fake(request: pytest.FixtureRequest) -> Iterator[FakeComfyUI]:
    with FakeComfyUI(speed=20, version=request.param) as fake:
        yield fake


@pytest.fixture
def first(fake: FakeComfyUI) -> Iterator[Bench]:
    bench = Bench(fake.url)
    yield bench
    bench.connector.close()


@pytest.fixture
def second(fake: FakeComfyUI) -> Iterator[Bench]:
    bench = Bench(fake.url)
    yield bench
    bench.connector.close()


def _running(fake: FakeComfyUI, bench: Bench, seconds: float) -> str:
    mine = bench.connector.submit(a_job(one_node("HerdsmanInterruptible", seconds=seconds)), new_id())
    fake.wait_for(lambda: fake.renders(mine))
    return mine


def test_one_that_runs_is_interrupted(fake: FakeComfyUI, first: Bench) -> None:
    mine = _running(fake, first, 6000)
    first.connector.cancel(mine)
    verdict = first.follow(mine)
    assert isinstance(verdict, Broken)
    assert verdict.cancelled
    assert verdict.failure.kind is FailureClass.INTERRUPTED


def test_one_that_waits_is_taken_out_and_the_one_that_runs_is_left_alone(
    fake: FakeComfyUI, first: Bench, second: Bench
) -> None:
    running = _running(fake, first, 40)
    waiting = second.connector.submit(a_job(render()), new_id())
    second.connector.cancel(waiting)
    verdict = second.connector.check(waiting)
    assert isinstance(verdict, Broken)
    assert verdict.cancelled
    assert isinstance(first.follow(running, silence=10), Finished)
    assert fake.renders(waiting) == 0


def test_one_that_runs_is_stopped_and_the_one_that_waits_runs(fake: FakeComfyUI, first: Bench, second: Bench) -> None:
    running = _running(fake, first, 6000)
    waiting = second.connector.submit(a_job(render()), new_id())
    first.connector.cancel(running)
    assert isinstance(second.follow(waiting), Finished)
    verdict = first.follow(running)
    assert isinstance(verdict, Broken)
    assert verdict.cancelled


def test_one_that_is_over_already_stops_nobody_else(fake: FakeComfyUI, first: Bench, second: Bench) -> None:
    over = new_id()
    assert isinstance(first.run(a_job(render()), over), Finished)
    running = _running(fake, second, 20)
    first.connector.cancel(over)
    assert isinstance(first.connector.check(over), Finished)
    assert isinstance(second.follow(running, silence=10), Finished)


def test_an_old_service_is_never_told_to_stop_what_is_not_ours(fake: FakeComfyUI, first: Bench, second: Bench) -> None:
    _running(fake, first, 6000)
    second.connector.cancel(second.connector.submit(a_job(render()), new_id()))
    old = second.connector.fitness().version == "0.3.45"
    assert (("POST", "/interrupt") in fake.requests) is not old


def test_a_service_may_ignore_it(fake: FakeComfyUI, first: Bench) -> None:
    fake.add_fault(Fault.INTERRUPT_IGNORED)
    mine = _running(fake, first, 10)
    first.connector.cancel(mine)
    assert isinstance(first.follow(mine), Finished)


def test_what_somebody_else_took_out_is_unknown_and_not_cancelled(
    fake: FakeComfyUI, first: Bench, second: Bench
) -> None:
    _running(fake, first, 6000)
    waiting = second.connector.submit(a_job(render()), new_id())
    first.connector.cancel(waiting)
    assert isinstance(second.connector.check(waiting), Unknown)
