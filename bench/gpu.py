"""Measures how busy a real GPU is while one worker works off a queue, beside a bare loop.

Run it with `python -m bench.gpu`. Without a GPU and PyTorch it says so, and measures nothing.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from bench.aims import Aim, conclude, surroundings, verdict
from bench.asked import parser, say
from bench.gpu_handlers import SPIN
from bench.machine import Watch
from bench.peers.figures import table
from bench.running import ROOT, a_server, a_worker
from herdsman import Client

LENGTHS_MS = {10: 500, 50: 200, 200: 50, 1000: 10}
"""How long a job keeps the GPU busy, and how many jobs there are."""
IDLE_MS = 0.5
PATIENCE_S = 120.0
BUSY = {10: 0.95, 50: 0.99}
HEAD = """# A real GPU

How busy the GPU is, and how long it idles between two jobs, while one worker works off a queue that holds enough jobs;
beside it the same work in a bare loop. Each job is one kernel of the length that the row says. SQLite, `herdsman up` and
`herdsman worker` with the settings they come with.

"""
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Used:
    busy: float
    """The share of the time from the first start to the last end."""
    gaps_ms: Sequence[float]


def main() -> int:
    asked = parser(__doc__).parse_args()
    if shutil.which("nvidia-smi") is None or find_spec("torch") is None:
        say("skipped: this machine has no NVIDIA GPU, or no PyTorch")
        return 0
    watch, found = Watch(), dict[tuple[str, int], Used]()
    lengths = {ms: max(5, jobs // 10) if asked.quick else jobs for ms, jobs in LENGTHS_MS.items()}
    for ms, jobs in lengths.items():
        say(f"{jobs} jobs of {ms} ms")
        found["bare loop", ms] = used(_bare(ms, jobs + 1))
        found["Herdsman", ms] = used(_worked_off(ms, jobs + 1))
    rows = [
        [f"{who}, {ms} ms", f"{each.busy:.1%}", f"{median(each.gaps_ms):.2f}", f"{_p99(each.gaps_ms):.2f}"]
        for (who, ms), each in found.items()
    ]
    shown = table(["", "busy", "idle between jobs, p50 ms", "p99 ms"], rows)
    sought = aims({ms: found["Herdsman", ms] for ms in lengths})
    parts = (surroundings(watch, {}, (_gpu(),)), shown, verdict(sought))
    return conclude(asked, "gpu", HEAD + "\n\n".join(parts) + "\n", sought, watch)


def used(spans: Sequence[Span]) -> Used:
    """The first one is left out: it loads libraries."""
    spans = sorted(spans)[1:]
    whole = spans[-1][1] - spans[0][0]
    return Used(
        sum(ended - began for began, ended in spans) / whole,
        [(after - ended) * 1000 for (_, ended), (after, _) in pairwise(spans)],
    )


def aims(found: dict[int, Used]) -> list[Aim]:
    idle = {ms: median(each.gaps_ms) / IDLE_MS for ms, each in found.items()}
    return [
        *(
            Aim(what=f"idle between jobs of {ms} ms, p50 / {IDLE_MS} ms", ratio=ratio, most=1)
            for ms, ratio in idle.items()
        ),
        *(Aim(what=f"busy with jobs of {ms} ms", ratio=found[ms].busy, least=least) for ms, least in BUSY.items()),
    ]


def _bare(ms: int, jobs: int) -> list[Span]:
    """In a process of its own, which leaves nothing on the GPU: what others hold there is not given to jobs."""
    command = [sys.executable, "-m", "bench.gpu_work", str(ms), str(jobs)]
    said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return [(began, ended) for began, ended in json.loads(said.stdout)]


def _worked_off(ms: int, jobs: int) -> list[Span]:
    """One server and one worker for each length: what it learns of one says nothing about the next."""
    with TemporaryDirectory(prefix="herdsman-bench-") as place:
        directory = Path(place)
        with (
            a_server(f"sqlite:///{directory}/herd.db", directory) as server,
            Client(server.url, server.token) as client,
        ):
            handles = [
                handle
                for start in range(0, jobs, 100)
                for handle in client.submit_many(SPIN, [{"ms": ms}] * min(100, jobs - start))
            ]
            with a_worker(server, directory / "marks", module="bench.gpu_handlers", fake_gpus=0) as alive:
                handles[-1].wait(timeout=PATIENCE_S)  # nobody asks for anything before the work is done
                alive()
                return [tuple(handle.result(timeout=PATIENCE_S)) for handle in handles]


def _p99(values: Sequence[float]) -> float:
    return quantiles(values, n=100, method="inclusive")[98]


def _gpu() -> str:
    torch: Any = import_module("torch")
    return f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}."


if __name__ == "__main__":
    sys.exit(main())
