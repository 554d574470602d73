"""A lease around foreign code: memory of a GPU is ours for a while, and workers keep away from it meanwhile."""

import os
import subprocess
import sys

from connect import client

FOREIGN = "import os; print('foreign code may use', len(os.environ['CUDA_VISIBLE_DEVICES'].split(',')), 'GPU')"


def main() -> None:
    with client() as herd, herd.lease(memory_mb=4000, wait=60, ttl=30) as lease:
        print("leased 4000 MB of GPU memory", flush=True)
        # Its heartbeats are sent in the background; `lease.check()` says, between two steps, that it is still ours.
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(lease.gpu_index)}
        subprocess.run([sys.executable, "-c", FOREIGN], env=environment, check=True)
        lease.check()
    print("given back")


if __name__ == "__main__":
    main()
