"""The node classes that the fake knows: how ComfyUI describes them, what each does, and the pictures they make."""

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from herdsman.testing.fakes.comfyui.files import Files, Outside, Place, input_place

CHECKPOINTS = ("a.safetensors", "sd_xl_base_1.0.safetensors", "v1-5-pruned-emaonly.safetensors")
MODELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"checkpoints": CHECKPOINTS, "loras": (), "vae": (), "controlnet": (), "upscale_models": ()}
)
SAMPLERS = ("euler", "euler_ancestral", "dpmpp_2m", "ddim")
SCHEDULERS = ("simple", "normal", "karras")
LARGEST_SEED = 2**64 - 1
STEP_S = 0.01
PREVIEW_SIDE = 8
MEGABYTE = 1024 * 1024
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


def _int(least: int | None = None, most: int | None = None) -> Input:
    return Input(kind="INT", least=least, most=most)


def _float(least: float | None = None, most: float | None = None) -> Input:
    return Input(kind="FLOAT", least=least, most=most)


def _combo(*choices: str) -> Input:
    return Input(kind="COMBO", choices=choices)


TEXT = Input(kind="STRING")
SIZE = _int(1, 16384)
SECONDS = _float(0, 1e6)
# The nodes of the tests stand anywhere in a workflow: they hand on what they are given.
ANYTHING = {"anything": Input(kind="*")}


def _test_node(name: str, **required: Input) -> NodeClass:
    return NodeClass(name=name, required=required, optional=ANYTHING, returns=("*",), output=True)


