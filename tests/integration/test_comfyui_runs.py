"""The ComfyUI connector when all is well: from a payload to files, by whichever way the end is known."""

import hashlib
import tracemalloc
from collections.abc import Iterator
from datetime import timedelta

import pytest

from herdsman.errors import ServiceRejected
from herdsman.jobs.model import FailureClass
from herdsman.jobs.protocol import Broken, Ended, Finished, Unknown, Working
from herdsman.testing.fakes.comfyui import FakeComfyUI, Fault
from tests.support.comfyui_workflows import Bench, a_job, new_id, one_node, render, through_socket

OLD, NEW = "0.3.45", "0.7.0"


@pytest.fixture(params=[OLD, NEW])
def fake(request: pytest.FixtureRequest) -> Iterator[FakeComfyUI]:
    with FakeComfyUI(speed=20, version=request.param) as fake:
        yield fake


@pytest.fixture
def bench(fake: FakeComfyUI) -> Iterator[Bench]:
    bench = Bench(fake.url)
    yield bench
    bench.connector.close()


def test_a_workflow_is_run_and_its_images_are_kept(fake: FakeComfyUI, bench: Bench) -> None:
    job, mine = a_job(render()), new_id()
    result = bench.result(job, mine)
    [image] = result["outputs"]
    content = fake.content("cat_00001_.png")
    assert image == {
        "node": "9",
        "kind": "images",
        "name": "cat_00001_.png",
        "uri": "s3://bucket/job-1/cat_00001_.png",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "content_type": "image/png",
    }
    assert bench.store.files[image["uri"]] == content
    assert fake.renders(mine) == 1


def test_the_socket_is_open_before_the_prompt_is_sent(fake: FakeComfyUI, bench: Bench) -> None:
    bench.result(a_job(render()), new_id())
    paths = [path for _, path in fake.requests]
    assert paths.index("/ws") < paths.index("/prompt")


def test_news_rise_from_nothing_to_the_end(bench: Bench) -> None:
    mine = bench.connector.submit(a_job(render(steps=20)), new_id())
    heard: list[Working] = []
    while isinstance(news := bench.connector.listen(mine, timedelta(seconds=10)), Working):
        heard.append(news)
    assert isinstance(news, Ended)
    shares = [each.done or 0.0 for each in heard]
    assert shares == sorted(shares)
    assert shares[-1] > 0.9
    assert "node 3 KSampler 5/20 (25%)" in {each.note for each in heard}


def test_a_cached_result_is_not_missed(fake: FakeComfyUI, bench: Bench) -> None:
    first = bench.result(a_job(render(), "job-1"), new_id())
    again = bench.result(a_job(render(), "job-2"), new_id())
    assert again["outputs"][0]["sha256"] == first["outputs"][0]["sha256"]
    assert fake.ledger.renders[-1].worked == []


def test_a_recovered_result_is_equal_to_the_normal_one(fake: FakeComfyUI, bench: Bench) -> None:
    job, mine = a_job(render(batch=3)), new_id()
    result = bench.result(job, mine)
    assert len(result["outputs"]) == 3
    other = Bench(fake.url)
    found = other.connector.check(mine)
    assert isinstance(found, Finished)
    assert other.fetched(job, mine, found) == result == other.fetched(job, mine, found)
    other.connector.close()


def test_another_process_listens_on(fake: FakeComfyUI, bench: Bench) -> None:
    job, mine = a_job(one_node("HerdsmanSleep", seconds=20)), new_id()
    bench.connector.submit(job, mine)
    bench.connector.close()
    other = Bench(fake.url)
    other.connector.attach(job, mine)
    assert isinstance(other.follow(mine, silence=30), Finished)
    assert fake.renders(mine) == 1
    other.connector.close()


def test_values_are_set_and_texts_come_back(bench: Bench) -> None:
    job = a_job(one_node("HerdsmanText", text="a"), payload={"set": {"HerdsmanText.text": "b"}})
    assert bench.result(job, new_id()) == {"outputs": [], "values": {"1": {"text": ["b"]}}}


def test_files_are_brought_to_the_service_by_reference(fake: FakeComfyUI, bench: Bench) -> None:
    made = bench.result(a_job(render(), "job-1"), new_id())["outputs"][0]["uri"]
    workflow = one_node("LoadImage", image="") | {
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "copy"}}
    }
    result = bench.result(a_job(workflow, "job-2", payload={"files": {"1.image": made}}), new_id())
    assert result["outputs"][0]["name"] == "copy_00001_.png"
    assert fake.content("cat_00001_.png", type="input") == bench.store.files[made]


