"""Handing a workflow to ComfyUI: what is refused, what is unclear, and who has to act."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from herdsman.errors import HerdsmanError, ServiceRejected, ServiceUnavailable, SubmissionUnknown
from herdsman.jobs.protocol import Finished, Unknown
from herdsman.testing.fakes.comfyui import FakeComfyUI, Fault
from tests.support.comfyui_workflows import Bench, a_job, new_id, one_node, render

PROMPT = "POST /prompt"


@pytest.fixture
def fake() -> Iterator[FakeComfyUI]:
    with FakeComfyUI(speed=20) as fake:
        yield fake


@pytest.fixture
def bench(fake: FakeComfyUI) -> Iterator[Bench]:
    bench = Bench(fake.url, timeout_s=1.0)
    yield bench
    bench.connector.close()


def _refused(bench: Bench, workflow: object, **more: Any) -> ServiceRejected:
    with pytest.raises(ServiceRejected) as said:
        bench.connector.submit(a_job(workflow, **more), new_id())
    return said.value


def test_a_wrong_payload_is_the_jobs_own_fault(fake: FakeComfyUI, bench: Bench) -> None:
    refused = _refused(bench, {"nodes": [], "links": []})
    assert "Export (API)" in str(refused)
    assert not refused.retry
    assert fake.requests == []


def test_an_unknown_node_may_be_known_elsewhere(fake: FakeComfyUI, bench: Bench) -> None:
    refused = _refused(bench, one_node("NoSuchNode"))
    assert "node NoSuchNode does not exist" in str(refused)
    assert refused.retry
    fake.wait_for(lambda: fake.sockets == 0)


def test_a_missing_model_may_be_there_elsewhere(bench: Bench) -> None:
    refused = _refused(bench, render(), payload={"set": {"4.ckpt_name": "nope.safetensors"}})
    assert "node 4 (CheckpointLoaderSimple)" in str(refused)
    assert "nope.safetensors" in str(refused)
    assert refused.retry


def test_a_wrong_value_is_wrong_everywhere(bench: Bench) -> None:
    refused = _refused(bench, render(), payload={"set": {"3.steps": 0}})
    assert "node 3 (KSampler): Value 0 smaller than min of 1" in str(refused)
    assert not refused.retry


def test_a_workflow_without_outputs_is_told(bench: Bench) -> None:
    refused = _refused(bench, one_node("CheckpointLoaderSimple", ckpt_name="a.safetensors"))
    assert "Prompt has no outputs" in str(refused)
    assert not refused.retry


def test_a_workflow_that_would_run_in_part_is_refused_and_taken_back(fake: FakeComfyUI, bench: Bench) -> None:
    blocker = Bench(fake.url)
    blocker.connector.submit(a_job(one_node("HerdsmanInterruptible", seconds=600)), new_id())
    fake.wait_for(lambda: fake.runs == 1)
    mine = new_id()
    with pytest.raises(ServiceRejected, match=r"only a part .*node 20 \(LoadImage\).*Invalid image file") as said:
        bench.connector.submit(a_job(_half()), mine)
    assert not said.value.retry
    assert isinstance(blocker.connector.check(mine), Unknown)
    blocker.connector.close()


def test_a_workflow_may_run_in_part_where_that_is_wanted(fake: FakeComfyUI) -> None:
    bench = Bench(fake.url, allow_partial=True)
    mine = new_id()
    assert isinstance(bench.run(a_job(_half()), mine), Finished)
    assert any("only a part" in line for line in bench.said)
    bench.connector.close()


def _half() -> dict[str, object]:
    save = {"class_type": "SaveImage", "inputs": {"images": ["20", 0], "filename_prefix": "x"}}
    return {**render(), "20": {"class_type": "LoadImage", "inputs": {"image": "nope.png"}}, "21": save}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault.ERROR_AFTER_QUEUEING, SubmissionUnknown),
        (Fault.ERROR_BEFORE_QUEUEING, SubmissionUnknown),
        (Fault.CLOSED_PROMPT, SubmissionUnknown),
    ],
)
def test_what_may_have_been_taken_is_unclear(
    fake: FakeComfyUI, bench: Bench, fault: Fault, kind: type[HerdsmanError]
) -> None:
    job, mine = a_job(render()), new_id()
    fake.add_fault(fault)
    with pytest.raises(kind):
        bench.connector.submit(job, mine)
    assert fake.struck(fault) == 1
    verdict = bench.follow(mine, silence=1)
    if fault is Fault.ERROR_BEFORE_QUEUEING:
        assert isinstance(verdict, Unknown)
    else:
        assert isinstance(verdict, Finished)
        assert fake.renders(mine) == 1


@pytest.mark.parametrize("route", ["/ws", PROMPT])
@pytest.mark.parametrize("fault", [Fault.HTML, Fault.TOO_MANY, Fault.SERVER_ERROR, Fault.SLOW_HTTP, Fault.UNAUTHORIZED])
def test_no_odd_answer_is_taken_for_a_success(fake: FakeComfyUI, bench: Bench, fault: Fault, route: str) -> None:
    fake.add_fault(fault, at=route, seconds=60)
    with pytest.raises(HerdsmanError) as said:
        bench.connector.submit(a_job(render()), new_id())
    assert fake.struck(fault) == 1
    unclear = route == PROMPT and fault in {Fault.HTML, Fault.SERVER_ERROR, Fault.SLOW_HTTP}
    if fault is Fault.UNAUTHORIZED:
        assert isinstance(said.value, ServiceRejected)
        assert said.value.retry
        assert "option headers" in str(said.value)
    else:
        assert type(said.value) is (SubmissionUnknown if unclear else ServiceUnavailable)
    assert fake.url in str(said.value)


def test_nothing_is_unclear_when_nobody_is_there(fake: FakeComfyUI) -> None:
    url = fake.url
    fake.__exit__(None, None, None)
    bench = Bench(url)
    with pytest.raises(ServiceUnavailable, match="could not be opened") as said:
        bench.connector.submit(a_job(render()), new_id())
    assert type(said.value) is ServiceUnavailable


def test_an_upload_that_is_refused_leaves_nothing_behind(fake: FakeComfyUI, bench: Bench) -> None:
    bench.store.files["s3://b/x.png"] = b"x"
    fake.add_fault(Fault.SERVER_ERROR, at="/upload/image")
    job = a_job(one_node("LoadImage", image=""), payload={"files": {"1.image": "s3://b/x.png"}})
    with pytest.raises(ServiceUnavailable) as said:
        bench.connector.submit(job, new_id())
    assert type(said.value) is ServiceUnavailable
    assert ("POST", "/prompt") not in fake.requests


def test_a_header_for_a_proxy_is_never_told(fake: FakeComfyUI, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bench = Bench(fake.url, headers={"Authorization": "Bearer hunter2"})
    fake.add_fault(Fault.UNAUTHORIZED, at="/ws")
    fake.add_fault(Fault.SERVER_ERROR, at="/jobs")
    with pytest.raises(ServiceRejected) as refused:
        bench.connector.submit(a_job(render()), new_id())
    with pytest.raises(ServiceUnavailable) as unavailable:
        bench.connector.check(new_id())
    assert "hunter2" not in f"{refused.value}{unavailable.value}{bench.said}"
    bench.result(a_job(render()), new_id())
    bench.connector.close()
    ours = [each for each in caplog.records if each.name != "uvicorn.error"]  # which is the fake
    assert ours
    assert not [each for each in ours if "hunter2" in each.getMessage()]


def test_the_same_id_may_be_sent_again_after_it_was_lost(fake: FakeComfyUI, bench: Bench) -> None:
    job, mine = a_job(render()), new_id()
    fake.add_fault(Fault.ERROR_BEFORE_QUEUEING)
    with pytest.raises(SubmissionUnknown):
        bench.connector.submit(job, mine)
    assert isinstance(bench.connector.check(mine), Unknown)
    assert isinstance(bench.run(job, mine), Finished)
    assert fake.renders(mine) == 1
    fake.wait_for(lambda: fake.sockets == 1)
