"""What comes through ComfyUI's socket: JSON as text, images as bytes."""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from herdsman.connectors.comfyui.shapes import as_object, as_text

_WORD = struct.Struct(">I")
_KINDS = {1: "image/jpeg", 2: "image/png"}
_MOST_NAMES = 1 << 20

FEATURES = json.dumps({"type": "feature_flags", "data": {"supports_preview_metadata": True}})
"""Said first, it makes images come with the id of their job."""


@dataclass(frozen=True, slots=True)
class Message:
    type: str
    data: Mapping[str, object]

    @property
    def prompt_id(self) -> str | None:
        return as_text(self.data.get("prompt_id"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A preview, or an output that comes by no other way."""

    content: bytes
    content_type: str
    node: str | None = None
    """None where ComfyUI did not say whose it is."""
    prompt_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeText:
    """A node says how it gets on."""

    node: str
    text: str


def read_frame(frame: str | bytes) -> Message | Picture | NodeText | None:
    """None for what is not understood: custom nodes send whatever they like."""
    return _read_text(frame) if isinstance(frame, str) else _read_bytes(frame)


def _read_text(frame: str) -> Message | None:
    try:
        said = as_object(json.loads(frame))
    except (ValueError, RecursionError):
        return None
    kind = as_text(said.get("type"))
    return None if kind is None else Message(kind, as_object(said.get("data")))


def _read_bytes(frame: bytes) -> Picture | NodeText | None:
    if len(frame) < 2 * _WORD.size:
        return None
    event, word = _WORD.unpack_from(frame)[0], _WORD.unpack_from(frame, _WORD.size)[0]
    rest = frame[2 * _WORD.size :]
    match event:
        case 1 if word in _KINDS:
            return Picture(content=rest, content_type=_KINDS[word])
        case 3 if word <= len(rest):
            return _read_note(rest, word)
        case 4 if word <= min(len(rest), _MOST_NAMES):
            return _read_named(rest, word)
        case _:
            return None


def _read_note(rest: bytes, length: int) -> NodeText:
    node, text = rest[:length].decode(errors="replace"), rest[length:].decode(errors="replace")
    return NodeText(node=node, text=text)


def _read_named(rest: bytes, length: int) -> Picture | None:
    try:
        names = as_object(json.loads(rest[:length]))
    except (ValueError, RecursionError):
        return None
    return Picture(
        content=rest[length:],
        content_type=as_text(names.get("image_type")) or "image/jpeg",
        node=as_text(names.get("real_node_id")) or as_text(names.get("node_id")),
        prompt_id=as_text(names.get("prompt_id")),
    )
