"""Handlers that use the GPU for real; they are loaded in a handler's process, on a machine that has one."""

import importlib
import time
from typing import Any

from herdsman import JobContext, handler


@handler("gpu_fill")
def gpu_fill(job: JobContext) -> object:
    """Takes so many MB of the GPU and holds them until it is cancelled."""
    torch: Any = importlib.import_module("torch")
    held = torch.empty(int(job.payload["mb"]) * 1024 * 1024, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    job.progress(0.5, "held")
    while not job.cancelled:
        time.sleep(0.1)
    del held
    return None


@handler("gpu_too_much")
def gpu_too_much(_job: JobContext) -> object:
    """Asks for more than any GPU has, by plain allocations."""
    torch: Any = importlib.import_module("torch")
    total = torch.cuda.mem_get_info()[1]
    return torch.empty(2 * total, dtype=torch.uint8, device="cuda").numel()


@handler("gpu_multiply")
def gpu_multiply(_job: JobContext) -> object:
    torch: Any = importlib.import_module("torch")
    ones = torch.ones(256, 256, device="cuda")
    return {"sum": float((ones @ ones).sum().item()), "device": torch.cuda.get_device_name(0)}
