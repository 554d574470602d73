"""ComfyUI when it is not well, or the way to it: no finished job is lost, and no silence is taken for an answer."""

import time
from collections.abc import Iterator, Mapping
from datetime import timedelta

import pytest

from herdsman.connectors.registry import Around, ConnectorManager
from herdsman.errors import ServiceRejected, ServiceUnavailable
from herdsman.jobs.model import FailureClass
from herdsman.jobs.protocol import Broken, Ended, Finished, Unknown, Working
from herdsman.testing.fakes.comfyui import FakeComfyUI, Fault
from herdsman.worker.health import ServiceHealth
from tests.support.comfyui_workflows import Bench, a_job, new_id, one_node, render, through_socket
from tests.support.memory_results import MemoryResults
from tests.unit.worker.fake_service import Hand

MESSAGES = ("execution_start", "execution_cached", "executing:3", "progress", "executed", "execution_success")


@pytest.fixture(params=["0.3.45", "0.7.0"])
def fake(request: pytest.FixtureRequest) -> Iterator[FakeComfyUI]:
    with FakeComfyUI(speed=20, version=request.param) as fake:
        yield fake


def _quiet(bench: Bench, mine: str) -> None:
    """What was said before is heard first."""
    while bench.connector.listen(mine, timedelta(seconds=0.5)) is not None:
        pass


@pytest.fixture
def bench(fake: FakeComfyUI) -> Iterator[Bench]:
    bench = Bench(fake.url, timeout_s=2.0)
    yield bench
    bench.connector.close()


def _broken(bench: Bench, workflow: object) -> Broken:
    verdict = bench.run(a_job(workflow), new_id())
    assert isinstance(verdict, Broken)
    return verdict


def test_a_completion_that_is_never_sent_is_found(fake: FakeComfyUI, bench: Bench) -> None:
    fake.add_fault(Fault.COMPLETION_NEVER_SENT)
    mine = new_id()
    assert isinstance(bench.run(a_job(render()), mine, silence=0.5), Finished)
    assert fake.struck(Fault.COMPLETION_NEVER_SENT) == 1
    assert fake.renders(mine) == 1


@pytest.mark.parametrize("at", MESSAGES)
@pytest.mark.parametrize("fault", [Fault.CUT_SOCKET, Fault.DEAF_SOCKET, Fault.DUPLICATE_CLIENT])
def test_a_socket_may_be_lost_at_any_message(fake: FakeComfyUI, bench: Bench, fault: Fault, at: str) -> None:
    fake.add_fault(fault, at=at)
    mine = new_id()
    assert isinstance(bench.run(a_job(render()), mine, silence=0.5), Finished)
    assert fake.struck(fault) == 1
    assert fake.renders(mine) == 1


def test_a_socket_that_was_cut_is_opened_again_and_heard(fake: FakeComfyUI, bench: Bench) -> None:
    fake.add_fault(Fault.CUT_SOCKET, at="executing:3")
    workflow = render()
    workflow["3"]["inputs"] |= {"steps": 20, "seconds": 2}
    mine = bench.connector.submit(a_job(workflow), new_id())
    heard: list[Working] = []
    while isinstance(news := bench.connector.listen(mine, timedelta(seconds=20)), Working):
        heard.append(news)
    assert isinstance(news, Ended)
    assert "node 3 KSampler 20/20 (100%)" in {each.note for each in heard}
    assert fake.requests.count(("GET", "/ws")) == 2


@pytest.mark.parametrize("image", [1, 2, 3])
def test_images_that_a_cut_socket_lost_are_made_again(fake: FakeComfyUI, bench: Bench, image: int) -> None:
    fake.add_fault(Fault.CUT_SOCKET, at=_message_before(image))
    verdict = bench.run(a_job(through_socket(batch=3)), new_id(), silence=0.5)
    assert fake.struck(Fault.CUT_SOCKET) == 1
    assert isinstance(verdict, Broken)
    assert verdict.failure.kind is FailureClass.INFRASTRUCTURE
    assert "through a socket" in verdict.failure.error


def _message_before(image: int) -> str:
    """The number of the message after which one of three images is sent."""
    with FakeComfyUI(speed=20) as another:
        bench = Bench(another.url)
        bench.run(a_job(through_socket(batch=3)), new_id())
        bench.connector.close()
        told = [(said.type, said.data.get("node")) for said in another.ledger.messages]
    steps = [number for number, said in enumerate(told, start=1) if said == ("progress", "9")]
    return str(steps[image - 1])


def test_images_that_came_before_the_end_was_lost_are_kept(fake: FakeComfyUI, bench: Bench) -> None:
    fake.add_fault(Fault.COMPLETION_NEVER_SENT)
    job, mine = a_job(through_socket(batch=2)), new_id()
    finished = bench.run(job, mine, silence=0.5)
    assert isinstance(finished, Finished)
    assert len(bench.fetched(job, mine, finished)["outputs"]) == 2


