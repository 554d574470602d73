"""Why a workflow is not taken, and whether another machine might take it."""

import pytest

from herdsman.connectors.comfyui.workflow import explain, explain_part
from tests.support.comfyui_workflows import render


def _node_errors(node: str, kind: str, error: str, details: str, **extra: object) -> dict[str, object]:
    told = {"type": error, "message": "No good", "details": details, "extra_info": extra}
    return {node: {"errors": [told], "dependent_outputs": ["9"], "class_type": kind}}


MISSING_MODEL = _node_errors(
    "4",
    "CheckpointLoaderSimple",
    "value_not_in_list",
    "ckpt_name: 'a.safetensors' not in []",
    input_name="ckpt_name",
)
WRONG_NUMBER = _node_errors("3", "KSampler", "value_smaller_than_min", "steps", input_name="steps")
WRONG_WORD = _node_errors("3", "KSampler", "value_not_in_list", "scheduler: 'x' not in ['a']", input_name="scheduler")


def test_a_model_that_is_missing_here_may_be_elsewhere() -> None:
    why = explain({"error": {}, "node_errors": MISSING_MODEL}, render())
    assert why.retry
    assert "node 4 (CheckpointLoaderSimple): No good: ckpt_name: 'a.safetensors' not in []" in str(why)


@pytest.mark.parametrize("errors", [WRONG_NUMBER, WRONG_WORD, {**MISSING_MODEL, **WRONG_NUMBER}])
def test_a_wrong_value_is_wrong_everywhere(errors: dict[str, object]) -> None:
    assert not explain({"node_errors": errors}, render()).retry


def test_a_class_that_is_missing_here_may_be_elsewhere() -> None:
    said = "Cannot execute because node NoSuchNode does not exist."
    error = {"type": "invalid_prompt", "message": said, "details": "Node ID '#1'"}
    why = explain({"error": error, "node_errors": {}}, render())
    assert why.retry
    assert "NoSuchNode does not exist. Node ID '#1'" in str(why)


def test_a_workflow_without_outputs_is_wrong_everywhere() -> None:
    why = explain({"error": {"type": "prompt_no_outputs", "message": "Prompt has no outputs"}}, render())
    assert not why.retry
    assert str(why) == "ComfyUI does not take the workflow: Prompt has no outputs"


def test_an_answer_without_reasons_is_still_a_sentence() -> None:
    assert str(explain({}, render())) == "ComfyUI does not take the workflow: it does not say why"


def test_a_list_of_a_thousand_models_does_not_fill_the_page() -> None:
    errors = _node_errors("4", "Loader", "value_not_in_list", str(["m.safetensors"] * 10_000))
    assert len(str(explain({"node_errors": errors}, render()))) < 500


def test_what_is_taken_in_part_is_told() -> None:
    assert explain_part({}, render()) is None
    why = explain_part(WRONG_NUMBER, render())
    assert why is not None
    assert str(why).startswith("ComfyUI would run only a part of the workflow: node 3 (KSampler)")
