"""The node classes that the fake knows, as ComfyUI describes them, and the pictures they make."""

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

CHECKPOINTS = ("a.safetensors", "sd_xl_base_1.0.safetensors", "v1-5-pruned-emaonly.safetensors")
MODELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"checkpoints": CHECKPOINTS, "loras": (), "vae": (), "controlnet": (), "upscale_models": ()}
)
SAMPLERS = ("euler", "euler_ancestral", "dpmpp_2m", "ddim")
SCHEDULERS = ("simple", "normal", "karras")
LARGEST_SEED = 2**64 - 1
SIDE = 16
KNOWN_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input. A kind in capitals that is none of INT, FLOAT, STRING, BOOLEAN, COMBO comes by a link only."""

    kind: str
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    folder: str | None = None
    """The choices are the files of this folder."""

    def described(self, choices: list[str]) -> list[Any]:
        if self.kind == "COMBO":
            return [choices, {}]
        limits = {"min": self.least, "max": self.most}
        return [self.kind, {name: limit for name, limit in limits.items() if limit is not None}]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClass:
    name: str
    required: Mapping[str, Input] = field(default_factory=dict[str, Input])
    optional: Mapping[str, Input] = field(default_factory=dict[str, Input])
    returns: tuple[str, ...] = ()
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
                part: {
                    name: each.described(input_files if each.folder else list(each.choices))
                    for name, each in inputs.items()
                }
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


def _int(least: int, most: int) -> Input:
    return Input(kind="INT", least=least, most=most)


def _float(least: float, most: float) -> Input:
    return Input(kind="FLOAT", least=least, most=most)


def _combo(*choices: str) -> Input:
    return Input(kind="COMBO", choices=choices)


TEXT = Input(kind="STRING")
SIZE, BATCH = _int(1, 16384), _int(1, 4096)
SECONDS = _float(0, 1e6)
IMAGE, LATENT, VAE, CONDITIONING = (Input(kind=kind) for kind in ("IMAGE", "LATENT", "VAE", "CONDITIONING"))


def _node(name: str, *returns: str, **required: Input) -> NodeClass:
    """One without returns is an output: a workflow is run for the sake of these."""
    return NodeClass(name=name, required=required, returns=returns, output=not returns)


def _test_node(name: str, **required: Input) -> NodeClass:
    """They stand anywhere in a workflow: they hand on what they are given."""
    anything = {"anything": Input(kind="*")}
    return NodeClass(name=name, required=required, optional=anything, returns=("*",), output=True)


_SAMPLER = {
    "model": Input(kind="MODEL"),
    "seed": _int(0, LARGEST_SEED),
    "steps": _int(1, 10000),
    "cfg": _float(0, 100),
    "sampler_name": _combo(*SAMPLERS),
    "scheduler": _combo(*SCHEDULERS),
    "positive": CONDITIONING,
    "negative": CONDITIONING,
    "latent_image": LATENT,
    "denoise": _float(0, 1),
}
_ALL = (
    _node("CheckpointLoaderSimple", "MODEL", "CLIP", "VAE", ckpt_name=_combo(*CHECKPOINTS)),
    _node("CLIPTextEncode", "CONDITIONING", text=TEXT, clip=Input(kind="CLIP")),
    _node("EmptyLatentImage", "LATENT", width=SIZE, height=SIZE, batch_size=BATCH),
    _node("EmptyImage", "IMAGE", width=SIZE, height=SIZE, batch_size=BATCH, color=_int(0, 0xFFFFFF)),
    NodeClass(name="KSampler", required=_SAMPLER, optional={"seconds": SECONDS}, returns=("LATENT",)),
    _node("VAEDecode", "IMAGE", samples=LATENT, vae=VAE),
    _node("VAEEncode", "LATENT", pixels=IMAGE, vae=VAE),
    _node("LoadImage", "IMAGE", "MASK", image=Input(kind="COMBO", folder="input")),
    _node("SaveImage", images=IMAGE, filename_prefix=TEXT),
    _node("PreviewImage", images=IMAGE),
    _node("SaveImageWebsocket", images=IMAGE),
    _test_node("HerdsmanSleep", seconds=SECONDS),
    _test_node("HerdsmanInterruptible", seconds=SECONDS),
    _test_node("HerdsmanFail", message=TEXT),
    _test_node("HerdsmanOutOfMemory"),
    _test_node("HerdsmanHang"),
    _test_node("HerdsmanCycle"),
    _test_node("HerdsmanHuge", megabytes=_int(0, 1_000_000)),
    _test_node("HerdsmanPreview", megabytes=_int(0, 1000)),
    _test_node("HerdsmanExpand"),
    _test_node("HerdsmanText", text=TEXT),
    _test_node("HerdsmanName", filename=TEXT),
)
NODES: Mapping[str, NodeClass] = MappingProxyType({each.name: each for each in _ALL})


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
