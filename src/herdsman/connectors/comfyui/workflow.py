"""The payload of a ComfyUI job: a workflow in API format, what is set in it, and what it must make.

{"workflow": {"3": {"class_type": "KSampler", "inputs": {...}}, ...},
 "set": {"3.seed": 7, "KSampler.steps": 20}, "files": {"10.image": "s3://..."}, "expect": ["9"]}

Also why ComfyUI does not take a workflow, in words, and whether another machine might.
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, cast

from herdsman.connectors.comfyui.shapes import as_list, as_object, as_text
from herdsman.errors import InvalidRequest, ServiceRejected
from herdsman.text import one_line

Workflow = Mapping[str, Mapping[str, Any]]

KEYS = ("workflow", "set", "files", "expect")
REFERENCES = ("file://", "s3://", "http://", "https://")
SOCKET_SAVER = "SaveImageWebsocket"
"""Its images come through the socket, and nowhere else."""
SAVERS = frozenset(
    (
        *(SOCKET_SAVER, "PreviewImage", "SaveImage", "SaveAnimatedPNG", "SaveAnimatedWEBP"),
        *("SaveVideo", "SaveWEBM", "VHS_VideoCombine", "SaveAudio", "SaveAudioMP3", "SaveAudioOpus"),
    )
)
"""A success in which one of these has made nothing is none."""
LONGEST = 2000
LONGEST_DETAIL = 300
FILES = (".safetensors", ".sft", ".ckpt", ".pt", ".pt2", ".pth", ".bin", ".gguf", ".onnx", ".yaml", ".pkl")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file that a node shall read, which has to be brought to ComfyUI first."""

    node: str
    name: str
    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A payload that was read: the workflow with everything set in it that needs no upload."""

    workflow: Workflow
    files: tuple[InputFile, ...] = ()
    expect: tuple[str, ...] = ()
    """Ids of nodes that must have outputs; empty to judge by the classes of the nodes."""


def read_order(payload: object) -> Order:
    """`InvalidRequest` for whatever can be seen without asking ComfyUI."""
    if not isinstance(payload, dict):
        raise InvalidRequest('the payload must be an object like {"workflow": {...}, "set": {...}}')
    given = cast("dict[str, object]", payload)
    for key in given:
        if key not in KEYS:
            raise InvalidRequest(f"the payload of a ComfyUI job has no {key!r}; it may have: {', '.join(KEYS)}")
    try:
        json.dumps(given, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"the payload holds something that JSON cannot: {error}") from error
    workflow = deepcopy(check_workflow(given.get("workflow")))
    for path, value in _object(given, "set").items():
        node, name = find_input(workflow, path)
        cast("dict[str, object]", workflow[node]["inputs"])[name] = value
    files = tuple(_file(workflow, path, value) for path, value in _object(given, "files").items())
    expect = given.get("expect")
    if expect is not None and not isinstance(expect, list):
        raise InvalidRequest(f"'expect' must be a list of nodes, and not {str(expect)[:80]!r}")
    nodes: list[str] = []
    for asked in as_list(cast("object", expect)):
        node = _find_node(workflow, str(asked))
        if node is None:
            raise InvalidRequest(f"'expect' names {asked!r}, and the workflow has no such node")
        nodes.append(node)
    return Order(workflow=workflow, files=files, expect=tuple(nodes))


def with_inputs(workflow: Workflow, values: Mapping[tuple[str, str], object]) -> Workflow:
    """A copy in which inputs, each named by its node and its name, have other values."""
    changed = deepcopy(workflow)
    for (node, name), value in values.items():
        cast("dict[str, object]", changed[node]["inputs"])[name] = value
    return changed


def check_workflow(workflow: object) -> Workflow:
    """In API format: what the queue takes, and not what the canvas saves."""
    if not isinstance(workflow, dict) or not workflow:
        raise InvalidRequest("the payload needs under 'workflow' the nodes of a workflow in API format")
    nodes = cast("dict[str, object]", workflow)
    if isinstance(nodes.get("nodes"), list):
        raise InvalidRequest(
            "the workflow is in the format of the canvas (it has 'nodes' and 'links'); in ComfyUI choose"
            " Workflow > Export (API) and use that file"
        )
    for node, body in nodes.items():
        fields = as_object(body)
        if as_text(fields.get("class_type")) is None:
            raise InvalidRequest(f"node {node!r} of the workflow lacks its class_type; is this the API format?")
        if not isinstance(fields.get("inputs"), dict):
            raise InvalidRequest(f"node {node!r} of the workflow lacks its inputs; is this the API format?")
    return cast("Workflow", nodes)


def find_input(workflow: Workflow, path: str) -> tuple[str, str]:
    """The node and the input that NODE.NAME or NODE.inputs.NAME means."""
    parts = path.split(".")
    for at in range(1, len(parts)):  # every way to read it, since titles hold dots too
        asked, name = ".".join(parts[:at]), ".".join(parts[at:])
        node = _find_node(workflow, asked)
        if node is not None:
            return node, _find_name(workflow, node, name, path)
    raise InvalidRequest(f"the workflow has no node for {path!r}{_did_you_mean(path, _paths(workflow))}")


def class_of(workflow: Workflow, node: str) -> str:
    """An id with dots was made by the node that the first part names."""
    body = workflow.get(node) or workflow.get(node.split(".", 1)[0])
    return "unknown" if body is None else str(body["class_type"])


def of_class(workflow: Workflow, *classes: str) -> frozenset[str]:
    return frozenset(node for node, body in workflow.items() if body.get("class_type") in classes)


def _object(given: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = given.get(name, {})
    if not isinstance(value, dict):
        raise InvalidRequest(f"{name!r} must be an object of paths and values, and not {str(value)[:80]!r}")
    return as_object(cast("object", value))


def _find_node(workflow: Workflow, asked: str) -> str | None:
    if asked in workflow:
        return asked
    found = [
        node
        for node, body in workflow.items()
        if asked in {as_text(as_object(body.get("_meta")).get("title")), body["class_type"]}
    ]
    if len(found) > 1:
        raise InvalidRequest(f"{asked!r} means {len(found)} nodes: {', '.join(found)}; use one of these ids")
    return found[0] if found else None


def _find_name(workflow: Workflow, node: str, name: str, path: str) -> str:
    inputs = as_object(workflow[node]["inputs"])
    for each in (name, name.removeprefix("inputs.")):
        if each in inputs:
            return each
    # ComfyUI would take it, ignore it, and render something else than was meant.
    raise InvalidRequest(
        f"node {node!r} ({workflow[node]['class_type']}) has no input for {path!r};"
        f" it has: {', '.join(inputs) or 'none'}{_did_you_mean(path, _paths(workflow))}"
    )


def _paths(workflow: Workflow) -> list[str]:
    return [f"{node}.{name}" for node, body in workflow.items() for name in as_object(body["inputs"])]


def _did_you_mean(path: str, known: list[str]) -> str:
    close = get_close_matches(path.replace(".inputs.", "."), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _file(workflow: Workflow, path: str, reference: object) -> InputFile:
    node, name = find_input(workflow, path)
    if not isinstance(reference, str) or not reference.startswith(REFERENCES):
        raise InvalidRequest(
            f"the file for {path!r} must be a reference that begins with one of {', '.join(REFERENCES)}; files"
            f" themselves, as data: or base64, do not belong into a job (it begins with {str(reference)[:20]!r})"
        )
    return InputFile(node=node, name=name, reference=reference)


def explain(answer: Mapping[str, object], workflow: Workflow) -> ServiceRejected:
    """Of an answer with 400."""
    said, elsewhere = _errors(as_object(answer.get("node_errors")), workflow)
    if not said:
        error = as_object(answer.get("error"))
        said = " ".join(str(error.get(part) or "") for part in ("message", "details"))
        elsewhere = error.get("type") in {"invalid_prompt", "missing_node_type"} and "does not exist" in said
        said = one_line(said, LONGEST_DETAIL) or "it does not say why"
    return ServiceRejected(one_line(f"ComfyUI does not take the workflow: {said}", LONGEST), retry=elsewhere)


def explain_part(node_errors: Mapping[str, object], workflow: Workflow) -> ServiceRejected | None:
    """Of an answer with 200 that takes the workflow without some of its outputs."""
    said, elsewhere = _errors(node_errors, workflow)
    text = one_line(f"ComfyUI would run only a part of the workflow: {said}", LONGEST)
    return ServiceRejected(text, retry=elsewhere) if said else None


def _errors(nodes: Mapping[str, object], workflow: Workflow) -> tuple[str, bool]:
    """What is wrong, and whether all of it is missing on this machine, and not in the job."""
    said, elsewhere = list[str](), True
    for node, reply in nodes.items():
        fields = as_object(reply)
        for error in as_list(fields.get("errors")):
            found = as_object(error)
            details = one_line(str(found.get("details") or ""), LONGEST_DETAIL)
            reason = found.get("message", "no reason given")
            said.append(f"node {node} ({fields.get('class_type', 'unknown')}): {reason}: {details}")
            elsewhere &= _is_missing_file(node, found, workflow)
    return "; ".join(said), elsewhere


def _is_missing_file(node: str, error: Mapping[str, object], workflow: Workflow) -> bool:
    """A list that should hold a model file and does not."""
    if error.get("type") != "value_not_in_list":
        return False
    extra = as_object(error.get("extra_info"))
    name = as_text(extra.get("input_name")) or str(error.get("details") or "").split(":", 1)[0]
    inputs = as_object(as_object(workflow.get(node)).get("inputs"))
    value = inputs.get(name, extra.get("received_value"))
    return isinstance(value, str) and value.lower().endswith(FILES)