def test_c_14_other_peoples_news_do_not_end_the_silence(fake: FakeComfyUI, bench: Bench) -> None:
    other = Bench(fake.url)
    blocking = other.connector.submit(a_job(one_node("HerdsmanInterruptible", seconds=600)), new_id())
    fake.wait_for(lambda: fake.renders(blocking))
    mine = bench.connector.submit(a_job(render()), new_id())
    third = other.connector.submit(a_job(render(2)), new_id())  # everybody is told how long the queue is
    other.connector.cancel(third)
    began = time.monotonic()
    assert bench.connector.listen(mine, timedelta(seconds=1)) is None
    assert time.monotonic() - began >= 1
    other.connector.close()


def test_a_restart_that_forgets_is_told_from_a_service_that_is_away(fake: FakeComfyUI, bench: Bench) -> None:
    mine = bench.connector.submit(a_job(one_node("HerdsmanSleep", seconds=600)), new_id())
    _quiet(bench, mine)
    fake.restart(down_s=60)
    with pytest.raises(ServiceUnavailable):
        bench.connector.check(mine)
    assert bench.connector.listen(mine, timedelta(seconds=0.3)) is None
    fake.wait_for(lambda: fake.up)
    assert isinstance(bench.connector.check(mine), Unknown)


def test_a_restart_that_remembers_loses_nothing(fake: FakeComfyUI, bench: Bench) -> None:
    job, mine = a_job(render()), new_id()
    assert isinstance(bench.run(job, mine), Finished)
    fake.restart(lose_history=False)
    assert isinstance(bench.connector.check(mine), Finished)


@pytest.mark.parametrize("versions", [("0.7.0", "0.3.45"), ("0.3.45", "0.7.0")])
def test_another_version_may_come_back(versions: tuple[str, str]) -> None:
    """The way to look is chosen by the version, and that may change under our feet."""
    before, after = versions
    with FakeComfyUI(version=before) as fake:
        bench = Bench(fake.url)
        assert isinstance(bench.connector.check(new_id()), Unknown)
        port = int(fake.url.rpartition(":")[2])
    with FakeComfyUI(version=after, port=port, speed=20):
        assert isinstance(bench.connector.check(new_id()), Unknown)
        assert isinstance(bench.run(a_job(render()), new_id()), Finished)
        bench.connector.close()


@pytest.mark.parametrize("fault", [Fault.HTML, Fault.UNAUTHORIZED, Fault.TOO_MANY, Fault.SERVER_ERROR])
@pytest.mark.parametrize("route", ["/queue", "/history", "/system_stats", "/jobs"])
def test_an_odd_answer_is_never_a_verdict(fake: FakeComfyUI, bench: Bench, fault: Fault, route: str) -> None:
    mine = bench.connector.submit(a_job(one_node("HerdsmanText", text="x")), new_id())
    fake.wait_for(lambda: fake.outputs(mine))
    other = Bench(fake.url).connector
    fake.add_fault(fault, at=route, times=None)
    try:
        verdict = other.check(mine)
    except ServiceUnavailable as error:
        assert fake.url in str(error)
    else:
        assert isinstance(verdict, Finished)
        assert fake.struck(fault) == 0
    fake.clear_faults()
    assert isinstance(other.check(mine), Finished)


def test_f_05_the_queue_is_read_before_the_history() -> None:
    """In the other order a job that ends in between is in neither."""
    with FakeComfyUI(version="0.3.45") as fake:
        mine = new_id()
        Bench(fake.url).connector.check(mine)
        assert fake.requests[-2:] == [("GET", "/queue"), ("GET", f"/history/{mine}")]


def test_one_look_is_enough_where_the_service_has_jobs() -> None:
    with FakeComfyUI(version="0.7.0") as fake:
        mine, connector = new_id(), Bench(fake.url).connector
        connector.check(mine)
        connector.check(mine)
        assert fake.requests[1:] == [("GET", f"/api/jobs/{mine}")] * 2


def test_a_service_that_hangs_ends_a_check_in_time(fake: FakeComfyUI) -> None:
    bench = Bench(fake.url, timeout_s=0.5)
    mine = bench.connector.submit(a_job(render()), new_id())
    fake.add_fault(Fault.SLOW_HTTP, seconds=1200)
    began = time.monotonic()
    with pytest.raises(ServiceUnavailable, match=r"did not answer GET .* within 0.5 s"):
        bench.connector.check(mine)
    assert time.monotonic() - began < 5
    bench.connector.close()


