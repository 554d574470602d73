"""The work of `bench.gpu`: one kernel of a given length; run as a program, a bare loop of them."""

import importlib
import json
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

_CYCLES = 100_000_000


class Kernel(NamedTuple):
    start: Callable[[int], None]
    wait: Callable[[], None]
    cycles: float
    """Of the GPU's clock in a millisecond, while it is warm."""


@cache
def _kernel() -> Kernel:
    torch: Any = importlib.import_module("torch")
    torch.cuda.init()
    spin = torch.cuda._sleep  # noqa: SLF001  (PyTorch's own tests have nothing better)
    for _ in range(20):  # the clock rises with the work
        spin(_CYCLES)
    torch.cuda.synchronize()
    began = time.monotonic()
    spin(_CYCLES)
    torch.cuda.synchronize()
    return Kernel(spin, torch.cuda.synchronize, _CYCLES / (time.monotonic() - began) / 1000)


def spin(ms: float) -> tuple[float, float]:
    """When the kernel was started and when it had ended, on the clock that all processes share."""
    kernel = _kernel()
    began = time.monotonic()
    kernel.start(int(kernel.cycles * ms))
    kernel.wait()
    return began, time.monotonic()


if __name__ == "__main__":
    length_ms, count = map(int, sys.argv[1:])
    print(json.dumps([spin(length_ms) for _ in range(count)]))
