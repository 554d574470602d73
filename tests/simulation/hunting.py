"""Plants one bug after the other in a copy of the sources, and runs seeds until one of them notices.

`python -m tests.simulation.hunting [NAME ...]`; HERDSMAN_SIM_BUG_SEEDS says how many seeds each bug may take.
With `--seeds N` it runs seeds on the sources that it finds, until one notices something.
"""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.simulation.bugs import BUGS, Bug

ROOT = Path(__file__).parents[2]
MOST_SEEDS = int(os.environ.get("HERDSMAN_SIM_BUG_SEEDS", "1000"))
LONGEST_S = 1800


def main(names: list[str]) -> int:
    chosen = [bug for bug in BUGS if not names or bug.name in names]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        missed = [bug.name for bug, said in zip(chosen, threads.map(_told, chosen), strict=True) if not said]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} bugs caught within {MOST_SEEDS:,} seeds")
    return 1 if missed or not chosen else 0


def _told(bug: Bug) -> str:
    said = hunt(bug)
    print(f"{'caught' if said else 'MISSED'}  {bug.name:<24} {said[:150]}", flush=True)
    return said


def hunt(bug: Bug, most: int = MOST_SEEDS) -> str:
    """What the first seed that noticed it said; empty when none did."""
    with tempfile.TemporaryDirectory(prefix="bug-") as directory:
        source = Path(directory) / "src"
        shutil.copytree(ROOT / "src", source)  # with what is compiled: only the file with the bug is compiled again
        bug.apply(source)
        run = _seeds(source, most)
    # Anything but 0 and 1 means that no seed could be run, which is not what it is to be caught by.
    assert run.returncode in (0, 1) and (run.returncode == 0) == (run.stdout == ""), run.stderr[-3000:]
    return run.stdout.splitlines()[0] if run.stdout else ""


def _seeds(source: Path, most: int) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-P", "-m", "tests.simulation.hunting", "--seeds", str(most)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST_S)


def run_seeds(most: int) -> int:
    """1 when a seed found something, 0 when none did."""
    # Imported here: the process that plants the bugs needs none of it.
    import structlog  # noqa: PLC0415

    from herdsman.testing.simulation.faults import Fault  # noqa: PLC0415
    from herdsman.testing.simulation.runner import run_seed  # noqa: PLC0415
    from herdsman.testing.simulation.sim_database import WorldDatabase  # noqa: PLC0415

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    database = WorldDatabase()
    for seed in range(most):
        ran = run_seed(seed, frozenset(Fault), database)
        if ran.violations:
            print(f"seed {seed}: {ran.violations[0]}")
            return 1
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--seeds", most]:
            sys.exit(run_seeds(int(most)))
        case names:
            sys.exit(main(names))
