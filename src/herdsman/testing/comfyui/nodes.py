"""The node classes that the fake knows: their inputs, what they return, and how ComfyUI describes them."""

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
                part: {name: each.described(_choices(each, input_files)) for name, each in inputs.items()}
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


def _choices(given: Input, input_files: list[str]) -> list[str]:
    return input_files if given.folder else list(given.choices)


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


def _link(kind: str) -> Input:
    return Input(kind=kind)


def _test_node(name: str, **required: Input) -> NodeClass:
    return NodeClass(name=name, required=required, optional=ANYTHING, returns=("*",), output=True)


_ALL = (
    NodeClass(
        name="CheckpointLoaderSimple",
        required={"ckpt_name": _combo(*CHECKPOINTS)},
        returns=("MODEL", "CLIP", "VAE"),
    ),
    NodeClass(
        name="CLIPTextEncode", required={"text": TEXT, "clip": _link("CLIP")}, returns=("CONDITIONING",)
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
            "model": _link("MODEL"),
            "seed": _int(0, LARGEST_SEED),
            "steps": _int(1, 10000),
            "cfg": _float(0, 100),
            "sampler_name": _combo(*SAMPLERS),
            "scheduler": _combo(*SCHEDULERS),
            "positive": _link("CONDITIONING"),
            "negative": _link("CONDITIONING"),
            "latent_image": _link("LATENT"),
            "denoise": _float(0, 1),
        },
        optional={"seconds": SECONDS},
        returns=("LATENT",),
    ),
    NodeClass(
        name="VAEDecode", required={"samples": _link("LATENT"), "vae": _link("VAE")}, returns=("IMAGE",)
    ),
    NodeClass(
        name="VAEEncode", required={"pixels": _link("IMAGE"), "vae": _link("VAE")}, returns=("LATENT",)
    ),
    NodeClass(
        name="LoadImage",
        required={"image": Input(kind="COMBO", folder="input")},
        returns=("IMAGE", "MASK"),
    ),
    NodeClass(name="SaveImage", required={"images": _link("IMAGE"), "filename_prefix": TEXT}, output=True),
    NodeClass(name="PreviewImage", required={"images": _link("IMAGE")}, output=True),
    NodeClass(name="SaveImageWebsocket", required={"images": _link("IMAGE")}, output=True),
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
