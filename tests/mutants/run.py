"""Take out one guard at a time and run the tests that should notice. A mutant that survives is a hole.

Run it with `make mutants`, or with the names of some mutants. Each mutant gets a copy of `src` of its own.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.catalogue import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]


def main(names: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    survivors = [mutant.name for mutant in chosen if not _killed(mutant)]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants killed")
    return 1 if survivors or not chosen else 0


def _killed(mutant: Mutant) -> bool:
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        source = Path(directory) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        mutant.apply(source)
        run = _run_tests(mutant, source)
    # pytest says 1 when tests failed; anything else means that it did not get to run them.
    killed = run.returncode == 1
    print(f"{'killed  ' if killed else 'SURVIVED'}  {mutant.name:<28} {mutant.breaks}", flush=True)
    if not killed:
        print(run.stdout[-3000:])
    return killed


def _run_tests(mutant: Mutant, source: Path) -> subprocess.CompletedProcess[str]:
    options = ["-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--no-header"]
    command = [sys.executable, "-m", "pytest", *options, *mutant.noticed_by, "-k", mutant.on]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
