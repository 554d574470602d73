"""Measures what it costs to start: commands that people type all day, and the memory of what runs all day.

Run it with `python -m bench.startup`.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import sleep

from bench.aims import Aim, conclude, surroundings, verdict
from bench.asked import parser
from bench.databases import sqlite
from bench.machine import Watch, family, memory_mb
from bench.peers.figures import table
from bench.running import ROOT, a_server, a_worker
from herdsman.settings.environment import harmless_environment

HEAD = """# Starting, and staying

Seconds of CPU that a command takes beside a Python that does nothing: medians of {rounds}. Then the memory of what stays,
once it has settled: of the server, and of a worker with its handler.

"""
PYTHON = "python -c pass"
MOST = {"herdsman --help": 0.3, "herdsman jobs": 0.45}
SETTLING_S = 5.0


def main() -> int:
    made = parser(__doc__)
    made.add_argument("--rounds", type=int, help="more rounds, less noise")
    asked = made.parse_args()
    rounds, watch = asked.rounds or (2 if asked.quick else 9), Watch()
    with (
        TemporaryDirectory(prefix="herdsman-bench-") as directory,
        sqlite(["bench"]) as place,
        a_server(place.urls["bench"], Path(directory)) as server,
        a_worker(server, Path(directory, "marks")),
    ):
        where = {"API_URL": server.url, "API_TOKEN": server.token, "LOCAL_STATE_DIR": directory}
        commands = {
            PYTHON: ["-c", "pass"],
            **{name: ["-m", *name.split()] for name in (*MOST, "herdsman workers")},
        }
        took = {name: median(_cpu_s(words, where) for _ in range(rounds)) for name, words in commands.items()}
        sleep(SETTLING_S)
        serving = family(server.pid)
        working = [pid for pid in family(os.getpid()) if pid not in serving and pid != os.getpid()]
        memory = {"herdsman up": memory_mb(serving), "herdsman worker": memory_mb(working)}
    sought = aims(took)
    starts = table(["command", "CPU, s"], [[name, f"{value:.2f}"] for name, value in took.items()])
    stays = table(["process", "memory, MB"], [[name, f"{value:,.0f}"] for name, value in memory.items()])
    parts = (surroundings(watch, {}, ()), starts, stays, verdict(sought))
    return conclude(asked, "startup", HEAD.format(rounds=rounds) + "\n\n".join(parts) + "\n", sought, watch)


def _cpu_s(words: Sequence[str], where: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**harmless_environment(), **where},
        capture_output=True,
        text=True,
        check=False,
    )
    if said.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {said.returncode}: {said.stderr[-1000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def aims(took: Mapping[str, float]) -> list[Aim]:
    return [
        Aim(what=f"CPU of {name}, against {most} s", ratio=took[name] / most, most=1.0) for name, most in MOST.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
