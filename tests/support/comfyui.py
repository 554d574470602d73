"""Workflows for the fake ComfyUI, and connectors at it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from herdsman.connectors.registry import Around, find
from herdsman.ports import Connector, SystemClock
from herdsman.results import ResultOptions, open_store
from herdsman.worker.service_run import Watching

QUICK = Watching(
    interval=timedelta(seconds=0.1),
    inactivity=timedelta(seconds=0.4),
    patience=timedelta(seconds=4),
    stall=timedelta(seconds=2),
    settle=timedelta(seconds=1),
)


def workflow(seed: int = 1, *, steps: int = 4, prefix: str = "herd", seconds: float = 0.5) -> dict[str, Any]:
    """A picture like any other: a model, a text, a sampler, a file."""
    return {
        "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "a.safetensors"}},
        "2": {"class_type": "CLIPTextEncode", "inputs": {"text": "a herd", "clip": ["1", 1]}},
        "3": {"class_type": "EmptyLatentImage", "inputs": {"width": 8, "height": 8, "batch_size": 1}},
        "4": {
            "class_type": "KSampler",
            "inputs": {
                "seed": seed,
                "steps": steps,
                "seconds": seconds,
                "cfg": 7,
                "sampler_name": "euler",
                "scheduler": "normal",
                "denoise": 1,
                "model": ["1", 0],
                "positive": ["2", 0],
                "negative": ["2", 0],
                "latent_image": ["3", 0],
            },
        },
        "5": {"class_type": "VAEDecode", "inputs": {"samples": ["4", 0], "vae": ["1", 2]}},
        "9": {"class_type": "SaveImage", "inputs": {"images": ["5", 0], "filename_prefix": prefix}},
    }


def a_connector(url: str, files: Path, **options: object) -> Connector:
    around = Around(clock=SystemClock(), results=open_store(ResultOptions(place=str(files))))
    return find("comfyui")({"url": url, **options}, around)
