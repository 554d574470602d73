"""The node classes that the fake knows, as ComfyUI describes them, and the pictures they make."""

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

KNOWN_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")
SIDE = 16

Input = list[Any]
"""Its kind, or its choices, and its limits. A capital kind that is none of INT, FLOAT, STRING, BOOLEAN comes by a link."""
FILES: Input = [[], {}]
"""The choices are the files of the folder `input`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClass:
    name: str
    required: Mapping[str, Input] = field(default_factory=dict[str, Input])
    optional: Mapping[str, Input] = field(default_factory=dict[str, Input])
    returns: Sequence[str] = ()
    output: bool = False
    """A workflow is run for the sake of these."""

    @property
    def inputs(self) -> dict[str, Input]:
        return {**self.required, **self.optional}

    def described(self, input_files: list[str]) -> dict[str, Any]:
        """As `GET /object_info` shows it."""
        parts = {"required": self.required, "optional": self.optional}
        return {
            "input": {
                part: {name: [input_files, {}] if each == FILES else each for name, each in inputs.items()}
                for part, inputs in parts.items()
            },
            "input_order": {part: list(inputs) for part, inputs in parts.items()},
            "output": list(self.returns),
            "output_is_list": [False for _ in self.returns],
            "output_name": list(self.returns),
            "name": self.name,
            "display_name": self.name,
            "description": "",
            "python_module": "nodes",
            "category": "fake",
            "output_node": self.output,
        }


# Those named Herdsman... are for tests, and stand anywhere in a workflow: they hand on what they are given.
NODES: Mapping[str, NodeClass] = MappingProxyType(
    {
        name: NodeClass(name=name, **described)
        for name, described in json.loads(Path(__file__).with_name("nodes.json").read_text()).items()
    }
)
CHECKPOINTS: tuple[str, ...] = tuple(NODES["CheckpointLoaderSimple"].required["ckpt_name"][0])
MODELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"checkpoints": CHECKPOINTS, "loras": (), "vae": (), "controlnet": (), "upscale_models": ()}
)


def png(digest: str, side: int = SIDE) -> bytes:
    """A picture whose pixels come from the digest alone."""
    pixels = bytearray()
    for number in range(side):
        start = hashlib.sha256(f"{digest}/{number}".encode()).digest()
        pixels += b"\0" + (start * (side * 3 // len(start) + 1))[: side * 3]
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(pixels, 1)), (b"IEND", b""))
    return KNOWN_STARTS[0] + b"".join(
        (struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)))
        for kind, body in chunks
    )


def digest(*parts: object) -> str:
    """What tells two inputs apart; parts are JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