def test_a_file_that_another_agent_s_job_made_is_not_there(bench: Bench) -> None:
    made = bench.result(a_job(render(), "job-1", agent="ann"), new_id())["outputs"][0]["uri"]
    workflow = one_node("LoadImage", image="") | {
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "copy"}}
    }
    given = {"payload": {"files": {"1.image": made}}}
    with pytest.raises(ServiceRejected, match="cannot be used: there is no file"):
        bench.connector.submit(a_job(workflow, "job-2", agent="bob", **given), new_id())
    assert bench.result(a_job(workflow, "job-3", agent="ann", **given), new_id())["outputs"]


def test_two_files_of_one_name_are_kept_apart(bench: Bench) -> None:
    bench.store.files = {"s3://a/x.png": b"\x89PNG\r\n\x1a\n1", "s3://b/x.png": b"\x89PNG\r\n\x1a\n2"}
    workflow = {
        "1": {"class_type": "LoadImage", "inputs": {"image": ""}},
        "2": {"class_type": "LoadImage", "inputs": {"image": ""}},
        "3": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "one/x"}},
        "4": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "two/x"}},
    }
    files = {"1.image": "s3://a/x.png", "2.image": "s3://b/x.png"}
    result = bench.result(a_job(workflow, payload={"files": files}), new_id())
    assert [each["name"] for each in result["outputs"]] == ["x_00001_.png", "4-x_00001_.png"]
    assert len({each["sha256"] for each in result["outputs"]}) == 2


def test_a_file_that_is_not_there_is_told_before_anything_runs(fake: FakeComfyUI, bench: Bench) -> None:
    job = a_job(one_node("LoadImage", image=""), payload={"files": {"1.image": "s3://b/gone.png"}})
    with pytest.raises(ServiceRejected, match=r"node 1, input 'image', cannot be used: there is no file") as said:
        bench.connector.submit(job, new_id())
    assert not said.value.retry
    assert ("POST", "/prompt") not in fake.requests


def test_a_file_over_the_limit_is_not_sent(fake: FakeComfyUI) -> None:
    bench = Bench(fake.url, upload_limit_mb=1)
    bench.store.files["s3://b/big.png"] = bytes(1024 * 1024 + 1)
    job = a_job(one_node("LoadImage", image=""), payload={"files": {"1.image": "s3://b/big.png"}})
    with pytest.raises(ServiceRejected, match=r"larger than 1 MB; .* upload_limit_mb"):
        bench.connector.submit(job, new_id())
    assert fake.requests == []


def test_images_that_only_the_socket_brings_are_kept(bench: Bench) -> None:
    job, mine = a_job(through_socket(batch=3)), new_id()
    finished = bench.run(job, mine)
    assert isinstance(finished, Finished), finished
    result = bench.fetched(job, mine, finished)
    assert [each["name"] for each in result["outputs"]] == [f"socket-9-{number}.png" for number in (1, 2, 3)]
    assert len({each["sha256"] for each in result["outputs"]}) == 3
    assert bench.fetched(job, mine, finished) == result


def test_images_that_only_the_socket_brought_are_made_again_for_who_came_late(fake: FakeComfyUI, bench: Bench) -> None:
    job, mine = a_job(through_socket()), new_id()
    assert isinstance(bench.run(job, mine), Finished)
    other = Bench(fake.url)
    verdict = other.connector.check(mine)
    assert isinstance(verdict, Broken)
    assert verdict.failure.kind is FailureClass.INFRASTRUCTURE
    other.connector.close()


def test_previews_are_shown_up_to_a_number(fake: FakeComfyUI) -> None:
    bench = Bench(fake.url, max_previews=3, preview_interval_s=0)
    bench.result(a_job(render(steps=10)), new_id())
    assert bench.said == [f"preview: s3://bucket/job-1/preview-{number}.png" for number in (1, 2, 3)]
    bench.connector.close()


def test_previews_are_not_shown_faster_than_asked(fake: FakeComfyUI) -> None:
    bench = Bench(fake.url, preview_interval_s=1000)
    bench.result(a_job(render(steps=10)), new_id())
    assert len(bench.said) == 1
    bench.connector.close()


def test_a_large_output_goes_through_in_small_pieces(bench: Bench) -> None:
    job = a_job(one_node("HerdsmanHuge", megabytes=200))
    tracemalloc.start()
    try:
        result = bench.result(job, new_id(), silence=20)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result["outputs"][0]["bytes"] == 200 * 1024 * 1024
    assert bench.store.largest_piece <= 1024 * 1024
    assert most < 50 * 1024 * 1024


