"""How the nodes of a workflow hang together: links, the order of work, and what makes two nodes the same."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from herdsman.testing.comfyui.files import Files, input_place
from herdsman.testing.comfyui.pictures import digest

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
    for output in outputs:
        for node_id in _with_sources(workflow, output, frozenset(ordered)):
            ordered.setdefault(node_id)
    return list(ordered)


def signatures(workflow: Workflow, order: list[str], files: Files, once: str) -> dict[str, str]:
    """By node: what it is made of, all the way up. Two nodes with the same one give the same."""
    made: dict[str, str] = {}
    for node_id in order:
        node = workflow[node_id]
        sources = {name: (made[source], slot) for name, (source, slot) in links(workflow, node_id).items()}
        made[node_id] = digest(
            node["class_type"],
            {**inputs_of(workflow, node_id), **sources},
            _mark(node, files, once),
        )
    return made


def _mark(node: Mapping[str, Any], files: Files, once: str) -> object:
    """What the inputs do not show: the content of a file, or that it is to be done each time."""
    if node["class_type"] == "LoadImage":
        file = files.find(input_place(str(node.get("inputs", {}).get("image", ""))))
        return None if file is None else digest(file.content.hex())
    return once if node["class_type"] in NEVER_CACHED else None


def _with_sources(workflow: Workflow, node_id: str, done: frozenset[str]) -> Iterator[str]:
    if node_id in done:
        return
    for source, _ in links(workflow, node_id).values():
        yield from _with_sources(workflow, source, done)
    yield node_id
