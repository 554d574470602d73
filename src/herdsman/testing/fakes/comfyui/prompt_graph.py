"""Workflows: how their nodes hang together, in which order they run, and whether one can run at all.

What is wrong with a workflow is what `POST /prompt` answers before anything is queued.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from herdsman.testing.fakes.comfyui.files import Files, input_place
from herdsman.testing.fakes.comfyui.nodes import FILES, NODES, Input, digest

Workflow = Mapping[str, Any]

# ComfyUI runs these anew each time.
NEVER_CACHED = frozenset({"SaveImageWebsocket"})


def inputs_of(workflow: Workflow, node_id: str) -> dict[str, Any]:
    return cast("dict[str, Any]", workflow[node_id].get("inputs") or {})


def link(value: object) -> tuple[str, int] | None:
    """The node and the slot that an input comes from, if it is a link."""
    match value:
        case [str() as node_id, int() as slot]:
            return node_id, slot
        case _:
            return None


def links(workflow: Workflow, node_id: str) -> dict[str, tuple[str, int]]:
    found = {name: link(value) for name, value in inputs_of(workflow, node_id).items()}
    return {name: each for name, each in found.items() if each is not None}


def in_order(workflow: Workflow, outputs: list[str]) -> list[str]:
    """Each node that the outputs need, after those that it needs itself."""
    ordered: dict[str, None] = {}

    def visit(node_id: str) -> None:
        if node_id not in ordered:
            for source, _ in links(workflow, node_id).values():
                visit(source)
            ordered[node_id] = None

    for output in outputs:
        visit(output)
    return list(ordered)


def signatures(workflow: Workflow, order: list[str], files: Files, once: str) -> dict[str, str]:
    """By node: what it is made of, all the way up. Two nodes with the same one give the same."""
    made: dict[str, str] = {}
    for node_id in order:
        node = workflow[node_id]
        sources = {name: (made[source], slot) for name, (source, slot) in links(workflow, node_id).items()}
        # What the inputs do not show: the content of a file, or that it is to be done each time.
        mark = once if node["class_type"] in NEVER_CACHED else None
        if node["class_type"] == "LoadImage":
            file = files.find(input_place(str(node.get("inputs", {}).get("image", ""))))
            mark = None if file is None else digest(file.content.hex())
        made[node_id] = digest(node["class_type"], {**inputs_of(workflow, node_id), **sources}, mark)
    return made


ANY = "*"
READERS = {"INT": int, "FLOAT": float, "STRING": str, "BOOLEAN": bool}

NodeErrors = dict[str, dict[str, Any]]


class Rejected(Exception):
    """Nothing is queued; the body says why."""

    def __init__(self, kind: str, message: str, details: str = "", node_errors: NodeErrors | None = None) -> None:
        super().__init__(message)
        error: dict[str, Any] = {"type": kind, "message": message, "details": details, "extra_info": {}}
        self.body: dict[str, Any] = {"error": error, "node_errors": node_errors or {}}


def _outputs(workflow: Workflow) -> Iterator[str]:
    for node_id, node in workflow.items():
        class_type: Any = cast("dict[str, Any]", node).get("class_type") if isinstance(node, dict) else None
        if class_type not in NODES:
            message = f"Cannot execute because node {class_type} does not exist."
            if class_type is None:
                message = "Cannot execute because a node is missing the class_type property."
            raise Rejected("invalid_prompt", message, f"Node ID '#{node_id}'")
        if NODES[class_type].output:
            yield node_id


def check(workflow: Workflow, targets: list[str] | None, files: Files) -> tuple[list[str], NodeErrors]:
    """The outputs that can run, and the errors of those that are left out without another word; `Rejected` if none can.

    Inputs are made what they should be, in place.
    """
    wanted = [node_id for node_id in _outputs(workflow) if targets is None or node_id in targets]
    if not wanted:
        raise Rejected("prompt_no_outputs", "Prompt has no outputs")
    found: dict[str, list[dict[str, Any]]] = {}
    suffering: dict[str, list[str]] = {}
    """The nodes with errors, and the outputs that suffer from each."""

    def above(node_id: str, path: tuple[str, ...] = ()) -> Iterator[str]:
        yield node_id
        if node_id in path:
            found[node_id] = [_inner("maximum recursion depth exceeded", "link")]
            return
        for source, _ in links(workflow, node_id).values():
            if source in workflow:
                yield from above(source, (*path, node_id))

    good: list[str] = []
    for output in wanted:
        nodes = dict.fromkeys(above(output))
        for node_id in nodes:
            if node_id not in found:
                found[node_id] = list(node_errors(workflow, node_id, files))
        wrong = [node_id for node_id in nodes if found[node_id]]
        for node_id in wrong:
            suffering.setdefault(node_id, []).append(output)
        if not wrong:
            good.append(output)
    shown: NodeErrors = {
        node_id: {"errors": found[node_id], "dependent_outputs": outputs, "class_type": workflow[node_id]["class_type"]}
        for node_id, outputs in suffering.items()
    }
    if not good:
        raise Rejected("prompt_outputs_failed_validation", "Prompt outputs failed validation", "", shown)
    return good, shown


def node_errors(workflow: Workflow, node_id: str, files: Files) -> Iterator[dict[str, Any]]:
    """Of one node, not of those above it."""
    node_class = NODES[workflow[node_id]["class_type"]]
    inputs = inputs_of(workflow, node_id)
    for name, wanted in node_class.inputs.items():
        if name not in inputs:
            if name in node_class.required:
                yield _error("required_input_missing", "Required input is missing", name, name)
        elif isinstance(inputs[name], list):
            yield from _link_errors(workflow, name, inputs[name], wanted)
        else:
            yield from _value_errors(inputs, name, wanted, files)


def _link_errors(workflow: Workflow, name: str, value: list[object], wanted: Input) -> Iterator[dict[str, Any]]:
    source = link(value)
    if source is None:
        message = "Bad linked input, must be a length-2 list of [node_id, slot_index]"
        yield _error("bad_linked_input", message, name, name, received_value=value)
    elif source[0] not in workflow:
        yield _inner(f"'{source[0]}'", name, linked_node=value)
    else:
        returns = NODES[workflow[source[0]]["class_type"]].returns
        kind = "COMBO" if isinstance(wanted[0], list) else wanted[0]
        received = returns[source[1]] if source[1] < len(returns) else None
        if received is None:
            yield _inner("tuple index out of range", name, linked_node=value)
        elif ANY not in (received, kind) and received != kind:
            message = "Return type mismatch between linked nodes"
            details = f"{name}, received_type({received}) mismatch input_type({kind})"
            yield _error("return_type_mismatch", message, details, name, received_type=received)


def _value_errors(inputs: dict[str, Any], name: str, wanted: Input, files: Files) -> Iterator[dict[str, Any]]:
    value, (kind, limits) = inputs[name], wanted
    if wanted == FILES:
        if files.find(input_place(str(value))) is None:
            message = "Custom validation failed for node"
            yield _error("custom_validation_failed", message, f"{name} - Invalid image file: {value}", name)
        return
    if isinstance(kind, list):
        if value not in kind:
            details = f"{name}: '{value}' not in {kind}"
            yield _error("value_not_in_list", "Value not in list", details, name, received_value=value)
        return
    try:
        inputs[name] = READERS[kind](value) if kind in READERS else value
    except (TypeError, ValueError) as error:
        message = f"Failed to convert an input value to a {kind} value"
        yield _error("invalid_input_type", message, f"{name}, {value}, {error}", name)
        return
    value = inputs[name]
    if "min" in limits and value < limits["min"]:
        yield _error("value_smaller_than_min", f"Value {value} smaller than min of {limits['min']}", name, name)
    if "max" in limits and value > limits["max"]:
        yield _error("value_bigger_than_max", f"Value {value} bigger than max of {limits['max']}", name, name)


def _inner(reason: str, name: str, **extra: object) -> dict[str, Any]:
    kind, message = "exception_during_inner_validation", "Exception when validating inner node"
    return _error(kind, message, reason, name, exception_message=reason, **extra)


def _error(kind: str, message: str, details: str, input_name: str, **extra: object) -> dict[str, Any]:
    info = cast("dict[str, Any]", {"input_name": input_name, **extra})
    return {"type": kind, "message": message, "details": details, "extra_info": info}
