"""Frames of ComfyUI's socket, the broken ones included."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.connectors.comfyui.socket import Message, Picture, read_frame


def _binary(event: int, word: int, rest: bytes) -> bytes:
    return struct.pack(">II", event, word) + rest


def test_text_is_a_type_and_its_data() -> None:
    read = read_frame('{"type": "progress", "data": {"value": 1, "prompt_id": "p"}}')
    assert read == Message("progress", {"value": 1, "prompt_id": "p"})
    assert isinstance(read, Message)
    assert read.prompt_id == "p"


@pytest.mark.parametrize("frame", ["", "{", "[]", "5", "null", '{"data": {}}', '{"type": 5}', "[" * 100_000])
def test_text_that_is_no_message_is_passed_over(frame: str) -> None:
    assert read_frame(frame) is None


def test_a_preview_has_a_kind_and_no_name() -> None:
    assert read_frame(_binary(1, 1, b"JPEG")) == Picture(content=b"JPEG", content_type="image/jpeg")
    assert read_frame(_binary(1, 2, b"PNG")) == Picture(content=b"PNG", content_type="image/png")


def test_a_preview_with_names_says_whose_it_is() -> None:
    names = json.dumps({"node_id": "3", "prompt_id": "p", "image_type": "image/png"}).encode()
    assert read_frame(_binary(4, len(names), names + b"PNG")) == Picture(
        content=b"PNG", content_type="image/png", node="3", prompt_id="p"
    )


@given(st.binary(max_size=64) | st.text(max_size=64))
def test_no_frame_does_harm(frame: str | bytes) -> None:
    read_frame(frame)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0\1",
        _binary(1, 9, b"x"),
        _binary(2, 1, b"x"),
        _binary(3, 2, b"12half way"),  # a node says how it gets on
        _binary(3, 99, b"x"),
        _binary(4, 0xFFFFFFFF, b"{}"),
        _binary(4, 2, b"{("),
    ],
)
def test_bytes_that_are_no_message_are_passed_over(frame: bytes) -> None:
    assert read_frame(frame) is None