def test_an_error_in_a_node_is_a_failure_of_the_job(bench: Bench) -> None:
    broken = _broken(bench, one_node("HerdsmanFail", message="no luck"))
    assert broken.failure.kind is FailureClass.JOB_ERROR
    assert broken.failure.error == "node 1 (HerdsmanFail) failed: RuntimeError: no luck"


def test_a_full_gpu_is_a_class_of_its_own(bench: Bench) -> None:
    assert _broken(bench, one_node("HerdsmanOutOfMemory")).failure.kind is FailureClass.OUT_OF_MEMORY


def test_an_error_between_nodes_is_no_success(bench: Bench) -> None:
    assert _broken(bench, one_node("HerdsmanCycle")).failure.kind is FailureClass.JOB_ERROR


def test_a_node_that_hangs_stays_at_work_without_moving(fake: FakeComfyUI, bench: Bench) -> None:
    fake.add_fault(Fault.NODE_HANGS, at="3")
    mine = bench.connector.submit(a_job(render()), new_id())
    _quiet(bench, mine)
    first = bench.connector.check(mine)
    assert isinstance(first, Working)
    assert first.note == "node 3 KSampler"
    assert bench.connector.check(mine) == first


def test_a_comfyui_whose_execution_died_is_unfit_until_it_moves(fake: FakeComfyUI, bench: Bench) -> None:
    fake.add_fault(Fault.EXECUTION_DIES, at="3")
    clock = Hand()
    manager = ConnectorManager(
        services={"comfyui": {"connector": "comfyui", "url": fake.url}},
        around=Around(clock=clock, results=MemoryResults()),
    )
    standing = ServiceHealth(manager=manager, interval=timedelta(seconds=5), stall=timedelta(seconds=60))

    def unfit_later() -> Mapping[str, str]:
        clock.sleep(timedelta(seconds=61))
        standing.look()
        return standing.unfit()

    standing.look()
    assert standing.unfit() == {}
    mine = bench.connector.submit(a_job(render()), new_id())
    fake.wait_for(lambda: fake.struck(Fault.EXECUTION_DIES))
    assert unfit_later() == {}, "it has only now been seen at this job"
    assert mine in unfit_later()["comfyui"]
    bench.connector.submit(a_job(render(seed=2)), new_id())
    assert mine in unfit_later()["comfyui"], "it takes jobs, and that is no sign of life"
    fake.restart()
    assert unfit_later() == {}
    manager.close()


def test_a_file_that_is_gone_is_made_anew_by_the_next_run(fake: FakeComfyUI, bench: Bench) -> None:
    bench.result(a_job(render(), "job-1"), new_id())
    fake.delete_file("cat_00001_.png")
    job, mine = a_job(render(), "job-2"), new_id()
    finished = bench.run(job, mine)
    assert isinstance(finished, Finished)
    with pytest.raises(ServiceRejected, match=r"no file 'cat_00001_\.png' of node 9 any more") as said:
        bench.connector.fetch(job, mine, finished)
    assert said.value.retry
    assert bench.result(job, new_id())["outputs"][0]["bytes"] > 0


@pytest.mark.parametrize("fault", [Fault.HTML, Fault.SERVER_ERROR, Fault.TOO_MANY, Fault.UNAUTHORIZED])
def test_a_fetch_that_fails_may_be_tried_again(fake: FakeComfyUI, bench: Bench, fault: Fault) -> None:
    job, mine = a_job(render()), new_id()
    finished = bench.run(job, mine)
    assert isinstance(finished, Finished)
    fake.add_fault(fault, at="/view")
    with pytest.raises(ServiceUnavailable):
        bench.connector.fetch(job, mine, finished)
    assert bench.store.files == {} or all("preview" in uri for uri in bench.store.files)
    assert bench.fetched(job, mine, finished)["outputs"][0]["bytes"] > 0


def test_listening_to_a_service_that_is_away_never_raises(fake: FakeComfyUI, bench: Bench) -> None:
    mine = bench.connector.submit(a_job(one_node("HerdsmanSleep", seconds=600)), new_id())
    _quiet(bench, mine)
    fake.__exit__(None, None, None)
    began = time.monotonic()
    assert bench.connector.listen(mine, timedelta(seconds=0.5)) is None
    assert 0.5 <= time.monotonic() - began < 3
    assert bench.connector.fitness().fault is not None


@pytest.mark.parametrize("fault", [Fault.HTML, Fault.UNAUTHORIZED, Fault.TOO_MANY, Fault.SERVER_ERROR, Fault.SLOW_HTTP])
def test_a_service_that_is_not_well_says_so_without_an_error(fake: FakeComfyUI, fault: Fault) -> None:
    bench = Bench(fake.url, timeout_s=0.5)
    fake.add_fault(fault, at="/system_stats", seconds=60)
    assert bench.connector.fitness().fault is not None
    assert fake.struck(fault) == 1
