"""Why ComfyUI does not take a workflow, in words, and whether another machine might."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from herdsman.connectors.comfyui.shapes import as_list, as_object, as_text, one_line
from herdsman.connectors.comfyui.workflow import Workflow

LONGEST = 2000
LONGEST_DETAIL = 300
FILES = (".safetensors", ".sft", ".ckpt", ".pt", ".pt2", ".pth", ".bin", ".gguf", ".onnx", ".yaml", ".pkl")


@dataclass(frozen=True, slots=True)
class Rejection:
    said: str
    elsewhere: bool
    """What is missing is on this machine, and not in the job."""


def explain(answer: Mapping[str, object], workflow: Workflow) -> Rejection:
    """Of an answer with 400."""
    of_nodes = list(_errors(as_object(answer.get("node_errors")), workflow))
    if of_nodes:
        said = "; ".join(each.said for each in of_nodes)
        return Rejection(_sentence(said), all(each.elsewhere for each in of_nodes))
    error = as_object(answer.get("error"))
    said = " ".join(str(error.get(part) or "") for part in ("message", "details"))
    unknown_class = error.get("type") in {"invalid_prompt", "missing_node_type"} and "does not exist" in said
    return Rejection(_sentence(one_line(said, LONGEST_DETAIL) or "it does not say why"), unknown_class)


def explain_part(node_errors: Mapping[str, object], workflow: Workflow) -> Rejection | None:
    """Of an answer with 200 that takes the workflow without some of its outputs."""
    of_nodes = list(_errors(node_errors, workflow))
    if not of_nodes:
        return None
    said = "ComfyUI would run only a part of the workflow: " + "; ".join(each.said for each in of_nodes)
    return Rejection(one_line(said, LONGEST), all(each.elsewhere for each in of_nodes))


def _sentence(said: str) -> str:
    return one_line(f"ComfyUI does not take the workflow: {said}", LONGEST)


def _errors(nodes: Mapping[str, object], workflow: Workflow) -> Iterator[Rejection]:
    for node, told in nodes.items():
        fields = as_object(told)
        for error in as_list(fields.get("errors")):
            yield _error(node, str(fields.get("class_type", "unknown")), as_object(error), workflow)


def _error(node: str, kind: str, error: Mapping[str, object], workflow: Workflow) -> Rejection:
    details = one_line(str(error.get("details") or ""), LONGEST_DETAIL)
    said = f"node {node} ({kind}): {error.get('message', 'no reason given')}: {details}"
    return Rejection(said, _is_missing_file(node, error, workflow))


def _is_missing_file(node: str, error: Mapping[str, object], workflow: Workflow) -> bool:
    """A list that should hold a model file and does not."""
    if error.get("type") != "value_not_in_list":
        return False
    extra = as_object(error.get("extra_info"))
    name = as_text(extra.get("input_name")) or str(error.get("details") or "").split(":", 1)[0]
    inputs = as_object(as_object(workflow.get(node)).get("inputs"))
    value = inputs.get(name, extra.get("received_value"))
    return isinstance(value, str) and value.lower().endswith(FILES)