@pytest.mark.parametrize("workflow", [render(), through_socket()])
def test_what_is_too_large_for_the_store_is_the_jobs_own_fault(
    fake: FakeComfyUI, workflow: dict[str, dict[str, object]]
) -> None:
    bench = Bench(fake.url, max_previews=0)
    bench.store.limit = 10
    job, mine = a_job(workflow), new_id()
    finished = bench.run(job, mine)
    assert isinstance(finished, Finished)
    with pytest.raises(ServiceRejected, match="over the limit of 10 bytes") as said:
        bench.connector.fetch(job, mine, finished)
    assert not said.value.retry
    bench.connector.close()


@pytest.mark.parametrize("name", ["../../etc/x", "/etc/x", "a/../../x", "..\\x"])
def test_a_name_that_leads_out_is_not_even_asked_for(fake: FakeComfyUI, bench: Bench, name: str) -> None:
    job, mine = a_job(one_node("HerdsmanName", filename=name)), new_id()
    finished = bench.run(job, mine)
    assert isinstance(finished, Finished)
    with pytest.raises(ServiceRejected, match=r"node 1 says that its output is .* nothing was fetched") as said:
        bench.connector.fetch(job, mine, finished)
    assert not said.value.retry
    assert ("GET", "/view") not in fake.requests


def test_memory_is_freed_between_models_and_only_then(fake: FakeComfyUI, bench: Bench) -> None:
    def freed() -> int:
        return fake.requests.count(("POST", "/free"))

    for model, times in [("a", 0), ("a", 0), (None, 0), ("b", 1), ("b", 1), ("a", 2)]:
        bench.result(a_job(one_node("HerdsmanText", text="x"), model=model), new_id())
        bench.connector.close()
        assert freed() == times


def test_memory_is_left_alone_where_that_is_wanted(fake: FakeComfyUI) -> None:
    bench = Bench(fake.url, free_between_models=False)
    for model in ("a", "b"):
        bench.result(a_job(one_node("HerdsmanText", text="x"), model=model), new_id())
    assert ("POST", "/free") not in fake.requests
    bench.connector.close()


def test_one_that_waits_knows_its_place(fake: FakeComfyUI, bench: Bench) -> None:
    other = Bench(fake.url)
    first = bench.connector.submit(a_job(one_node("HerdsmanInterruptible", seconds=600)), new_id())
    fake.wait_for(lambda: fake.renders(first))
    second = other.connector.submit(a_job(render()), new_id())
    assert other.connector.check(second) == Working(position=1, ahead=first)
    assert bench.connector.check(first).position == 0  # type: ignore[union-attr]
    other.connector.close()


def test_an_id_that_was_never_sent_is_unknown(bench: Bench) -> None:
    assert isinstance(bench.connector.check(new_id()), Unknown)


def test_the_service_says_how_it_is(bench: Bench) -> None:
    fitness = bench.connector.fitness()
    assert fitness.fault is None
    assert fitness.version in {OLD, NEW}
    assert fitness.queued == 0
    assert (fitness.vram_total_mb or 0) >= (fitness.vram_free_mb or 0) > 0


def test_a_service_that_is_too_old_is_named() -> None:
    with FakeComfyUI(version="0.3.44") as fake:
        fault = Bench(fake.url).connector.fitness().fault
    assert fault is not None
    assert "0.3.44 is too old: 0.3.45" in fault


def test_an_old_service_chooses_the_id_itself() -> None:
    with FakeComfyUI(version="0.3.44", speed=20) as fake:
        bench = Bench(fake.url)
        job, mine = a_job(render()), new_id()
        given = bench.connector.submit(job, mine)
        assert given != mine
        assert isinstance(bench.follow(given), Finished)
        bench.connector.close()


def test_closing_leaves_no_socket_and_may_be_repeated(fake: FakeComfyUI, bench: Bench) -> None:
    bench.connector.submit(a_job(one_node("HerdsmanSleep", seconds=1)), new_id())
    assert fake.sockets == 1
    bench.connector.close()
    bench.connector.close()
    fake.wait_for(lambda: fake.sockets == 0)
    assert isinstance(bench.run(a_job(render()), new_id()), Finished)


def test_an_end_that_is_written_down_late_is_waited_for(fake: FakeComfyUI, bench: Bench) -> None:
    fake.add_fault(Fault.NO_HISTORY_YET, seconds=10)  # half a second at this speed
    mine = bench.connector.submit(a_job(render()), new_id())
    while not isinstance(bench.connector.listen(mine, timedelta(seconds=10)), Ended):
        pass
    assert isinstance(bench.connector.check(mine), Finished)
