"""ComfyUI's answers, judged: each row of what its history and its queue may say."""

from typing import Any

import pytest

from herdsman.connectors.comfyui.connector import find_in_history, find_in_queue, is_running, judge
from herdsman.jobs.model import FailureClass
from herdsman.jobs.protocol import Broken, Finished, Working
from tests.support.comfyui_workflows import one_node, render

IMAGES = {"9": {"images": [{"filename": "cat_00001_.png", "subfolder": "", "type": "output"}]}}


def an_entry(
    last: str = "execution_success", *, status: str = "success", outputs: object = IMAGES, **more: Any
) -> dict[str, Any]:
    workflow = more.pop("workflow", render())
    extra = {"client_id": "c", "herdsman": {"expect": more.pop("expect", [])}}
    said = [
        ["execution_start", {"timestamp": 1000}],
        ["execution_cached", {"nodes": "none"}],
        [last, {"timestamp": 3500, **more}],
    ]
    return {
        "prompt": [1, "id", workflow, extra, ["9"] if "9" in workflow else list(workflow)],
        "outputs": outputs,
        "status": {"status_str": status, "completed": status == "success", "messages": said},
    }


def test_a_success_with_its_outputs_is_finished_and_says_how_long_it_took() -> None:
    assert judge(an_entry()) == Finished(outputs=IMAGES, seconds=2.5)


def test_f_06_an_error_in_a_node_is_told_without_paths_and_tensors() -> None:
    verdict = judge(
        an_entry(
            "execution_error",
            status="error",
            outputs={},
            node_id="3",
            node_type="KSampler",
            exception_type="ValueError",
            exception_message="bad\n seed",
            traceback=["/home/secret/comfy.py"],
            current_inputs={"x": ["tensor(...)"]},
        )
    )
    assert isinstance(verdict, Broken)
    assert verdict.failure.kind is FailureClass.JOB_ERROR
    assert verdict.failure.error == "node 3 (KSampler) failed: ValueError: bad seed"
    assert not verdict.cancelled


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("torch.OutOfMemoryError", "Allocation on device"),
        ("torch.cuda.OutOfMemoryError", ""),
        ("RuntimeError", "CUDA error: out of memory"),
    ],
)
def test_a_full_gpu_is_told_from_other_errors(kind: str, message: str) -> None:
    entry = an_entry("execution_error", status="error", exception_type=kind, exception_message=message)
    verdict = judge(entry)
    assert isinstance(verdict, Broken)
    assert verdict.failure.kind is FailureClass.OUT_OF_MEMORY


def test_a_very_long_error_is_cut() -> None:
    verdict = judge(an_entry("execution_error", status="error", exception_message="x" * 100_000))
    assert isinstance(verdict, Broken)
    assert len(verdict.failure.error) <= 2000


def test_an_error_between_nodes_counts_although_the_history_calls_it_a_success() -> None:
    assert isinstance(judge(an_entry("execution_error", outputs={})), Broken)


def test_an_interrupted_job_was_stopped_from_outside() -> None:
    verdict = judge(an_entry("execution_interrupted", status="error"))
    assert isinstance(verdict, Broken)
    assert verdict.cancelled
    assert verdict.failure.kind is FailureClass.INTERRUPTED


@pytest.mark.parametrize("expect", [[], ["9"]])
def test_a_success_without_the_outputs_it_must_have_runs_again(expect: list[str]) -> None:
    verdict = judge(an_entry(outputs={}, expect=expect))
    assert isinstance(verdict, Broken)
    assert verdict.failure.kind is FailureClass.INFRASTRUCTURE
    assert "no output of node 9" in verdict.failure.error


def test_a_success_without_outputs_is_fine_where_none_was_to_come() -> None:
    entry = an_entry(workflow=one_node("UploadSomewhere"), outputs={})
    assert judge(entry) == Finished(outputs={}, seconds=2.5)


def test_what_comes_through_the_socket_must_have_come() -> None:
    entry = an_entry(workflow=one_node("SaveImageWebsocket"), outputs={})
    missed = judge(entry)
    assert isinstance(missed, Broken)
    assert "through a socket" in missed.failure.error
    assert missed.failure.kind is FailureClass.INFRASTRUCTURE
    assert isinstance(judge(entry, {"1"}), Finished)


def test_an_output_that_was_dropped_at_the_start_is_not_missed() -> None:
    workflow = render() | {"10": {"class_type": "SaveImage", "inputs": {"images": 1}}}
    assert isinstance(judge(an_entry(workflow=workflow)), Finished)


@pytest.mark.parametrize("status", [None, {}, {"messages": None}, {"messages": [[], ["x"], 5]}])
def test_a_history_without_messages_is_judged_by_its_outputs(status: object) -> None:
    assert judge(an_entry() | {"status": status}) == Finished(outputs=IMAGES)
    assert isinstance(judge(an_entry(outputs=None) | {"status": status}), Broken)


def test_f_05_an_empty_history_is_no_entry() -> None:
    assert find_in_history({}, "id") is None
    assert find_in_history({"id": None}, "id") is None
    assert find_in_history({"id": {"outputs": {}}}, "id") is not None


def test_places_in_the_queue_are_counted_by_number_and_not_by_order() -> None:
    queue = {"queue_running": [[1, "run"]], "queue_pending": [[5, "c"], [9, "d"], [-2, "a"], [3, "b"]]}
    assert find_in_queue(queue, "run") == Working(position=0)
    assert is_running(queue, "run")
    assert not is_running(queue, "a")
    assert find_in_queue(queue, "a") == Working(position=1, ahead="run")
    assert find_in_queue(queue, "d") == Working(position=4, ahead="run")
    assert find_in_queue(queue, "x") is None


@pytest.mark.parametrize("queue", [{}, {"queue_running": None, "queue_pending": [None, [], [1]]}])
def test_an_odd_queue_holds_nothing(queue: dict[str, object]) -> None:
    assert find_in_queue(queue, "id") is None


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ("No such file: '/home/ann/ComfyUI/input/cat.png'", "No such file: '…/cat.png'"),
        ('File "/opt/comfy/nodes.py", line 4', 'File "…/nodes.py", line 4'),
        (r"cannot open C:\Users\Ann\models\a.safetensors", "cannot open …/a.safetensors"),
        ("expected tensor([[0.1, 0.2], [0.3, f(0)]], device='cuda:0') here", "expected tensor(…) here"),
        ("got array([1, 2, 3]) and tensor(", "got array(…) and tensor(…"),
        ("a ratio of and/or 3/4 at http://127.0.0.1:8188/view", None),
        ("torch.Tensor is no str", None),
    ],
)
def test_what_a_node_says_is_stored_without_paths_of_the_server_and_without_tensors(
    said: str, stored: str | None
) -> None:
    entry = an_entry("execution_error", status="error", outputs={}, exception_type="E", exception_message=said)
    verdict = judge(entry)
    assert isinstance(verdict, Broken)
    assert verdict.failure.error.endswith(f"E: {said if stored is None else stored}")