_ALL = (
    NodeClass(
        name="CheckpointLoaderSimple",
        required={"ckpt_name": _combo(*CHECKPOINTS)},
        returns=("MODEL", "CLIP", "VAE"),
    ),
    NodeClass(
        name="CLIPTextEncode", required={"text": TEXT, "clip": Input(kind="CLIP")}, returns=("CONDITIONING",)
    ),
    NodeClass(
        name="EmptyLatentImage",
        required={"width": SIZE, "height": SIZE, "batch_size": _int(1, 4096)},
        returns=("LATENT",),
    ),
    NodeClass(
        name="EmptyImage",
        required={"width": SIZE, "height": SIZE, "batch_size": _int(1, 4096), "color": _int(0, 0xFFFFFF)},
        returns=("IMAGE",),
    ),
    NodeClass(
        name="KSampler",
        required={
            "model": Input(kind="MODEL"),
            "seed": _int(0, LARGEST_SEED),
            "steps": _int(1, 10000),
            "cfg": _float(0, 100),
            "sampler_name": _combo(*SAMPLERS),
            "scheduler": _combo(*SCHEDULERS),
            "positive": Input(kind="CONDITIONING"),
            "negative": Input(kind="CONDITIONING"),
            "latent_image": Input(kind="LATENT"),
            "denoise": _float(0, 1),
        },
        optional={"seconds": SECONDS},
        returns=("LATENT",),
    ),
    NodeClass(
        name="VAEDecode",
        required={"samples": Input(kind="LATENT"), "vae": Input(kind="VAE")},
        returns=("IMAGE",),
    ),
    NodeClass(
        name="VAEEncode",
        required={"pixels": Input(kind="IMAGE"), "vae": Input(kind="VAE")},
        returns=("LATENT",),
    ),
    NodeClass(
        name="LoadImage",
        required={"image": Input(kind="COMBO", folder="input")},
        returns=("IMAGE", "MASK"),
    ),
    NodeClass(
        name="SaveImage", required={"images": Input(kind="IMAGE"), "filename_prefix": TEXT}, output=True
    ),
    NodeClass(name="PreviewImage", required={"images": Input(kind="IMAGE")}, output=True),
    NodeClass(name="SaveImageWebsocket", required={"images": Input(kind="IMAGE")}, output=True),
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


class NodeFailed(Exception):
    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class FailedBetweenNodes(NodeFailed):
    """Found while the next node is picked; ComfyUI then calls the job a success."""


class Interrupted(Exception):
    """Somebody asked for the end of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """A node at work: what it is given, and what it may do."""

    inputs: Mapping[str, Any]
    signature: str
    """The same for the same inputs, all the way up."""
    pictures: Mapping[str, tuple[str, ...]]
    """By input: a digest for each picture that comes through the link."""
    files: Files
    temp_prefix: str
    sleep: Callable[[float], None]
    sleep_unless_interrupted: Callable[[float], None]
    hang: Callable[[], None]
    progress: Callable[[int, int, bytes | None], None]
    inner: Callable[[int], None]
    """Tells of a node that this one has brought along."""

    def number(self, name: str, otherwise: float = 0.0) -> float:
        value = self.inputs.get(name, otherwise)
        return otherwise if isinstance(value, list) else float(value)

    def text(self, name: str) -> str:
        return str(self.inputs.get(name, ""))


@dataclass(frozen=True, slots=True)
class NodeResult:
    """What a node leaves: pictures for the next ones, and files or texts for people."""

    pictures: tuple[str, ...]
    ui: dict[str, Any] | None = None


def work(class_type: str, node: NodeContext) -> NodeResult:
    batch = max((len(each) for each in node.pictures.values()), default=1)
    if class_type in ("EmptyLatentImage", "EmptyImage"):
        batch = int(node.number("batch_size", 1))
    pictures = tuple(digest(node.signature, number) for number in range(batch))
    match class_type:
        case "KSampler":
            steps = int(node.number("steps", 1))
            for step in range(1, steps + 1):
                node.sleep(node.number("seconds", STEP_S))
                node.progress(step, steps, png(digest(node.signature, step), PREVIEW_SIDE))
        case "LoadImage":
            place = input_place(node.text("image"))
            file = node.files.find(place)
            if file is None:
                raise NodeFailed(
                    "FileNotFoundError", f"[Errno 2] No such file or directory: '{place.filename}'"
                )
            if not file.content.startswith(KNOWN_STARTS):
                raise NodeFailed(
                    "PIL.UnidentifiedImageError", f"cannot identify image file '{place.filename}'"
                )
            return NodeResult((digest(file.content.hex()),))
        case "SaveImage":
            return _saved(node, node.text("filename_prefix"), "output")
        case "PreviewImage":
            return _saved(node, node.temp_prefix, "temp")
        case "SaveImageWebsocket":
            for number, picture in enumerate(node.pictures["images"]):
                node.progress(number, len(node.pictures["images"]), png(picture))
            return NodeResult(())
        case _:
            return NodeResult(pictures, _work_for_tests(class_type, node))
    return NodeResult(pictures)


def _work_for_tests(class_type: str, node: NodeContext) -> dict[str, Any] | None:
    """The nodes that ComfyUI does not have; they hand on what they are given, and may show something."""
    match class_type:
        case "HerdsmanSleep":
            node.sleep(node.number("seconds"))
        case "HerdsmanInterruptible":
            node.sleep_unless_interrupted(node.number("seconds"))
        case "HerdsmanFail":
            raise NodeFailed("RuntimeError", node.text("message"))
        case "HerdsmanOutOfMemory":
            raise NodeFailed(
                "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 is full."
            )
        case "HerdsmanHang":
            node.hang()
        case "HerdsmanHuge":
            place = node.files.next_place("huge", "output", "bin")
            node.files.put_large(place, node.signature, int(node.number("megabytes")) * MEGABYTE)
            return {"files": [place.shown()]}
        case "HerdsmanPreview":
            # In one large frame; what follows the end of a PNG is ignored by whoever reads it.
            node.progress(1, 1, png(node.signature) + bytes(int(node.number("megabytes")) * MEGABYTE))
        case "HerdsmanExpand":
            node.inner(0)
            node.inner(1)
        case "HerdsmanText":
            return {"text": [node.text("text")]}
        case "HerdsmanName":
            # Whatever the name, the file can be had under it: a service that lies would do so too.
            place = Place(node.text("filename"))
            node.files.put(place, png(node.signature))
            return {"images": [place.shown()]}
        case _:
            pass
    return None


def _saved(node: NodeContext, prefix: str, folder: str) -> NodeResult:
    shown: list[dict[str, str]] = []
    for picture in node.pictures["images"]:
        try:
            place = node.files.next_place(prefix, folder)
        except Outside as error:
            raise NodeFailed("Exception", "Saving image outside the output folder is not allowed.") from error
        node.files.put(place, png(picture))
        shown.append(place.shown())
    return NodeResult((), {"images": shown})


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
