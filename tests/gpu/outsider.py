"""A process that Herdsman did not start: it fills a part of the GPU until it is ended."""

import importlib
import sys
import time
from typing import Any


def main() -> None:
    torch: Any = importlib.import_module("torch")
    held = torch.empty(int(sys.argv[1]) * 1024 * 1024, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    print("held", held.numel(), flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
