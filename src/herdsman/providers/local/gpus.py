"""How many GPUs this machine has, and which one the next worker gets."""

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_DRIVER = Path("/proc/driver/nvidia/gpus")


def count_gpus() -> int:
    """By NVIDIA's library where it is installed, else by what the driver shows."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return len(list(_DRIVER.iterdir())) if _DRIVER.is_dir() else 0
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return 0
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError:
        return 0
    finally:
        nvml.nvmlShutdown()


def next_gpu(count: int, used: Iterable[int], last: int | None) -> int | None:
    """The next free one after the last that was given, so that all get their share; None when all are taken."""
    taken = set(used)
    first = 0 if last is None else last + 1
    turn = (index % count for index in range(first, first + count))
    return next((index for index in turn if index not in taken), None)
