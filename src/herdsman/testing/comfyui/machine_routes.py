"""What the service says of itself."""

from herdsman.testing.comfyui.life import Life
from herdsman.testing.comfyui.nodes import MODELS, NODES
from herdsman.testing.comfyui.replies import Reply, Request, ok, words

VRAM = 24 * 1024**3
RAM = 64 * 1024**3


def get_system_stats(life: Life, _: Request) -> Reply:
    busy = 6 * 1024**3 if life.holds_memory else 0
    system = {
        "os": "posix",
        "ram_total": RAM,
        "ram_free": RAM // 2,
        "comfyui_version": life.setup.version_text,
        "python_version": "3.12.3 (main)",
        "pytorch_version": "2.9.1+cu128",
        "embedded_python": False,
        "argv": ["main.py"],
    }
    device = {
        "name": "cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync",
        "type": "cuda",
        "index": 0,
        "vram_total": VRAM,
        "vram_free": VRAM - busy,
        "torch_vram_total": busy,
        "torch_vram_free": 0,
    }
    return ok({"system": system, "devices": [device]})


def get_features(life: Life, _: Request) -> Reply:
    return ok(life.features())


def get_object_info(life: Life, request: Request) -> Reply:
    wanted = request.route.removeprefix("/object_info").strip("/")
    files = life.setup.files.names("input")
    names = [wanted] if wanted else list(NODES)
    return ok({name: NODES[name].described(files) for name in names if name in NODES})


def get_models(_: Life, request: Request) -> Reply:
    folder = request.route.removeprefix("/models").strip("/")
    if not folder:
        return ok(list(MODELS))
    return ok(list(MODELS[folder])) if folder in MODELS else words(404, "404: Not Found")
